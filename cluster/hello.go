package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// One listener carries Raft streams and the internal RPC. The first bytes on a connection are
//
//	0xB0, version, kind, length (uint16, big endian), hello as JSON
//
// in each direction: who dials whom, of which exchange, and whether the other end agrees.
const (
	helloMagic   = 0xB0
	helloVersion = 1
)

// streamKind says what a connection carries after the hello. Numbers are on the wire.
type streamKind uint8

const (
	kindRaft streamKind = 1
	kindRPC  streamKind = 2
)

// hello opens a connection; the answer has From and UUID of the accepting node, and Code.
type hello struct {
	ClusterID string `json:"c,omitempty"` // empty: belongs to none yet
	From      string `json:"f"`
	UUID      string `json:"u"`
	To        string `json:"t,omitempty"` // empty: whoever listens there
	LogEnd    uint64 `json:"l,omitempty"` // the last entry of From's log; see checkUUID
	Code      code   `json:"e,omitempty"`
	Message   string `json:"m,omitempty"`
}

func writeHello(w io.Writer, kind streamKind, h hello) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(body) > maxHelloBytes {
		return fmt.Errorf("%w: hello of %d bytes", ErrInvalid, len(body))
	}
	msg := append([]byte{helloMagic, helloVersion, byte(kind)}, binary.BigEndian.AppendUint16(nil, uint16(len(body)))...)
	_, err = w.Write(append(msg, body...))
	return err
}

func readHello(r io.Reader) (kind streamKind, h hello, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, h, fmt.Errorf("read hello: %w", err)
	}
	size := binary.BigEndian.Uint16(head[3:])
	if head[0] != helloMagic || head[1] != helloVersion || size > maxHelloBytes {
		return 0, h, fmt.Errorf("%w: hello begins with % x: not a bourse server of this version", ErrInvalid, head)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, h, fmt.Errorf("read hello: %w", err)
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return 0, h, fmt.Errorf("%w: hello: %w", ErrInvalid, err)
	}
	return streamKind(head[2]), h, nil
}

// identityCheck is asked about every peer. Called on many goroutines.
type identityCheck interface {
	// self is this node's id, data directory and exchange (empty: none yet).
	self() (nodeID, uuid, clusterID string)
	// joining: no leader has let this node in yet. It takes no part in Raft: an empty directory in the
	// place of a lost one would vote for whoever lacks what the lost one had acknowledged.
	joining() bool
	// logEnd is the last entry of this node's log.
	logEnd() uint64
	// knownUUID is the data directory that the group registered for the node; "" where unknown, or
	// where this state does not contain all entries up to end.
	knownUUID(nodeID string, end uint64) string
}

// dialer opens connections to other nodes.
type dialer struct {
	creds *credentials // nil: plain TCP
	who   identityCheck
	// open makes the connection beneath; nil: TCP.
	open func(ctx context.Context, addr string) (net.Conn, error)
}

// dial opens a connection to the node id (any where empty) at addr.
func (d *dialer) dial(ctx context.Context, kind streamKind, id, addr string) (net.Conn, hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	open := d.open
	if open == nil {
		var tcp net.Dialer
		open = func(ctx context.Context, addr string) (net.Conn, error) { return tcp.DialContext(ctx, "tcp", addr) }
	}
	conn, err := open(ctx, addr)
	if err != nil {
		return nil, hello{}, err
	}
	if d.creds != nil {
		conn = tls.Client(conn, d.creds.client(id))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	peer, err := d.introduce(conn, kind, id)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, hello{}, fmt.Errorf("open connection to node %s at %s: %w", orAny(id), addr, err)
	}
	return conn, peer, nil
}

func orAny(id string) string {
	if id == "" {
		return "(any)"
	}
	return id
}

func (d *dialer) introduce(conn net.Conn, kind streamKind, id string) (hello, error) {
	self, uuid, cluster := d.who.self()
	if err := writeHello(conn, kind, hello{ClusterID: cluster, From: self, UUID: uuid, To: id, LogEnd: d.who.logEnd()}); err != nil {
		return hello{}, err
	}
	_, peer, err := readHello(conn)
	if err != nil {
		return hello{}, err
	}
	if peer.Code != codeOK {
		return hello{}, &remoteError{node: peer.From, code: peer.Code, message: peer.Message}
	}
	if c, ok := conn.(*tls.Conn); ok {
		if err := speaksFor(c.ConnectionState().PeerCertificates[0], peer.From); err != nil {
			return hello{}, err
		}
	}
	if kind == kindRaft {
		if err := d.checkUUID(peer); err != nil {
			return hello{}, err
		}
	}
	return peer, nil
}

// checkUUID refuses a data directory other than the one the group knows for the node. Only for Raft
// streams: whoever joins is judged by the leader, whose state is current. Whose own state is behind
// the other's log does not judge: the node may have been replaced since, and may lead by now.
func (d *dialer) checkUUID(peer hello) error {
	if known := d.who.knownUUID(peer.From, peer.LogEnd); known != "" && known != peer.UUID {
		return fmt.Errorf("%w", &identityError{nodeID: peer.From, known: known, got: peer.UUID})
	}
	return nil
}

// accept answers the hello of an incoming connection; an error is a refusal, already told to the peer, or a fault.
func (d *dialer) accept(conn net.Conn) (kind streamKind, peer hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return 0, peer, err
	}
	kind, peer, err = readHello(conn)
	if err != nil {
		return 0, peer, err
	}
	refusal := d.judge(conn, kind, peer)
	self, uuid, cluster := d.who.self()
	answer := hello{ClusterID: cluster, From: self, UUID: uuid, To: peer.From, LogEnd: d.who.logEnd(), Code: codeOf(refusal)}
	if refusal != nil {
		answer.Message = refusal.Error()
	}
	if err := writeHello(conn, kind, answer); err != nil {
		return 0, peer, err
	}
	if refusal != nil {
		return 0, peer, refusal
	}
	return kind, peer, conn.SetDeadline(time.Time{})
}

func (d *dialer) judge(conn net.Conn, kind streamKind, peer hello) error {
	self, _, cluster := d.who.self()
	if c, ok := conn.(*tls.Conn); ok {
		if err := speaksFor(c.ConnectionState().PeerCertificates[0], peer.From); err != nil {
			return err
		}
	}
	if peer.To != "" && peer.To != self {
		return fmt.Errorf("%w: node %q was dialed, this is %q", ErrUnknownNode, peer.To, self)
	}
	if peer.From == self {
		return fmt.Errorf("%w: node %q dials itself, or two nodes have this id", ErrInvalid, self)
	}
	switch kind {
	case kindRaft:
		if err := sameCluster(peer, self, cluster); err != nil {
			return err
		}
		if d.who.joining() {
			return fmt.Errorf("%w: node %q has not been let in yet", ErrForbidden, self)
		}
		return d.checkUUID(peer)
	case kindRPC: // judged call by call: nodes without an exchange may ask for one
		return nil
	default:
		return fmt.Errorf("%w: stream kind %d", ErrInvalid, kind)
	}
}

func sameCluster(peer hello, self, cluster string) error {
	if peer.ClusterID == "" || peer.ClusterID != cluster {
		return fmt.Errorf("%w: node %s belongs to exchange %q, node %s to %q",
			ErrWrongCluster, peer.From, peer.ClusterID, self, cluster)
	}
	return nil
}
