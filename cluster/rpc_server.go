package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"
)

// handler answers one call. It runs on a goroutine of its own; peer is who calls, as proved by the
// certificate. It must return soon after ctx is done.
type handler func(ctx context.Context, peer hello, payload []byte) ([]byte, error)

// rpcServer serves the internal RPC: many calls at a time on each connection.
type rpcServer struct {
	handlers map[method]handler
	// allow says whether the peer may call the method.
	allow func(peer hello, m method) error
}

// serveConn returns when the connection is over and every call on it has ended. ctx ends the calls;
// the connection is closed by whoever cancels it.
func (s *rpcServer) serveConn(ctx context.Context, conn net.Conn, peer hello) {
	ctx, cancel := context.WithCancel(ctx)
	var calls errgroup.Group
	calls.SetLimit(maxCallsPerConn)
	defer func() {
		cancel()
		_ = calls.Wait()
	}()
	answers := &answerWriter{conn: conn}
	r := bufio.NewReader(conn)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		started := calls.TryGo(func() error {
			answers.send(s.call(ctx, peer, f))
			return nil
		})
		if !started {
			answers.send(refusal(f, fmt.Errorf("%w: %d calls of node %s are under way", ErrOverloaded, maxCallsPerConn, peer.From)))
		}
	}
}

func (s *rpcServer) call(ctx context.Context, peer hello, f *frame) *frame {
	handle := s.handlers[method(f.what)]
	if handle == nil {
		return refusal(f, fmt.Errorf("%w: unknown method %d", ErrInvalid, f.what))
	}
	if err := s.allow(peer, method(f.what)); err != nil {
		return refusal(f, err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	payload, err := handle(ctx, peer, f.payload)
	if err != nil {
		return refusal(f, err)
	}
	return &frame{what: answerFlag, id: f.id, payload: payload}
}

func refusal(f *frame, err error) *frame {
	return &frame{what: answerFlag, code: codeOf(err), id: f.id, payload: []byte(err.Error())}
}

// answerWriter serializes answers on a connection.
type answerWriter struct {
	mu   sync.Mutex
	conn net.Conn
}

func (w *answerWriter) send(f *frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := setWriteDeadline(w.conn); err != nil {
		return
	}
	if err := writeFrame(w.conn, f); err != nil {
		_ = w.conn.Close() // the reader notices
	}
}
