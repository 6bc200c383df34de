package proxy_test

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/test/chaos/proxy"
)

const patience = 30 * time.Second

// echo answers every stream with what it says.
func echo(t *testing.T) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn) // until the test is over or the stream broken
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // most are closed by then
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func hello(from string) []byte {
	body := []byte(`{"f":"` + from + `"}`)
	return append(append([]byte{0xB0, 1, 1}, binary.BigEndian.AppendUint16(nil, uint16(len(body)))...), body...)
}

func read(t *testing.T, conn net.Conn, count int) string {
	buffer := make([]byte, count)
	_, err := io.ReadFull(conn, buffer)
	require.NoError(t, err)
	return string(buffer)
}

func TestWhatIsCutArrivesWhenHealedAndOnlyThatDirectionIsHeld(t *testing.T) {
	t.Parallel()
	n := proxy.New()
	t.Cleanup(n.Close)
	address, err := n.Listen("n2", echo(t), proxy.ByHello)
	require.NoError(t, err)
	one, other := dial(t, address), dial(t, address)
	for who, conn := range map[string]net.Conn{"n1": one, "n3": other} {
		_, err := conn.Write(hello(who))
		require.NoError(t, err)
		require.Equal(t, string(hello(who)), read(t, conn, len(hello(who))), "the hello itself is passed on")
	}
	n.Link("n1", "n2").Set(proxy.Rule{Cut: true})
	for _, conn := range []net.Conn{one, other} {
		_, err := conn.Write([]byte("late"))
		require.NoError(t, err)
	}
	require.Equal(t, "late", read(t, other, 4), "another node's link is another link")
	require.Eventually(t, func() bool { return n.Effects().Held == 1 }, patience, time.Millisecond)
	n.Heal()
	require.Equal(t, "late", read(t, one, 4))
}

func TestNobodyGetsThroughWhileEitherDirectionIsCut(t *testing.T) {
	t.Parallel()
	n := proxy.New()
	t.Cleanup(n.Close)
	address, err := n.Listen("n2", echo(t), proxy.ByHello)
	require.NoError(t, err)
	n.Link("n2", "n1").Set(proxy.Rule{Cut: true})
	conn := dial(t, address)
	_, err = conn.Write(hello("n1"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.Effects().Held == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, n.Break(func(a, b string) bool { return a == "n1" && b == "n2" }))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestDelayAndLossMakeLate(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]proxy.Rule{"delay": {Delay: 20 * time.Millisecond}, "loss": {Loss: 0.5}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := proxy.New()
			t.Cleanup(n.Close)
			address, err := n.Listen("n1", echo(t), proxy.Always("clients"))
			require.NoError(t, err)
			n.Link("clients", "n1").Set(rule)
			for began := time.Now(); n.Effects().Late+n.Effects().Lost == 0; {
				require.Less(t, time.Since(began), patience)
				conn := dial(t, address)
				_, err = conn.Write([]byte("x"))
				require.NoError(t, err)
				if _, err = conn.Read(make([]byte, 1)); name == "delay" {
					require.NoError(t, err)
				}
			}
		})
	}
}

func TestDatagramsAreKnownByTheirSender(t *testing.T) {
	t.Parallel()
	n := proxy.New()
	t.Cleanup(n.Close)
	sockets := map[string]net.PacketConn{}
	addresses := map[string]string{}
	for _, id := range []string{"n1", "n2"} {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, socket.Close()) })
		require.NoError(t, socket.SetDeadline(time.Now().Add(patience)))
		sockets[id] = socket
		addresses[id], err = n.ListenGossip(id, socket.LocalAddr().String(), []string{"n1", "n2"})
		require.NoError(t, err)
	}
	to, err := net.ResolveUDPAddr("udp", addresses["n2"])
	require.NoError(t, err)
	n.Link("n1", "n2").Set(proxy.Rule{Cut: true})
	_, err = sockets["n1"].WriteTo([]byte("cut"), to)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.Effects().Held == 1 }, patience, time.Millisecond)
	n.Heal()
	_, err = sockets["n1"].WriteTo([]byte("through"), to)
	require.NoError(t, err)
	buffer := make([]byte, 64)
	count, _, err := sockets["n2"].ReadFrom(buffer)
	require.NoError(t, err)
	require.Equal(t, "through", string(buffer[:count]))
}
