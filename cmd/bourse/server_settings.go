package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse/blueprint"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// serverSettings is the one table of a broker node's options: its flags are also the keys of the
// configuration file, the environment variables, and docs/configuration.md.
type serverSettings struct {
	cluster       cluster.Config
	listen        string
	advertise     string
	gossipKeyFile string
	staleAfter    time.Duration
	blueprints    blueprint.Config
	backoff       struct{ min, max time.Duration }
	registries    map[string]string
	logs          logFlags
}

func newServerSettings(flags *pflag.FlagSet) *serverSettings {
	s := &serverSettings{cluster: cluster.DefaultConfig()}
	c := &s.cluster
	flags.StringVar(&c.NodeID, "node-id", "", "id of this broker node, a DNS label; bound to its data directory for ever")
	flags.StringVar(&c.DataDir, "data-dir", "", "directory of the node's state")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:7440", "address of the API")
	flags.StringVar(&s.advertise, "advertise", "", "address of the API as others reach it (default: listen)")
	flags.StringVar(&c.RaftListen, "raft-listen", "127.0.0.1:7441", "address of Raft and the internal RPC")
	flags.StringVar(&c.RaftAdvertise, "raft-advertise", "", "raft-listen as other nodes reach it (default: raft-listen)")
	flags.StringVar(&c.GossipListen, "gossip-listen", "127.0.0.1:7442", "address of gossip, TCP and UDP")
	flags.StringVar(&c.GossipAdvertise, "gossip-advertise", "", "gossip-listen as other nodes reach it (default: gossip-listen)")
	flags.StringSliceVar(&c.Join, "join", nil, "gossip addresses of other nodes")
	flags.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "how many empty nodes found an exchange together; 0: join an existing one")
	flags.StringVar(&c.TLS.CAFile, "tls-ca", "", "certificate of the exchange's authority")
	flags.StringVar(&c.TLS.CertFile, "tls-cert", "", "certificate of this node")
	flags.StringVar(&c.TLS.KeyFile, "tls-key", "", "private key of this node")
	flags.StringVar(&s.gossipKeyFile, "gossip-key-file", "", "key that encrypts gossip, from `bourse pki init`")
	flags.BoolVar(&c.Insecure, "insecure-dev", false, "no TLS and everybody is admin; on loopback addresses only")
	flags.DurationVar(&s.staleAfter, "stale-after", 90*time.Second, "how long an agent may be silent before its offer is Stale")
	s.blueprintFlags(flags)
	flags.DurationVar(&c.HeartbeatTimeout, "raft-heartbeat", c.HeartbeatTimeout, "how long a follower waits for its leader; use 1s across a WAN")
	flags.DurationVar(&c.ElectionTimeout, "raft-election", c.ElectionTimeout, "how long a candidate waits for votes, at least raft-heartbeat; 0: as long as that")
	flags.DurationVar(&c.LeaseTimeout, "raft-lease", c.LeaseTimeout, "how long a leader goes on without a majority, at most raft-heartbeat; 0: as long as that")
	flags.DurationVar(&c.CommitTimeout, "raft-commit", c.CommitTimeout, "how long followers may wait to hear of a commit")
	flags.Uint64Var(&c.SnapshotThreshold, "snapshot-threshold", c.SnapshotThreshold, "log entries between two snapshots")
	flags.DurationVar(&c.SnapshotInterval, "snapshot-interval", c.SnapshotInterval, "how often it is looked whether a snapshot is due")
	flags.Uint64Var(&c.TrailingLogs, "snapshot-trailing", c.TrailingLogs, "log entries kept behind a snapshot, for nodes that were away; one that lacks more is sent the snapshot")
	s.logs.flags(flags)
	return s
}

// blueprintFlags are those of the room that keeps blueprints.
func (s *serverSettings) blueprintFlags(flags *pflag.FlagSet) {
	b := &s.blueprints
	flags.DurationVar(&b.Resync, "blueprint-resync", blueprint.DefaultResync, "how often every blueprint is compared with what runs, though nothing happened")
	flags.DurationVar(&b.Timeout, "blueprint-timeout", blueprint.DefaultTimeout, "how long commands of a blueprint may be refused before it is Degraded")
	flags.DurationVar(&s.backoff.min, "blueprint-backoff", blueprint.DefaultBackoffMin, "pause before a failed slice is tried again; doubled with each try")
	flags.DurationVar(&s.backoff.max, "blueprint-backoff-max", blueprint.DefaultBackoffMax, "the longest such pause")
	flags.BoolVar(&b.Rebalance, "blueprint-rebalance", true, "let Aggressive blueprints move instances to better places")
	flags.StringToStringVar(&s.registries, "blueprint-registries", nil,
		"where artifacts written group:name:version lie, as com.example=registry.example.com/team; the group * is for all others")
}

// completeBlueprints turns the flags into what the room takes.
func (s *serverSettings) completeBlueprints() (faults []error) {
	b := &s.blueprints
	for name, d := range map[string]time.Duration{"blueprint-resync": b.Resync, "blueprint-timeout": b.Timeout, "blueprint-backoff": s.backoff.min} {
		if d < 100*time.Millisecond {
			faults = append(faults, fmt.Errorf("%s %s: must be at least 100ms", name, d))
		}
	}
	if s.backoff.max < s.backoff.min {
		faults = append(faults, fmt.Errorf("blueprint-backoff-max %s: must be at least blueprint-backoff", s.backoff.max))
	}
	b.Registries = s.registries
	if err := b.Registries.Check(); err != nil {
		faults = append(faults, fmt.Errorf("blueprint-registries: %w", err))
	}
	b.BackoffMin, b.BackoffMax = fsm.Millis(s.backoff.min.Milliseconds()), fsm.Millis(s.backoff.max.Milliseconds())
	return faults
}

// complete reads the files that settings name and reports all faults at once.
func (s *serverSettings) complete() error {
	var faults []error
	if host, _, err := net.SplitHostPort(s.listen); err != nil {
		faults = append(faults, fmt.Errorf("listen %q: %w", s.listen, err))
	} else if ip := net.ParseIP(host); s.cluster.Insecure && (ip == nil || !ip.IsLoopback()) {
		faults = append(faults, fmt.Errorf("listen %q: insecure-dev works only on a loopback IP address", s.listen))
	}
	if s.staleAfter < time.Second {
		faults = append(faults, fmt.Errorf("stale-after %s: must be at least 1s", s.staleAfter))
	}
	faults = append(faults, s.completeBlueprints()...)
	if s.gossipKeyFile != "" {
		key, err := readGossipKey(s.gossipKeyFile)
		if err != nil {
			faults = append(faults, err)
		}
		s.cluster.GossipKey = key
	}
	s.cluster.APIAddress = s.advertise
	if s.advertise == "" {
		s.cluster.APIAddress = s.listen
	}
	return errors.Join(append(faults, s.cluster.Validate())...)
}

func readGossipKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("gossip-key-file: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("gossip-key-file %s: not base64", path)
	}
	return key, nil
}
