package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// maxDatagram is more than memberlist ever sends.
const maxDatagram = 64 << 10

// ListenGossip opens an address for datagrams and streams that leads to target, where the party to
// gossips. Datagrams come from the sender's own gossip address, by which it is known; who opens a
// gossip stream is not known, so those are held only where nobody can reach the party.
func (n *Network) ListenGossip(to, target string, others []string) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		_ = listener.Close()
		return "", fmt.Errorf("the same port for datagrams: %w", err)
	}
	out, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.gossip[target] = to
	n.mu.Unlock()
	n.accept(listener, to, target, func(io.Reader) (string, []byte, error) {
		return others[rand.IntN(len(others))], nil, nil
	})
	n.serve(packets, func() { n.relay(packets, to, out) })
	return listener.Addr().String(), nil
}

// relay is lossy as a network is: what is late may overtake.
func (n *Network) relay(packets net.PacketConn, to string, target net.Addr) {
	buffer := make([]byte, maxDatagram)
	for {
		count, sender, err := packets.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		n.mu.Lock()
		from := n.gossip[sender.String()]
		n.mu.Unlock()
		link := n.Link(from, to)
		rule, _ := link.now()
		switch wait := link.lateness(rule); {
		case rule.Cut:
			link.held.Add(1)
		case rand.Float64() < rule.Loss:
			link.lost.Add(1)
		case wait > 0:
			link.late.Add(1)
			message := append([]byte(nil), buffer[:count]...)
			time.AfterFunc(wait, func() { _, _ = packets.WriteTo(message, target) })
		default:
			_, _ = packets.WriteTo(buffer[:count], target) // lost if not
		}
	}
}
