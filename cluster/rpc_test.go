package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/store"
)

// serveRPC is an RPC server of node "s" and a caller "c".
func serveRPC(t *testing.T, handlers map[method]handler) (*callers, string, *listener) {
	t.Helper()
	l, err := newListener("127.0.0.1:0", &dialer{who: stranger{"s", "us", "x"}}, hclog.NewNullLogger())
	require.NoError(t, err)
	server := &rpcServer{handlers: handlers, allow: func(hello, method) error { return nil }}
	l.serve = server.serveConn
	l.start()
	c := newCallers(&dialer{who: stranger{"c", "uc", "x"}})
	t.Cleanup(func() {
		c.close()
		require.NoError(t, l.close())
	})
	return c, l.net.Addr().String(), l
}

func TestCallsShareAConnectionAndDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c, addr, l := serveRPC(t, map[method]handler{
		1: func(ctx context.Context, _ hello, b []byte) ([]byte, error) {
			select {
			case <-release:
				return b, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		2: func(_ context.Context, peer hello, b []byte) ([]byte, error) { return append(b, peer.From...), nil },
	})
	ctx := testContext(t)
	var wait sync.WaitGroup
	for i := range 50 {
		wait.Go(func() {
			want := fmt.Sprint(i)
			got, sent, err := c.call(ctx, "s", addr, 1, []byte(want))
			if err != nil || !sent || string(got) != want {
				t.Errorf("call %d: %q %v %v", i, got, sent, err)
			}
		})
	}
	got, _, err := c.call(ctx, "s", addr, 2, []byte("hello "))
	require.NoError(t, err)
	require.Equal(t, "hello c", string(got))
	close(release)
	wait.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(t, l.conns, 1)
}

func TestErrorsKeepTheirIdentityAcrossTheWire(t *testing.T) {
	t.Parallel()
	var give error
	c, addr, _ := serveRPC(t, map[method]handler{
		1: func(context.Context, hello, []byte) ([]byte, error) { return nil, give },
	})
	for _, e := range errorCodes {
		give = fmt.Errorf("in some words: %w", e.err)
		_, sent, err := c.call(testContext(t), "s", addr, 1, nil)
		require.True(t, sent)
		require.ErrorIs(t, err, e.err)
		require.ErrorContains(t, err, "in some words")
		require.Equal(t, errors.Is(e.err, ErrNotProposed), errors.Is(err, ErrNotProposed))
		require.Equal(t, errors.Is(e.err, store.ErrUnknownOutcome), errors.Is(err, store.ErrUnknownOutcome))
	}
	give = io.EOF
	_, _, err := c.call(testContext(t), "s", addr, 1, nil)
	require.True(t, isAnswer(err))
	_, _, err = c.call(testContext(t), "s", addr, 77, nil)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestACallKnowsWhetherItWasSent(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	c, addr, l := serveRPC(t, map[method]handler{
		1: func(ctx context.Context, _ hello, _ []byte) ([]byte, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	ctx, cancel := context.WithCancel(testContext(t))
	go func() { <-entered; cancel() }()
	_, sent, err := c.call(ctx, "s", addr, 1, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, sent)

	_, sent, err = c.call(testContext(t), "another", addr, 1, nil)
	require.ErrorIs(t, err, ErrUnknownNode, "the node there has another id")
	require.False(t, sent)

	_, sent, err = c.call(testContext(t), "s", addr, 1, make([]byte, maxFrameBytes))
	require.ErrorIs(t, err, ErrTooLarge)
	require.False(t, sent)

	go func() {
		<-entered
		l.mu.Lock()
		defer l.mu.Unlock()
		for conn := range l.conns {
			_ = conn.Close()
		}
	}()
	_, sent, err = c.call(testContext(t), "s", addr, 1, nil)
	require.ErrorIs(t, err, errConnLost)
	require.True(t, sent, "nobody can tell")

	_, sent, err = c.call(testContext(t), "s", "127.0.0.1:1", 1, nil)
	require.Error(t, err)
	require.False(t, sent)
}

func TestHostileBytesCloseTheConnection(t *testing.T) {
	t.Parallel()
	_, addr, _ := serveRPC(t, nil)
	huge := binary.BigEndian.AppendUint32(nil, 1<<31)
	var hi bytes.Buffer
	require.NoError(t, writeHello(&hi, kindRPC, hello{From: "c", UUID: "u", ClusterID: "x"}))
	for name, bytes := range map[string][]byte{
		"an HTTP request": []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge frame":    slices.Concat(hi.Bytes(), huge),
		"a short frame":   slices.Concat(hi.Bytes(), []byte{0, 0, 0, 1, 1}),
		"a new version":   slices.Concat(hi.Bytes(), []byte{0, 0, 0, frameHead, 99}, make([]byte, frameHead-1)),
	} {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err, name)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Write(bytes)
		require.NoError(t, err, name)
		_, err = io.Copy(io.Discard, conn) // ends: the other side closed
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
		require.NoError(t, conn.Close())
	}
}
