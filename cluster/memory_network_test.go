package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// memoryNetwork carries Raft's messages and the internal RPC's connections between nodes of one
// process, as badly as it is told to.
type memoryNetwork struct {
	mu     sync.Mutex
	rng    *rand.Rand
	nodes  map[string]*memoryPort // those that run
	cut    map[[2]string]bool     // from, to: nothing arrives
	rough  roughness
	conns  map[*memoryConn]struct{}
	events map[string]int // what happened to messages
	// handedOver, where set, is told when a node says to another that it should lead.
	handedOver func(id string)
}

// roughness of every link: probabilities, and the longest delay.
type roughness struct {
	loss, twice float64
	delay       time.Duration
}

// memoryPort is where a node is reached.
type memoryPort struct {
	network  *memoryNetwork
	id       string
	consumer chan raft.RPC
	accepted chan net.Conn
	closed   chan struct{}
}

const messageTimeout = 300 * time.Millisecond

var errNoAnswer = errors.New("no answer")

func newMemoryNetwork(rng *rand.Rand) *memoryNetwork {
	return &memoryNetwork{
		rng: rng, nodes: map[string]*memoryPort{}, cut: map[[2]string]bool{},
		conns: map[*memoryConn]struct{}{}, events: map[string]int{},
	}
}

func (m *memoryNetwork) attach(id string) *memoryPort {
	p := &memoryPort{
		network: m, id: id, consumer: make(chan raft.RPC, 256),
		accepted: make(chan net.Conn, 16), closed: make(chan struct{}),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[id] = p
	return p
}

// detach ends the node's connections, as the end of its process does.
func (m *memoryNetwork) detach(p *memoryPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, p.id)
	close(p.closed)
	for c := range m.conns {
		if c.from == p.id || c.to == p.id {
			m.end(c)
		}
	}
}

// sever lets nothing from one reach the other.
func (m *memoryNetwork) sever(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[[2]string{from, to}] = true
}

// heal makes all links good. Connections that lost something end: they can't go on.
func (m *memoryNetwork) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.cut)
	m.rough, m.handedOver = roughness{}, nil
	for c := range m.conns {
		if c.dead {
			m.end(c)
		}
	}
}

func (m *memoryNetwork) roughen(r roughness) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rough = r
}

// fate of one message; to is nil where it is lost.
func (m *memoryNetwork) fate(from, to string) (port *memoryPort, delay time.Duration, twice bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delay = 100*time.Microsecond + time.Duration(m.rng.Int64N(int64(m.rough.delay)+1))
	if m.rough.delay > 0 {
		m.events["delayed"]++
	}
	switch {
	case m.cut[[2]string{from, to}]:
		m.events["cut off"]++
		return nil, delay, false
	case m.rng.Float64() < m.rough.loss:
		m.events["lost"]++
		return nil, delay, false
	}
	if twice = m.rng.Float64() < m.rough.twice; twice {
		m.events["sent twice"]++
	}
	return m.nodes[to], delay, twice
}

// call sends one Raft message and waits for its answer.
func (p *memoryPort) call(target raft.ServerID, command any, reader io.Reader) (any, error) {
	to, delay, twice := p.network.fate(p.id, string(target))
	deadline := time.After(messageTimeout)
	time.Sleep(delay)
	if to == nil {
		<-deadline
		return nil, errNoAnswer
	}
	rpc := raft.RPC{Command: command, Reader: reader}
	if twice && reader == nil { // a snapshot is a stream, which no network repeats
		_, later, _ := p.network.fate(p.id, string(target))
		time.AfterFunc(later, func() { to.deliver(rpc) })
	}
	answer := to.deliver(rpc)
	back, delay, _ := p.network.fate(string(target), p.id)
	select {
	case r := <-answer:
		if back == nil {
			<-deadline
			return nil, errNoAnswer
		}
		time.Sleep(delay)
		return r.Response, r.Error
	case <-deadline:
		return nil, errNoAnswer
	}
}

func (p *memoryPort) deliver(rpc raft.RPC) <-chan raft.RPCResponse {
	answer := make(chan raft.RPCResponse, 1)
	rpc.RespChan = answer
	select {
	case p.consumer <- rpc:
	default: // overrun
	}
	return answer
}

func answered[A any](answer any, err error, into *A) error {
	if a, ok := answer.(*A); ok && err == nil {
		*into = *a
	}
	return err
}

// What follows is raft.Transport.

func (p *memoryPort) Consumer() <-chan raft.RPC          { return p.consumer }
func (p *memoryPort) LocalAddr() raft.ServerAddress      { return raft.ServerAddress(p.id) }
func (p *memoryPort) SetHeartbeatHandler(func(raft.RPC)) {}

func (p *memoryPort) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (p *memoryPort) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := *args // raft writes its next request over this one, answered or not
	answer, err := p.call(id, &sent, nil)
	return answered(answer, err, resp)
}

func (p *memoryPort) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	answer, err := p.call(id, args, nil)
	return answered(answer, err, resp)
}

func (p *memoryPort) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	answer, err := p.call(id, args, nil)
	return answered(answer, err, resp)
}

func (p *memoryPort) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	answer, err := p.call(id, args, data)
	return answered(answer, err, resp)
}

func (p *memoryPort) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	p.network.mu.Lock()
	handedOver := p.network.handedOver
	p.network.mu.Unlock()
	if handedOver != nil {
		handedOver(p.id)
	}
	answer, err := p.call(id, args, nil)
	return answered(answer, err, resp)
}

func (p *memoryPort) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

func (p *memoryPort) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// What follows is the internal RPC's: connections, which lose nothing until they are lost.

// open is dialer's.
func (p *memoryPort) open(ctx context.Context, addr string) (net.Conn, error) {
	m := p.network
	m.mu.Lock()
	to, blocked := m.nodes[addr], m.cut[[2]string{p.id, addr}] || m.cut[[2]string{addr, p.id}]
	m.mu.Unlock()
	switch {
	case blocked:
		<-ctx.Done()
		return nil, ctx.Err()
	case to == nil:
		return nil, fmt.Errorf("%s: %w", addr, syscall.ECONNREFUSED)
	}
	here, there := net.Pipe()
	select {
	case to.accepted <- p.network.keep(there, addr, p.id):
		return p.network.keep(here, p.id, addr), nil
	case <-to.closed:
		return nil, fmt.Errorf("%s: %w", addr, net.ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr are net.Listener.
func (p *memoryPort) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *memoryPort) Close() error   { return nil } // detach does
func (p *memoryPort) Addr() net.Addr { return raftAddr(p.id) }

// memoryConn is one end. What it writes into a severed link is gone, and all that follows.
type memoryConn struct {
	net.Conn
	network  *memoryNetwork
	from, to string
	dead     bool
}

func (m *memoryNetwork) keep(conn net.Conn, from, to string) net.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &memoryConn{Conn: conn, network: m, from: from, to: to}
	m.conns[c] = struct{}{}
	return c
}

func (m *memoryNetwork) end(c *memoryConn) {
	delete(m.conns, c)
	_ = c.Conn.Close()
}

func (c *memoryConn) Write(b []byte) (int, error) {
	m := c.network
	m.mu.Lock()
	c.dead = c.dead || m.cut[[2]string{c.from, c.to}]
	dead := c.dead
	if !dead && m.rng.Float64() < m.rough.loss/4 { // most losses a connection makes good
		m.events["connection lost"]++
		m.end(c)
	}
	m.mu.Unlock()
	if dead {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *memoryConn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.network.end(c)
	return nil
}
