package dev

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const dialTimeout = time.Second

// forwarder passes TCP connections on to a healthy broker node, so that one address survives
// the death of any node. It never looks into them: TLS ends at the node.
type forwarder struct {
	listener net.Listener
	health   *health
}

// run accepts connections until ctx ends, then closes what is open and waits.
func (f *forwarder) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopClosing := context.AfterFunc(ctx, func() { f.listener.Close() }) //nolint:errcheck // ends Accept
	defer stopClosing()
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := f.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		connections.Go(func() { f.forward(ctx, client) })
	}
}

func (f *forwarder) forward(ctx context.Context, client net.Conn) {
	defer client.Close() //nolint:errcheck // nothing to do about it
	node := f.dial(ctx)
	if node == nil {
		return
	}
	defer node.Close() //nolint:errcheck // nothing to do about it
	stop := context.AfterFunc(ctx, func() {
		client.Close() //nolint:errcheck // ends the copies
		node.Close()   //nolint:errcheck // ends the copies
	})
	defer stop()
	var copies sync.WaitGroup
	copies.Go(func() { pipe(node, client) })
	copies.Go(func() { pipe(client, node) })
	copies.Wait()
}

// pipe copies until either side ends, then closes both: half-open connections to a node that
// was killed must not linger.
func pipe(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if closer, ok := to.(*net.TCPConn); ok && err == nil {
		err = closer.CloseWrite()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		to.Close()   //nolint:errcheck // already broken
		from.Close() //nolint:errcheck // already broken
	}
}

func (f *forwarder) dial(ctx context.Context) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, address := range f.health.candidates() {
		if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return conn
		}
		f.health.failed(address)
	}
	return nil
}
