package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"k8s.io/utils/clock"
)

// Config of a Node. Start from DefaultConfig.
type Config struct {
	// NodeID is the node's identity: a DNS label, for ever bound to its data directory.
	NodeID string
	// DataDir is made where absent.
	DataDir string

	// RaftListen is host:port for Raft and the internal RPC; port 0 picks one.
	RaftListen string
	// RaftAdvertise is what other nodes dial; empty: the address listened on.
	RaftAdvertise string
	// GossipListen is host:port (TCP and UDP); empty: no gossip, which suits only a single node.
	GossipListen string
	// GossipAdvertise is what other nodes dial; empty: the address listened on.
	GossipAdvertise string
	// APIAddress is told to other nodes and operators; not used here.
	APIAddress string

	// Join lists gossip addresses of other nodes.
	Join []string
	// BootstrapExpect is how many empty nodes found an exchange together; 0: join an existing one.
	BootstrapExpect int

	// TLS of the Raft listener; unused with Insecure.
	TLS TLSFiles
	// GossipKey is 16, 24 or 32 bytes; nil only with Insecure.
	GossipKey []byte
	// Insecure speaks plain TCP, on loopback addresses only.
	Insecure bool

	// Raft timing. See PROFILES in DESIGN.md.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration // 0: HeartbeatTimeout
	LeaseTimeout     time.Duration // 0: HeartbeatTimeout
	CommitTimeout    time.Duration
	// TransportTimeout bounds one exchange between two Raft nodes.
	TransportTimeout time.Duration
	// SnapshotThreshold entries, looked at every SnapshotInterval, make a snapshot; TrailingLogs stay.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
	RetainSnapshots   int

	// TakeOverTimeout bounds the barrier of a new leader.
	TakeOverTimeout time.Duration
	// TickInterval between two entries that carry nothing but time.
	TickInterval time.Duration
	// StewardInterval between two looks of the leader at the members' clocks, hashes and progress.
	StewardInterval time.Duration
	// JoinInterval between two tries to find, found or join an exchange.
	JoinInterval time.Duration
	// LeaderWait is how long a request waits for a leader.
	LeaderWait time.Duration
	// WriteTimeout bounds a write or read index whose context has no deadline.
	WriteTimeout time.Duration

	// Logger; nil: none.
	Logger hclog.Logger
	// Clock; nil: the machine's.
	Clock clock.Clock
	// Fatal is told, once, that this process must end with the code. It may be called on any
	// goroutine, Raft's included, and should not return before long; the node serves no more.
	Fatal func(exitCode int, err error)
}

// TLSFiles names PEM files. The certificate has O "bourse:server" and the node id as common name
// or DNS name, and is good for both ends of a connection.
type TLSFiles struct {
	CAFile, CertFile, KeyFile string
}

// DefaultConfig suits processes of their own on one LAN.
func DefaultConfig() Config {
	return Config{
		HeartbeatTimeout:  200 * time.Millisecond,
		CommitTimeout:     25 * time.Millisecond,
		TransportTimeout:  3 * time.Second,
		SnapshotThreshold: 8192,
		SnapshotInterval:  30 * time.Second,
		TrailingLogs:      8192,
		RetainSnapshots:   2,
		TakeOverTimeout:   10 * time.Second,
		TickInterval:      10 * time.Second,
		StewardInterval:   2 * time.Second,
		JoinInterval:      300 * time.Millisecond,
		LeaderWait:        5 * time.Second,
		WriteTimeout:      30 * time.Second,
	}
}

var nodeIDPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Validate reports all faults at once.
func (c *Config) Validate() error {
	v := &faults{}
	v.check(len(c.NodeID) <= maxNodeID && nodeIDPattern.MatchString(c.NodeID),
		"node-id %q: must be a DNS label of at most %d characters, such as n1", c.NodeID, maxNodeID)
	v.check(c.DataDir != "", "data-dir: must be set")
	c.validateAddresses(v)
	v.check(c.BootstrapExpect >= 0 && c.BootstrapExpect <= maxBootstrapExpect,
		"bootstrap-expect %d: must be between 0 and %d", c.BootstrapExpect, maxBootstrapExpect)
	v.check(c.BootstrapExpect != 1 || len(c.Join) == 0,
		"bootstrap-expect 1 founds an exchange of its own at once and can't be used with join: use 0 to join")
	v.check(c.BootstrapExpect == 1 || c.GossipListen != "",
		"gossip-listen: must be set unless bootstrap-expect is 1")
	switch {
	case c.Insecure:
		v.check(c.TLS == TLSFiles{}, "tls files are given, but insecure-dev is set: choose one")
	default:
		v.check(c.TLS.CAFile != "" && c.TLS.CertFile != "" && c.TLS.KeyFile != "",
			"tls: ca-file, cert-file and key-file must be set (or insecure-dev, on loopback)")
		v.check(c.GossipListen == "" || c.GossipKey != nil, "gossip-key: must be set (or insecure-dev, on loopback)")
	}
	switch len(c.GossipKey) {
	case 0, 16, 24, 32:
	default:
		v.check(false, "gossip-key: must have 16, 24 or 32 bytes, has %d", len(c.GossipKey))
	}
	c.validateTiming(v)
	return v.err()
}

