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
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Config is what New needs. All fields but TLS and Registries are required.
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

	// Plan says what the blueprint room would make of a blueprint that were stored as it is: its status
	// with the plan in it. Pure; called on any goroutine. nil: dry runs of blueprints plan nothing.
	Plan func(state *fsm.State, b *broker.Blueprint, now fsm.Millis) broker.BlueprintStatus
	// Registries that artifacts with coordinates lie in. May be empty.
	Registries broker.ArtifactRegistries

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
