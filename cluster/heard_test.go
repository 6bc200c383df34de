package cluster

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestOnlyWhatIsSentAfterTheQuestionProvesLeadership(t *testing.T) {
	t.Parallel()
	voters := []raft.Server{raftServer("n1"), raftServer("n2"), raftServer("n3"), {ID: "n4", Suffrage: raft.Nonvoter}}
	var asked uint64
	var h *heard
	m := &messages{}
	send := func(id raft.ServerID, term uint64, answer func(*raft.AppendEntriesResponse) error) {
		m.answer = answer
		_ = h.AppendEntries(id, "", &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{}) // it may be lost
	}
	took := func(r *raft.AppendEntriesResponse) error { r.Success = true; return nil }
	askedBeforeTheAnswer := func(r *raft.AppendEntriesResponse) error {
		asked = h.now()
		return took(r)
	}
	for name, c := range map[string]struct {
		happens func()
		proven  bool
	}{
		"one of two took it":             {func() { asked = h.now(); send("n2", 3, took) }, true},
		"it was sent before":             {func() { send("n2", 3, took); asked = h.now() }, false},
		"it was under way":               {func() { send("n2", 3, askedBeforeTheAnswer) }, false},
		"it was under way, then another": {func() { send("n2", 3, askedBeforeTheAnswer); send("n3", 3, took) }, true},
		"it has no vote":                 {func() { asked = h.now(); send("n4", 3, took) }, false},
		"it was of an earlier term":      {func() { asked = h.now(); send("n2", 2, took) }, false},
		"it was refused":                 {func() { asked = h.now(); send("n2", 3, func(*raft.AppendEntriesResponse) error { return nil }) }, false},
		"it took it and the answer is lost": {func() {
			asked = h.now()
			send("n2", 3, func(r *raft.AppendEntriesResponse) error { return errors.Join(took(r), errors.New("lost")) })
		}, false},
	} {
		h = newHeard(m)
		c.happens()
		require.Equal(t, c.proven, h.majority(voters, "n1", asked, 3), name)
	}
	require.True(t, newHeard(m).majority(voters[:1], "n1", 0, 3), "a node alone")
}
