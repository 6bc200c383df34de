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
	revision, err := a.node.ReadIndex(ctx)
	if err != nil {
		return adminv1.StateHash{}, err
	}
	hashes := a.node.StateHashes(ctx)
	out := adminv1.StateHash{Revision: uint64(revision), Index: hashes.Index, Equal: hashes.Equal, Members: []adminv1.MemberHash{}}
	for _, m := range hashes.Members {
		out.Members = append(out.Members, adminv1.MemberHash{ID: m.ID, Revision: uint64(m.Revision), Hash: m.Hash, Error: m.Error})
	}
	return out, nil
}
