package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	"github.com/bourse-dev/bourse/blueprint"
	"github.com/bourse-dev/bourse/store"
)

// Config is what New needs. All fields but TLS and Blueprints are required.
type Config struct {
	// Listener on which the API is served. Run closes it. Without TLS it must be a loopback one.
	Listener net.Listener
	// TLS of the API; nil: plain HTTP where everyone is an administrator (--insecure-dev).
	TLS *TLS

	DB     *store.DB
	Writer store.Writer
	Admin  Admin
	// Ready says why the API can't be served yet: this node has not caught up with what was
	// committed when it first heard a leader. Called on every request; it must not block.
	Ready func() error

	// Blueprints is how the blueprint room keeps them: what is told beforehand must come out so.
	Blueprints blueprint.Policy

	Logger hclog.Logger
	// Registry gets the server's metrics, and is what /metrics shows.
	Registry *prometheus.Registry
}

// TLS names PEM files. They are read again when they change, so that certificates can be renewed
// without a restart.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile signs client certificates; their subjects say who may do what.
	ClientCAFile string
}

// Admin is what the admin endpoints need of the Raft group. Every method but IsLeader acts on the
// leader, from any node. cluster.Node, or a thin adapter of it, implements it.
type Admin interface {
	// IsLeader says whether this node leads and its rooms run.
	IsLeader() bool
	Configuration(ctx context.Context) (adminv1.RaftConfiguration, error)
	// TransferLeadership to a member; empty: to the most up to date.
	TransferLeadership(ctx context.Context, to string) error
	RemovePeer(ctx context.Context, id string) error
	// Snapshot writes one, as `bourse snapshot inspect` reads it.
	Snapshot(ctx context.Context, w io.Writer) error
	StateHash(ctx context.Context) (adminv1.StateHash, error)
}

// Validate reports all faults at once.
func (c *Config) Validate() error {
	var faults []error
	need := func(ok bool, name string) {
		if !ok {
			faults = append(faults, fmt.Errorf("server: Config.%s is missing", name))
		}
	}
	need(c.Listener != nil, "Listener")
	need(c.DB != nil, "DB")
	need(c.Writer != nil, "Writer")
	need(c.Admin != nil, "Admin")
	need(c.Ready != nil, "Ready")
	need(c.Logger != nil, "Logger")
	need(c.Registry != nil, "Registry")
	if c.TLS == nil && c.Listener != nil && !isLoopback(c.Listener.Addr()) {
		faults = append(faults, fmt.Errorf("server: without TLS everyone is an administrator: %s is not a loopback address", c.Listener.Addr()))
	}
	return errors.Join(faults...)
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
