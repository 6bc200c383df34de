package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

func put(t *testing.T, leader *storetest.Leader, keys ...string) {
	t.Helper()
	for _, key := range keys {
		result, err := leader.Write(t.Context(), fsm.Txn{Writes: []fsm.Write{{Key: key, Body: []byte("{}")}}})
		require.NoError(t, err)
		require.Nil(t, result.Refusal)
	}
}

func awake(f *store.Follower) bool {
	select {
	case <-f.Wake():
		return true
	default:
		return false
	}
}

func keysOf(changes []fsm.Change) (keys []string) {
	for i := range changes {
		keys = append(keys, changes[i].Key())
	}
	return keys
}

func TestAChangeWakesOnlyWhomItConcerns(t *testing.T) {
	t.Parallel()
	db, leader := storetest.NewDB()
	prefixes := []string{"", "a/", "a/x/", "a/x/1", "a/x", "b/", "a/y/"}
	followers := map[string]*store.Follower{}
	for _, prefix := range prefixes {
		followers[prefix] = db.Follow(prefix)
		defer followers[prefix].Close()
	}
	put(t, leader, "a/x/1")
	for _, prefix := range prefixes {
		concerned := prefix == "" || prefix == "a/" || prefix == "a/x/" || prefix == "a/x/1"
		require.Equal(t, concerned, awake(followers[prefix]), "follower of %q", prefix)
		changes, revision, err := followers[prefix].Read()
		require.NoError(t, err)
		require.Equal(t, fsm.Revision(1), revision)
		require.Equal(t, concerned, len(changes) == 1, "follower of %q", prefix)
	}
}

func TestAQuietFollowerSurvivesAnyNumberOfChangesOfOthers(t *testing.T) {
	t.Parallel()
	db := store.NewSmallDB(fsm.New(), 10)
	leader := storetest.NewLeader(db)
	f := db.Follow("quiet/")
	defer f.Close()
	for i := range 100 {
		put(t, leader, fmt.Sprintf("loud/%d", i))
	}
	put(t, leader, "quiet/1")
	changes, revision, err := f.Read()
	require.NoError(t, err)
	require.Equal(t, []string{"quiet/1"}, keysOf(changes))
	require.Equal(t, fsm.Revision(101), revision)
}

func TestWhoFallsOutOfTheHistoryIsTold(t *testing.T) {
	t.Parallel()
	db := store.NewSmallDB(fsm.New(), 10)
	leader := storetest.NewLeader(db)
	f := db.Follow("a/")
	defer f.Close()
	for i := range 11 {
		put(t, leader, fmt.Sprintf("a/%d", i))
	}
	_, _, err := f.Read()
	require.ErrorIs(t, err, store.ErrCompacted)
	_, err = db.FollowFrom("a/", 0)
	require.ErrorIs(t, err, store.ErrCompacted)
	_, err = db.Changes(0)
	require.ErrorIs(t, err, store.ErrCompacted)

	changes, err := db.Changes(db.OldestRevision())
	require.NoError(t, err)
	require.Len(t, changes, 10)
	resumed, err := db.FollowFrom("a/", 8)
	require.NoError(t, err)
	defer resumed.Close()
	changes, _, err = resumed.Read()
	require.NoError(t, err)
	require.Equal(t, []string{"a/8", "a/9", "a/10"}, keysOf(changes))
}

func TestRestoreEndsFollowersAndLetsWaitersGo(t *testing.T) {
	t.Parallel()
	db, leader := storetest.NewDB()
	put(t, leader, "a/1", "a/2")
	other, ahead := storetest.NewDB()
	put(t, ahead, "a/1", "a/2", "a/3", "a/4")

	f := db.Follow("a/")
	defer f.Close()
	reached := make(chan error, 1)
	go func() {
		state, err := db.WaitFor(t.Context(), 4)
		if err == nil && state.Revision() < 4 {
			err = fmt.Errorf("state is at %d", state.Revision())
		}
		reached <- err
	}()
	db.Restore(other.State())
	require.NoError(t, <-reached)
	require.True(t, awake(f))
	_, _, err := f.Read()
	require.ErrorIs(t, err, store.ErrCompacted)
	require.Equal(t, fsm.Revision(4), db.OldestRevision())
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db, _ := storetest.NewDB()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := db.WaitFor(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnEntryThatCannotBeAppliedLeavesTheState(t *testing.T) {
	t.Parallel()
	db, leader := storetest.NewDB()
	put(t, leader, "a/1")
	_, err := db.Apply([]byte("no entry"))
	require.Error(t, err)
	require.Equal(t, fsm.Revision(1), db.State().Revision())
}
