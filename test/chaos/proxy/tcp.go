package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Whose names the one who dials; read is what it took from the stream to know.
type Whose func(r io.Reader) (from string, read []byte, err error)

// Always is for listeners that only one party dials.
func Always(from string) Whose {
	return func(io.Reader) (string, []byte, error) { return from, nil, nil }
}

// helloBytes begin a connection between two nodes: magic, version, kind, length. See cluster/hello.go.
const helloBytes = 5

// ByHello reads the name that a node gives of itself in the first bytes it sends.
func ByHello(r io.Reader) (from string, read []byte, err error) {
	head := make([]byte, helloBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return "", nil, err
	}
	var hello struct {
		From string `json:"f"`
	}
	if err := json.Unmarshal(body, &hello); err != nil || hello.From == "" {
		return "", nil, fmt.Errorf("no hello of a node: %q", body)
	}
	return hello.From, append(head, body...), nil
}

// Listen opens an address that leads to target, which belongs to the party to.
func (n *Network) Listen(to, target string, whose Whose) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.accept(listener, to, target, whose)
	return listener.Addr().String(), nil
}

func (n *Network) accept(listener net.Listener, to, target string, whose Whose) {
	n.serve(listener, func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			n.work.Go(func() { n.carry(conn, to, target, whose) })
		}
	})
}

// carry takes one connection to its target and both directions through their links, to its end.
func (n *Network) carry(front net.Conn, to, target string, whose Whose) {
	ctx, cancel := context.WithCancel(n.ctx)
	s := &stream{to: to, front: front, ctx: ctx, cancel: cancel}
	defer func() {
		n.mu.Lock()
		s.close()
		n.mu.Unlock()
		n.forget(s)
	}()
	if !n.keep(s) {
		return
	}
	from, read, err := whose(front)
	if err != nil {
		return
	}
	n.mu.Lock()
	s.from = from
	n.mu.Unlock()
	forward, back := n.Link(from, to), n.Link(to, from)
	// A handshake needs both directions: while one is cut, nobody gets through.
	if forward.open(ctx) != nil || back.open(ctx) != nil {
		return
	}
	behind, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	n.mu.Lock()
	s.behind = behind
	n.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.pump(back, front, behind)
		cancelStream(n, s)
	}()
	s.pump(forward, behind, io.MultiReader(bytes.NewReader(read), front))
	cancelStream(n, s)
	<-ended
}

// cancelStream ends both directions: half-open streams to a killed process must not linger.
func cancelStream(n *Network, s *stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.close()
}

func (s *stream) pump(link *Link, to io.Writer, from io.Reader) {
	buffer := make([]byte, 16<<10)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if link.pass(s.ctx) != nil {
				return
			}
			if _, err := to.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
