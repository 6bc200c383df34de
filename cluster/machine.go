package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// machine is raft.FSM over the DB. After the first error it applies nothing more: the state stays
// at the last entry that was right, until the process has ended.
type machine struct {
	db        *store.DB
	hashes    *hashLog
	committed func(index, term uint64) // before each entry is applied; must not block
	applied   func()                   // after each entry; must not block
	fatal     func(exitCode int, err error)
	logger    hclog.Logger

	broken atomic.Bool

	mu    sync.Mutex
	index uint64        // of the newest entry that Raft has handed over and is applied
	moved chan struct{} // closed when index moves; nil: nobody waits
}

var errBroken = errors.New("the state machine has stopped")

// Apply is called by Raft's FSM goroutine only.
func (m *machine) Apply(log *raft.Log) any {
	if m.broken.Load() {
		return errBroken
	}
	m.committed(log.Index, log.Term)
	results, err := m.db.Apply(log.Data)
	if err != nil {
		err = fmt.Errorf("log entry %d of term %d: %w", log.Index, log.Term, err)
		m.fail(exitCodeOf(err), err)
		return err
	}
	state := m.db.State()
	m.hashes.add(log.Index, state.Revision(), state.Hash())
	m.reached(log.Index)
	m.applied()
	return results
}

// StoreConfiguration implements raft.ConfigurationStore: with it, all entries of a term but its
// first two (nothing, and the barrier) are handed over, so reach need not know what the others are.
func (m *machine) StoreConfiguration(index uint64, _ raft.Configuration) { m.reached(index) }

func (m *machine) reached(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// reach returns once the entry at index is applied. (Raft's own AppliedIndex is of what was queued.)
func (m *machine) reach(index uint64, within time.Duration) error {
	var timeout <-chan time.Time
	for {
		m.mu.Lock()
		if m.index >= index {
			m.mu.Unlock()
			return nil
		}
		if m.moved == nil {
			m.moved = make(chan struct{})
		}
		moved := m.moved
		m.mu.Unlock()
		if timeout == nil {
			timer := time.NewTimer(within)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-moved:
		case <-timeout:
			return fmt.Errorf("log entry %d not applied within %v", index, within)
		}
	}
}

// exitCodeOf an error of fsm.
func exitCodeOf(err error) int {
	if errors.Is(err, fsm.ErrUnknownCommand) || errors.Is(err, fsm.ErrUnsupportedBehaviour) {
		return ExitUnknownCommand
	}
	return ExitCorrupt
}

func (m *machine) fail(exitCode int, err error) {
	m.broken.Store(true)
	m.fatal(exitCode, err)
}

// Snapshot blocks Apply; the state is immutable, so a pointer is enough.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.broken.Load() {
		return nil, errBroken
	}
	return &stateSnapshot{state: m.db.State(), fail: m.fail}, nil
}

// Restore installs a snapshot sent by the leader. Raft logs a failure and goes on with whatever
// there is: we end the process instead.
func (m *machine) Restore(source io.ReadCloser) error {
	defer func() {
		if err := source.Close(); err != nil { // read to its end by then, or refused for a better reason
			m.logger.Warn("installed snapshot could not be closed", "error", err)
		}
	}()
	if m.broken.Load() {
		return errBroken
	}
	state, err := fsm.ReadSnapshot(source)
	if err != nil {
		err = fmt.Errorf("install snapshot: %w", err)
		m.fail(ExitRestore, err)
		return err
	}
	m.db.Restore(state)
	m.logger.Info("snapshot installed", "revision", state.Revision())
	m.applied()
	return nil
}

// stateSnapshot writes beside Apply.
type stateSnapshot struct {
	state *fsm.State
	fail  func(exitCode int, err error)
}

// Persist re-hashes the whole state first: a snapshot must not preserve damage.
func (s *stateSnapshot) Persist(sink raft.SnapshotSink) error {
	if kept, anew := s.state.Hash(), s.state.FullHash(); kept != anew {
		err := fmt.Errorf("state at revision %d hashes to %s, kept is %s", s.state.Revision(), anew, kept)
		s.fail(ExitDiverged, err)
		return errors.Join(err, sink.Cancel())
	}
	if err := fsm.WriteSnapshot(sink, s.state); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release is raft's; nothing is held.
func (s *stateSnapshot) Release() {}

// hashMark is the state's hash after one log entry.
type hashMark struct {
	Index    uint64       `json:"index"`
	Revision fsm.Revision `json:"revision"`
	Hash     string       `json:"hash"`
}

// hashLog remembers the newest hashes and, at a coarser step, some older: see recentHashes.
type hashLog struct {
	mu     sync.Mutex
	recent [recentHashes]mark
	checks [hashCheckpoints]mark
}

type mark struct {
	index    uint64
	revision fsm.Revision
	hash     fsm.Hash
}

func (h *hashLog) add(index uint64, revision fsm.Revision, hash fsm.Hash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := mark{index, revision, hash}
	h.recent[index%recentHashes] = m
	if index%hashCheckpointEvery == 0 {
		h.checks[index/hashCheckpointEvery%hashCheckpoints] = m
	}
}

// marks returns what is remembered, in no order; an entry may occur twice.
func (h *hashLog) marks() []hashMark {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []hashMark
	for _, m := range append(h.recent[:], h.checks[:]...) {
		if m.index > 0 {
			list = append(list, hashMark{m.index, m.revision, m.hash.String()})
		}
	}
	return list
}

// at returns the hash after one entry, "" where it is not remembered.
func (h *hashLog) at(index uint64) string {
	for _, m := range h.marks() {
		if m.Index == index {
			return m.Hash
		}
	}
	return ""
}
