package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	"github.com/bourse-dev/bourse/test/chaos/proxy"
)

// The parties of the network.
const (
	nodeCount = 3
	clients   = "clients"
)

// trailingLogs stay behind a snapshot: few, so that a node that was away needs a snapshot soon.
// Told in the environment, which an older build may overlook.
const trailingLogs = 64

// staleAfter is how long an agent may be silent.
const staleAfter = 4 * time.Second

const (
	killWithin  = 10 * time.Second
	stopWithin  = 20 * time.Second
	askWithin   = 500 * time.Millisecond
	adminWithin = 15 * time.Second
	lookEvery   = 50 * time.Millisecond
	wholeWithin = 90 * time.Second // the group must be whole again after any fault
)

// group is the exchange under test: three processes behind the network.
type group struct {
	nodes  []*node
	net    *proxy.Network
	direct *http.Client // past the network: what the run itself wants to know
	heard  *logWatch
}

// newGroup is one in the middle of an upgrade, once it is founded: its last node still runs the old build.
func newGroup(dir, binary, old string) (*group, error) {
	g := &group{net: proxy.New(), direct: &http.Client{}, heard: newLogWatch()}
	addresses, err := freePorts(3 * nodeCount)
	if err != nil {
		return nil, err
	}
	var join []string
	for i := range nodeCount {
		id := fmt.Sprintf("n%d", i+1)
		api, raft, gossip := addresses[3*i], addresses[3*i+1], addresses[3*i+2]
		n := &node{id: id, dir: filepath.Join(dir, id), proper: binary, api: "http://" + api}
		if i == nodeCount-1 {
			n.proper = old
		}
		n.binary = old
		n.said = func(line []byte) { g.heard.line(id, line) }
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return nil, err
		}
		raftVia, err := g.net.Listen(id, raft, proxy.ByHello)
		if err != nil {
			return nil, err
		}
		gossipVia, err := g.net.ListenGossip(id, gossip, others(id))
		if err != nil {
			return nil, err
		}
		apiVia, err := g.net.Listen(id, api, proxy.Always(clients))
		if err != nil {
			return nil, err
		}
		n.via = "http://" + apiVia
		join = append(join, gossipVia)
		n.flags = []string{
			"server", "--insecure-dev", "--log-json", "--node-id", id, "--data-dir", n.dataDir(),
			"--listen", api, "--advertise", apiVia,
			"--raft-listen", raft, "--raft-advertise", raftVia,
			"--gossip-listen", gossip, "--gossip-advertise", gossipVia,
			"--snapshot-threshold", "200", "--snapshot-interval", "1s", "--stale-after", staleAfter.String(),
		}
		g.nodes = append(g.nodes, n)
	}
	for _, n := range g.nodes {
		n.flags = append(n.flags, "--join", strings.Join(join, ","))
	}
	return g, nil
}

func others(id string) (ids []string) {
	for i := range nodeCount {
		if other := fmt.Sprintf("n%d", i+1); other != id {
			ids = append(ids, other)
		}
	}
	return ids
}

// found starts all nodes on empty directories, with the old build, and upgrades those that are to be.
func (g *group) found(ctx context.Context) error {
	for _, n := range g.nodes {
		if err := n.start("--bootstrap-expect", fmt.Sprint(nodeCount)); err != nil {
			return err
		}
	}
	if err := g.whole(ctx); err != nil {
		return err
	}
	for _, n := range g.nodes {
		if n.binary == n.proper {
			continue
		}
		if err := g.restart(ctx, n, n.proper); err != nil {
			return err
		}
	}
	return nil
}

// restart a node as another build, and wait for it.
func (g *group) restart(ctx context.Context, n *node, binary string) error {
	if err := n.stop(); err != nil {
		return err
	}
	n.binary = binary
	if err := n.start(); err != nil {
		return err
	}
	return g.whole(ctx)
}

// close ends everything.
func (g *group) close() error {
	var wait sync.WaitGroup
	errs := make([]error, len(g.nodes))
	for i, n := range g.nodes {
		wait.Go(func() { errs[i] = n.kill() })
	}
	wait.Wait()
	g.net.Close()
	return errors.Join(errs...)
}

// leader is who leads just now; nil: nobody says so.
func (g *group) leader(ctx context.Context) *node {
	found := make(chan *node, len(g.nodes))
	for _, n := range g.nodes {
		go func() {
			if n.running() && g.ask(ctx, http.MethodGet, n, "/leaderz", nil, nil, askWithin) == nil {
				found <- n
				return
			}
			found <- nil
		}()
	}
	for range g.nodes {
		if n := <-found; n != nil {
			return n
		}
	}
	return nil
}

// waitLeader returns a leader other than the node; nil: whoever leads.
func (g *group) waitLeader(ctx context.Context, other *node) (leader *node, err error) {
	err = until(ctx, wholeWithin, func() error {
		if leader = g.leader(ctx); leader == nil || leader == other {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader, err
}

// ask one node's admin or health endpoint, past the network.
func (g *group) ask(ctx context.Context, method string, n *node, path string, body, into any, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, n.api+path, send)
	if err != nil {
		return err
	}
	response, err := g.direct.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &refusedError{response.StatusCode, fmt.Sprintf("%s of %s: %s: %s", path, n.id, response.Status, bytes.TrimSpace(data))}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// refusedError is an answer that is no success.
type refusedError struct {
	code int
	text string
}

func (e *refusedError) Error() string { return e.text }

// configuration of the group, as its leader sees it.
func (g *group) configuration(ctx context.Context) (c adminv1.RaftConfiguration, err error) {
	leader := g.leader(ctx)
	if leader == nil {
		return c, errors.New("nobody leads")
	}
	err = g.ask(ctx, http.MethodGet, leader, adminv1.PathConfiguration, nil, &c, adminWithin)
	return c, err
}

// whole waits until every node is there, a voter, ready and caught up.
func (g *group) whole(ctx context.Context) error {
	return until(ctx, wholeWithin, func() error {
		for _, n := range g.nodes {
			if err := n.diedUnasked(); err != nil {
				return err
			}
			if err := g.ask(ctx, http.MethodGet, n, "/readyz", nil, nil, askWithin); err != nil {
				return err
			}
		}
		c, err := g.configuration(ctx)
		if err != nil {
			return err
		}
		caughtUp := 0
		for _, s := range c.Servers {
			if s.Suffrage == "voter" && (s.Leader || s.LastContactMs >= 0 && s.LastContactMs < 1000 && s.Lag >= 0 && s.Lag < 64) {
				caughtUp++
			}
		}
		if caughtUp != nodeCount || len(c.Servers) != nodeCount {
			return fmt.Errorf("not whole: %+v", c.Servers)
		}
		return nil
	})
}

// until asks again and again until the condition holds, it can't any more, or time is up.
func until(ctx context.Context, within time.Duration, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		err := holds()
		if err == nil || errors.Is(err, errViolated) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, err)
		case <-ticker.C:
		}
	}
}
