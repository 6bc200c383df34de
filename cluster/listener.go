package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
)

// listener accepts connections, checks who dials, and hands them to Raft or to the RPC server.
// Every connection it accepted is closed by Close.
type listener struct {
	net    net.Listener
	dialer *dialer
	logger hclog.Logger
	serve  func(ctx context.Context, conn net.Conn, peer hello) // for kindRPC; closes conn

	raftConns chan net.Conn
	ctx       context.Context
	cancel    context.CancelFunc
	group     errgroup.Group

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newListener(addr string, d *dialer, logger hclog.Logger) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("raft-listen: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &listener{
		net: l, dialer: d, logger: logger,
		raftConns: make(chan net.Conn),
		ctx:       ctx, cancel: cancel,
		conns: map[net.Conn]struct{}{},
	}, nil
}

// start accepts from now on; serve must be set.
func (l *listener) start() { l.group.Go(l.acceptLoop) }

func (l *listener) acceptLoop() error {
	for {
		conn, err := l.net.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil // by close
		}
		if err != nil {
			l.logger.Warn("accept failed", "error", err)
			select { // out of file descriptors, most likely
			case <-l.ctx.Done():
				return nil
			case <-time.After(firstRetryPause):
			}
			continue
		}
		if l.dialer.creds != nil {
			conn = tls.Server(conn, l.dialer.creds.server())
		}
		if !l.keep(conn) {
			_ = conn.Close()
			continue
		}
		l.group.Go(func() error { l.handle(conn); return nil })
	}
}

// keep registers a connection; false where there are too many or the listener is closed.
func (l *listener) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || len(l.conns) >= maxInboundConns {
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *listener) forget(conn net.Conn) {
	l.mu.Lock()
	delete(l.conns, conn)
	l.mu.Unlock()
	_ = conn.Close()
}

func (l *listener) handle(conn net.Conn) {
	kind, peer, err := l.dialer.accept(conn)
	if err != nil {
		l.logger.Warn("connection refused", "remote", conn.RemoteAddr().String(), "node", peer.From, "error", err)
		l.forget(conn)
		return
	}
	if kind == kindRPC {
		defer l.forget(conn)
		l.serve(l.ctx, conn, peer)
		return
	}
	select {
	case l.raftConns <- &keptConn{Conn: conn, forget: func() { l.forget(conn) }}:
	case <-l.ctx.Done():
		l.forget(conn)
	}
}

// keptConn is a Raft stream: Raft closes it.
type keptConn struct {
	net.Conn
	once   sync.Once
	forget func()
}

func (c *keptConn) Close() error {
	c.once.Do(c.forget)
	return nil
}

// close ends everything and waits.
func (l *listener) close() error {
	l.cancel()
	err := l.net.Close()
	l.mu.Lock()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, l.group.Wait())
}

// raftStreams is raft.StreamLayer over the listener.
type raftStreams struct {
	l         *listener
	advertise raftAddr
}

// raftAddr is the address that Raft knows this node by.
type raftAddr string

func (raftAddr) Network() string  { return "tcp" }
func (a raftAddr) String() string { return string(a) }

func (s *raftStreams) Accept() (net.Conn, error) {
	select {
	case conn := <-s.l.raftConns:
		return conn, nil
	case <-s.l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close is Raft's; the listener also serves the RPC and is closed by the node.
func (s *raftStreams) Close() error   { return nil }
func (s *raftStreams) Addr() net.Addr { return s.advertise }

// Dial is given "id@host:port" by addressBook; where that knows no address, Raft's configuration's.
func (s *raftStreams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, addr, found := strings.Cut(string(address), "@")
	if !found {
		return nil, fmt.Errorf("%w: %q has no address yet", ErrUnknownNode, address)
	}
	ctx, cancel := context.WithTimeout(s.l.ctx, timeout)
	defer cancel()
	conn, _, err := s.l.dialer.dial(ctx, kindRaft, id, addr)
	return conn, err
}
