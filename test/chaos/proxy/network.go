package proxy

import (
	"context"
	"net"
	"sync"
)

// Network is all links, and what runs over them.
type Network struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	links   map[[2]string]*Link
	streams map[*stream]struct{}
	gossip  map[string]string // who sends datagrams from that address
}

// New is a network without faults. Close ends it.
func New() *Network {
	ctx, cancel := context.WithCancel(context.Background())
	return &Network{
		ctx: ctx, cancel: cancel,
		links: map[[2]string]*Link{}, streams: map[*stream]struct{}{}, gossip: map[string]string{},
	}
}

// Close ends every stream and waits.
func (n *Network) Close() {
	n.cancel()
	n.Break(func(string, string) bool { return true })
	n.work.Wait()
}

// Link from one party to another.
func (n *Network) Link(from, to string) *Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]string{from, to}
	if n.links[key] == nil {
		n.links[key] = &Link{changed: make(chan struct{})}
	}
	return n.links[key]
}

// Heal takes all rules back. What was held arrives now, late.
func (n *Network) Heal() {
	for _, l := range n.all() {
		l.Set(Rule{})
	}
}

// Break closes the streams between parties that match, whoever dialed.
func (n *Network) Break(match func(a, b string) bool) (broken int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		if match(s.from, s.to) || match(s.to, s.from) {
			s.close()
			broken++
		}
	}
	return broken
}

// Effects counts what rules did to bytes so far.
type Effects struct{ Held, Late, Lost int64 }

// Effects of all links together.
func (n *Network) Effects() (sum Effects) {
	for _, l := range n.all() {
		sum.Held += l.held.Load()
		sum.Late += l.late.Load()
		sum.Lost += l.lost.Load()
	}
	return sum
}

func (n *Network) all() (list []*Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		list = append(list, l)
	}
	return list
}

// serve runs f until it returns, and closes c when the network ends before.
func (n *Network) serve(c interface{ Close() error }, f func()) {
	n.work.Go(func() {
		defer context.AfterFunc(n.ctx, func() { _ = c.Close() })() // f ends by it
		f()
	})
}

// keep registers a stream; false where the network has ended.
func (n *Network) keep(s *stream) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return false
	}
	n.streams[s] = struct{}{}
	return true
}

func (n *Network) forget(s *stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.streams, s)
}

// stream is one connection through the network: two connections and who is at their ends.
type stream struct {
	from, to      string
	front, behind net.Conn // behind is nil until dialed
	ctx           context.Context
	cancel        context.CancelFunc
}

// close is called under the network's lock; it doesn't wait.
func (s *stream) close() {
	s.cancel()
	_ = s.front.Close()
	if s.behind != nil {
		_ = s.behind.Close()
	}
}