func (c *Config) validateAddresses(v *faults) {
	for _, a := range []struct {
		name, listen, advertise string
		needed                  bool
	}{
		{"raft", c.RaftListen, c.RaftAdvertise, true},
		{"gossip", c.GossipListen, c.GossipAdvertise, false},
	} {
		if a.listen == "" {
			v.check(!a.needed, "%s-listen: must be set", a.name)
			continue
		}
		ip, ok := v.address(a.name+"-listen", a.listen)
		if !ok {
			continue
		}
		v.check(!c.Insecure || ip != nil && ip.IsLoopback(),
			"%s-listen %q: insecure-dev works only on a loopback IP address", a.name, a.listen)
		if a.advertise == "" {
			v.check(ip != nil && !ip.IsUnspecified(),
				"%s-advertise: must be set where %s-listen %q is not a single IP address", a.name, a.name, a.listen)
			continue
		}
		advertised, ok := v.address(a.name+"-advertise", a.advertise)
		v.check(!ok || advertised == nil || !advertised.IsUnspecified(),
			"%s-advertise %q: must be an address that others can dial", a.name, a.advertise)
	}
	v.check(len(c.APIAddress) <= maxAddress, "API address: longer than %d bytes", maxAddress)
}

func (c *Config) validateTiming(v *faults) {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"transport timeout", c.TransportTimeout},
		{"take-over timeout", c.TakeOverTimeout},
		{"tick interval", c.TickInterval},
		{"steward interval", c.StewardInterval},
		{"join interval", c.JoinInterval},
		{"leader wait", c.LeaderWait},
		{"write timeout", c.WriteTimeout},
	} {
		v.check(d.value > 0, "%s %v: must be positive", d.name, d.value)
	}
	v.check(c.RetainSnapshots > 0, "retain-snapshots %d: must be positive", c.RetainSnapshots)
	v.check(c.SnapshotThreshold > 0, "snapshot-threshold: must be positive")
	if c.NodeID != "" {
		if err := raft.ValidateConfig(c.raftConfig()); err != nil {
			v.check(false, "raft: %v", err)
		}
	}
}

func (c *Config) raftConfig() *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.NodeID)
	r.HeartbeatTimeout = c.HeartbeatTimeout
	r.ElectionTimeout = cmp.Or(c.ElectionTimeout, c.HeartbeatTimeout)
	r.LeaderLeaseTimeout = cmp.Or(c.LeaseTimeout, c.HeartbeatTimeout)
	r.CommitTimeout = c.CommitTimeout
	r.SnapshotThreshold = c.SnapshotThreshold
	r.SnapshotInterval = c.SnapshotInterval
	r.TrailingLogs = c.TrailingLogs
	r.NoSnapshotRestoreOnStart = true // store.OpenDisk read and proved it
	r.NoLegacyTelemetry = true
	r.Logger = c.Logger
	return r
}

// faults collects what is wrong.
type faults struct{ list []error }

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		f.list = append(f.list, fmt.Errorf(format, args...))
	}
}

// address checks host:port; ip is nil where host is a name.
func (f *faults) address(name, value string) (ip net.IP, ok bool) {
	host, _, err := net.SplitHostPort(value)
	if err != nil || len(value) > maxAddress {
		f.check(false, "%s %q: must be host:port of at most %d bytes", name, value, maxAddress)
		return nil, false
	}
	if host == "" {
		return net.IPv4zero, true
	}
	return net.ParseIP(host), true
}

func (f *faults) err() error { return errors.Join(f.list...) }
