package main

import (
	"context"
	"io"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	"github.com/bourse-dev/bourse/cluster"
)

// admin gives the server's admin endpoints what the node knows, in their words.
type admin struct{ node *cluster.Node }

func (a admin) IsLeader() bool { return a.node.IsLeader() }

func (a admin) Configuration(ctx context.Context) (adminv1.RaftConfiguration, error) {
	status := a.node.Status(ctx)
	configuration := adminv1.RaftConfiguration{View: status.View, Term: status.Term, Servers: []adminv1.Server{}}
	for i := range status.Members {
		member := &status.Members[i]
		configuration.Servers = append(configuration.Servers, adminv1.Server{
			ID: member.ID, Address: member.Address, Suffrage: member.Suffrage, Leader: member.Leader,
			LastContactMs: member.LastContactMillis, Lag: member.Lag,
		})
	}
	return configuration, nil
}

func (a admin) TransferLeadership(ctx context.Context, to string) error {
	return a.node.TransferLeadership(ctx, to)
}

func (a admin) RemovePeer(ctx context.Context, id string) error { return a.node.RemovePeer(ctx, id) }

func (a admin) Snapshot(ctx context.Context, w io.Writer) error {
	_, err := a.node.Snapshot(ctx, w)
	return err
}

func (a admin) StateHash(ctx context.Context) (adminv1.StateHash, error) {
	if _, err := a.node.ReadIndex(ctx); err != nil {
		return adminv1.StateHash{}, err
	}
	state := a.node.DB().State()
	return adminv1.StateHash{Node: a.node.ID(), Revision: uint64(state.Revision()), Hash: state.Hash().String()}, nil
}
