package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

var errConnLost = errors.New("connection lost")

// callers keeps one RPC connection to each node, dialed when first needed.
type callers struct {
	dialer *dialer
	group  errgroup.Group
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[string]*caller // by "id@addr"
}

func newCallers(d *dialer) *callers {
	ctx, cancel := context.WithCancel(context.Background())
	return &callers{dialer: d, ctx: ctx, cancel: cancel, conns: map[string]*caller{}}
}

// call asks the node id (any where empty) at addr. sent says whether the request may have reached
// it; where it is false surely nothing happened there.
func (c *callers) call(ctx context.Context, id, addr string, m method, payload []byte) (answer []byte, sent bool, err error) {
	conn, err := c.conn(id, addr)
	if err != nil {
		return nil, false, err
	}
	if err := conn.ready(ctx); err != nil {
		return nil, false, err
	}
	return conn.call(ctx, m, payload)
}

// conn returns the connection, which may still be dialing.
func (c *callers) conn(id, addr string) (*caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, ErrShutdown
	}
	key := id + "@" + addr
	if conn := c.conns[key]; conn != nil {
		return conn, nil
	}
	conn := &caller{
		id: id, opened: make(chan struct{}), lost: make(chan struct{}),
		calls: map[uint64]chan *frame{},
	}
	c.conns[key] = conn
	c.group.Go(func() error {
		conn.run(c.ctx, c.dialer, addr)
		c.mu.Lock()
		if c.conns[key] == conn {
			delete(c.conns, key)
		}
		c.mu.Unlock()
		return nil
	})
	return conn, nil
}

// drop closes the connections to a node that seems gone, so that calls end soon.
func (c *callers) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, conn := range c.conns {
		if conn.id == id {
			conn.close()
			delete(c.conns, key)
		}
	}
}

// dropAll closes every connection; calls that follow dial anew.
func (c *callers) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, conn := range c.conns {
		conn.close()
		delete(c.conns, key)
	}
}

func (c *callers) close() {
	c.mu.Lock()
	c.cancel()
	for _, conn := range c.conns {
		conn.close()
	}
	c.mu.Unlock()
	_ = c.group.Wait()
}

// caller is the calling end of one connection.
type caller struct {
	id     string
	opened chan struct{} // closed once dialed, or failed
	lost   chan struct{} // closed when the connection is over
	dialed error         // after opened

	writeMu sync.Mutex
	mu      sync.Mutex
	conn    net.Conn
	closed  bool
	peer    string
	nextID  uint64
	calls   map[uint64]chan *frame
}

func (c *caller) ready(ctx context.Context) error {
	select {
	case <-c.opened:
		return c.dialed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run dials, then reads answers until the connection is over.
func (c *caller) run(ctx context.Context, d *dialer, addr string) {
	defer close(c.lost)
	conn, peer, err := d.dial(ctx, kindRPC, c.id, addr)
	if err != nil {
		c.dialed = err
		close(c.opened)
		return
	}
	c.mu.Lock()
	c.conn, c.peer = conn, peer.From
	closed := c.closed
	c.mu.Unlock()
	close(c.opened)
	defer func() { _ = conn.Close() }() // close may have done so already
	if closed {
		return
	}
	r := bufio.NewReader(conn)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		c.mu.Lock()
		wait := c.calls[f.id]
		delete(c.calls, f.id)
		c.mu.Unlock()
		if wait != nil {
			wait <- f
		}
	}
}

func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

func (c *caller) call(ctx context.Context, m method, payload []byte) (answer []byte, sent bool, err error) {
	wait := make(chan *frame, 1)
	c.mu.Lock()
	if c.closed || len(c.calls) >= maxCallsPerConn {
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return nil, false, errConnLost
		}
		return nil, false, fmt.Errorf("%w: %d calls to node %s are under way", ErrOverloaded, maxCallsPerConn, c.peer)
	}
	c.nextID++
	id := c.nextID
	c.calls[id] = wait
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()

	f := &frame{what: uint8(m), id: id, timeout: maxCallMillis * time.Millisecond, payload: payload}
	if deadline, ok := ctx.Deadline(); ok {
		f.timeout = time.Until(deadline)
	}
	if err := c.write(f); err != nil {
		return nil, !errors.Is(err, ErrTooLarge), err
	}
	select {
	case f := <-wait:
		return c.answer(f)
	case <-ctx.Done():
		return nil, true, ctx.Err()
	case <-c.lost:
		select { // it may have come just before
		case f := <-wait:
			return c.answer(f)
		default:
			return nil, true, fmt.Errorf("node %s: %w", c.peer, errConnLost)
		}
	}
}

func (c *caller) answer(f *frame) ([]byte, bool, error) {
	if f.code != codeOK {
		return nil, true, &remoteError{node: c.peer, code: f.code, message: string(f.payload)}
	}
	return f.payload, true, nil
}

func (c *caller) write(f *frame) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := setWriteDeadline(c.conn); err != nil {
		return err
	}
	err := writeFrame(c.conn, f)
	if err != nil && !errors.Is(err, ErrTooLarge) {
		_ = c.conn.Close()
	}
	return err
}

// setWriteDeadline: a peer that reads nothing for so long is as good as gone.
func setWriteDeadline(conn net.Conn) error {
	return conn.SetWriteDeadline(time.Now().Add(helloTimeout))
}
