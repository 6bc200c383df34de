package child

import (
	"errors"
	"fmt"
	"net"
)

// FreePort returns a loopback port that the kernel will not give to anybody who asks for any port within the next
// minute: one connection is made and closed from the port's side, which leaves it in TIME_WAIT. A server that names
// the port may bind it all the same, as servers set SO_REUSEADDR. A port that was merely closed again could be taken
// by any outgoing connection before the server is up. It is free for UDP, too.
func FreePort() (port int, err error) {
	const attempts = 10 // each fails only where another program uses the UDP port of the same number
	for range attempts {
		if port, err = freeTCP(); err != nil {
			return 0, fmt.Errorf("finding a free port: %w", err)
		}
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, packets.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

func freeTCP() (port int, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	server, err := l.Accept()
	if err != nil {
		return 0, err
	}
	if err := server.Close(); err != nil {
		return 0, fmt.Errorf("port %s: %w", l.Addr(), err)
	}
	// The client's end must see the close before it closes itself, or the TIME_WAIT could end up on its side.
	_, _ = client.Read(make([]byte, 1))
	return l.Addr().(*net.TCPAddr).Port, nil
}
