package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// Storage serves one resource of the state as storage.Interface. Safe for concurrent use; the same
// on the leader and everywhere else. TTLs are ignored: what ends by itself, a leader room ends.
type Storage struct {
	storage.APIObjectVersioner

	db     *DB
	writer Writer
	kind   *Kind
	// keyPrefix is "/<resource>/", as the keys of registry.Store begin.
	keyPrefix string
	sizes     atomic.Bool
}

var _ storage.Interface = (*Storage)(nil)

// NewStorage serves kind from db; writes and read points come from writer. registry.Store must be
// given the resource's plain name as ResourcePrefix.
func NewStorage(db *DB, writer Writer, kind *Kind) *Storage {
	return &Storage{db: db, writer: writer, kind: kind, keyPrefix: "/" + kind.prefix()}
}

// Versioner of resourceVersions.
func (s *Storage) Versioner() storage.Versioner { return s.APIObjectVersioner }

// rowKey turns a key of registry.Store ("/reservations/rome/x") into a row's ("reservations/rome/x"),
// or, for many rows, into a prefix that ends in a slash. The only place that knows both.
func (s *Storage) rowKey(key string, recursive bool) (string, error) {
	prepared, err := storage.PrepareKey(s.keyPrefix, key, recursive)
	return strings.TrimPrefix(prepared, "/"), err
}

// namespaceOf a row key "<resource>/<namespace>/<name>"; empty where it has none.
func namespaceOf(key string) string {
	if segments := strings.Split(key, "/"); len(segments) == 3 {
		return segments[1]
	}
	return ""
}

// Create proposes the object under the guard that there is none. What the leader's rooms add to it
// is in out.
func (s *Storage) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	row, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	if revision, err := s.ObjectResourceVersion(obj); err == nil && revision != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	return s.settle(ctx, row, func(*fsm.Row) (verdict, error) {
		err := s.create(ctx, row, obj, out)
		if errors.Is(err, errRerun) { // a room's guard, on another row
			return verdictConflict, nil
		}
		return verdictSettled, err
	})
}

// create is the one intent of all ways to create: POST, server-side apply, create-on-update.
func (s *Storage) create(ctx context.Context, key string, obj, out runtime.Object) error {
	p, err := s.kind.encode(obj, nil)
	if err != nil {
		return s.invalid(key, err)
	}
	txn := s.newTxn()
	txn.Guards = []fsm.Guard{{Key: key, Part: fsm.PartRow}}
	if namespace := namespaceOf(key); s.kind.Namespaced && namespace != "" {
		w, err := namespaceWrite(namespace, types.UID(uuid.NewString()), metav1.NewTime(time.Now()))
		if err != nil {
			return s.invalid(key, err)
		}
		txn.Writes = append(txn.Writes, w)
	}
	write := fsm.Write{Key: key, Body: p.body, SpecChanged: true, Terms: p.terms}
	if string(p.facts) != noFacts {
		write.Facts = p.facts
	}
	txn.Writes = append(txn.Writes, write)
	revision, err := s.write(ctx, key, txn)
	if err != nil {
		return err
	}
	return s.written(ctx, key, revision, out)
}

// newTxn has an id that no other request has.
func (s *Storage) newTxn() fsm.Txn {
	return fsm.Txn{ID: fsm.RequestID{Seen: s.db.State().Revision(), Random: rand.Uint64()}}
}

// write proposes txn for key. errRerun: decide again on a fresh state.
func (s *Storage) write(ctx context.Context, key string, txn fsm.Txn) (fsm.Revision, error) {
	result, err := s.writer.Write(ctx, txn)
	if err != nil {
		return 0, APIError(err)
	}
	if result.Refusal != nil {
		return 0, s.refusalError(key, result.Refusal)
	}
	return result.Revision, nil
}

// written sets out to the object as the write that ended at revision left it.
func (s *Storage) written(ctx context.Context, key string, revision fsm.Revision, out runtime.Object) error {
	if out == nil {
		return nil
	}
	var row *fsm.Row
	if c := s.db.changeAt(key, revision); c != nil {
		if row = c.After; c.Before == nil && s.kind.createdInSteps {
			row = s.db.newest(row)
		}
	} else if now := s.db.State().Row(key); now != nil && now.Revision() <= revision {
		row = now // a snapshot took the history's place, and nothing was written since
	}
	if row == nil {
		return errResultLost
	}
	return s.setObject(ctx, row, out)
}

// setObject copies the row's object to out.
func (s *Storage) setObject(ctx context.Context, row *fsm.Row, out runtime.Object) error {
	object, err := s.kind.object(row, formOf(ctx))
	if err != nil {
		return corrupt(row.Key, err)
	}
	return copyTo(out, object.GetObject())
}

// copyTo sets *out = *object. Both are pointers to the kind's type.
func copyTo(out, object runtime.Object) error {
	to, from := reflect.ValueOf(out), reflect.ValueOf(object)
	if to.Kind() != reflect.Pointer || to.IsNil() || to.Type() != from.Type() {
		return fmt.Errorf("can't read a %T into a %T", object, out)
	}
	to.Elem().Set(from.Elem())
	return nil
}

func corrupt(key string, err error) error { return storage.NewCorruptObjError(key, err) }

func (s *Storage) invalid(key string, err error) error {
	return storage.NewInvalidObjError(key, err.Error())
}

// current returns a state that contains every write acknowledged before the call.
func (s *Storage) current(ctx context.Context) (*fsm.State, error) {
	revision, err := s.writer.ReadIndex(ctx)
	if err != nil {
		return nil, APIError(err)
	}
	state, err := s.db.WaitFor(ctx, revision)
	return state, APIError(err)
}

// notOlder returns a state of at least revision. Where this node has not come to it, it asks the
// leader's: what that one has not reached either is refused, not waited for.
func (s *Storage) notOlder(ctx context.Context, revision uint64) (*fsm.State, error) {
	if state := s.db.State(); uint64(state.Revision()) >= revision {
		return state, nil
	}
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	if present := uint64(state.Revision()); present < revision {
		return nil, storage.NewTooLargeResourceVersionError(revision, present, retryAfterSeconds)
	}
	return state, nil
}

// Stats counts the objects; their size only once it was asked for.
func (s *Storage) Stats(context.Context) (storage.Stats, error) {
	var count, bytes int64
	for row := range s.db.State().Scan(s.kind.prefix()) {
		count++
		bytes += int64(len(row.Body))
	}
	stats := storage.Stats{ObjectCount: count}
	if count > 0 && s.sizes.Load() {
		stats.EstimatedAverageObjectSizeBytes = bytes / count
	}
	return stats, nil
}

// EnableResourceSizeEstimation makes Stats tell sizes. The keys are known here.
func (s *Storage) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if keys == nil {
		return errors.New("KeysFunc cannot be nil")
	}
	s.sizes.Store(true)
	return nil
}

// ReadinessCheck has nothing to check: the state is memory; whether this node may serve it is the server's question.
func (s *Storage) ReadinessCheck() error { return nil }

// RequestWatchProgress does nothing: it exists for a watch cache that waits for progress notices,
// and there is none.
func (s *Storage) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion is linearizable.
func (s *Storage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	state, err := s.current(ctx)
	if err != nil {
		return 0, err
	}
	return uint64(state.Revision()), nil
}

// CompactRevision is the newest revision whose past is gone.
func (s *Storage) CompactRevision() int64 { return int64(s.db.OldestRevision()) }
