package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// stateFor returns the state for a read: linearizable without a resourceVersion, local for "0",
// else at least as new as it says.
func (s *Storage) stateFor(ctx context.Context, resourceVersion string) (*fsm.State, error) {
	if resourceVersion == "" {
		return s.current(ctx)
	}
	revision, err := s.ParseResourceVersion(resourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	return s.notOlder(ctx, revision)
}

// Get copies one object to objPtr.
func (s *Storage) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	rowKey, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	state, err := s.stateFor(ctx, opts.ResourceVersion)
	if err != nil {
		return err
	}
	row := state.Row(rowKey)
	switch {
	case row != nil:
		return s.setObject(ctx, row, objPtr)
	case opts.IgnoreNotFound:
		return runtime.SetZeroValue(objPtr)
	default:
		return storage.NewKeyNotFoundError(rowKey, int64(state.Revision()))
	}
}

// GetList appends what the predicate selects to listObj. Items share maps and slices with the
// state: they are for reading. Pages are of one revision; the history must reach back to it.
func (s *Storage) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	prefix, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	exact, startKey, err := storage.ValidateListOptions(prefix, s, opts)
	if err != nil {
		return err
	}
	page, err := s.rowsFor(ctx, prefix, exact, startKey, opts)
	if err != nil {
		return err
	}
	itemsPtr, err := meta.GetItemsPtr(listObj)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(itemsPtr).Elem()
	lastKey, more, err := s.appendSelected(ctx, page.rows, opts.Predicate, items)
	if err != nil {
		return err
	}
	token, remaining, err := storage.PrepareContinueToken(lastKey, prefix, int64(page.revision), int64(len(page.rows)), more, opts)
	if err != nil {
		return err
	}
	return s.UpdateList(listObj, uint64(page.revision), token, remaining)
}

// rowsOf are the rows that a list looks at, and the revision they are of.
type rowsOf struct {
	rows     []*fsm.Row
	revision fsm.Revision
}

func (s *Storage) rowsFor(ctx context.Context, prefix string, exact int64, startKey string, opts storage.ListOptions) (rowsOf, error) {
	var rows []*fsm.Row
	if exact <= 0 {
		version := opts.ResourceVersion
		if startKey != "" {
			version = "" // a token without a revision goes on at the present one
		}
		state, err := s.stateFor(ctx, version)
		if err != nil {
			return rowsOf{}, err
		}
		for row := range scan(state, prefix, opts.Recursive) {
			rows = append(rows, row)
		}
		return rowsOf{from(rows, startKey), state.Revision()}, nil
	}
	if _, err := s.notOlder(ctx, uint64(exact)); err != nil {
		return rowsOf{}, err
	}
	rows, err := s.db.rowsAt(prefix, opts.Recursive, fsm.Revision(exact))
	if errors.Is(err, ErrCompacted) {
		if startKey != "" {
			return rowsOf{}, continueExpired(startKey, prefix)
		}
		return rowsOf{}, expired("list")
	}
	return rowsOf{from(rows, startKey), fsm.Revision(exact)}, err
}

// from drops what comes before startKey.
func from(rows []*fsm.Row, startKey string) []*fsm.Row {
	for i, row := range rows {
		if row.Key >= startKey {
			return rows[i:]
		}
	}
	return nil
}

// appendSelected appends to items until the limit is reached. lastKey is the last one looked at;
// more says that rows are left.
func (s *Storage) appendSelected(ctx context.Context, rows []*fsm.Row, predicate storage.SelectionPredicate, items reflect.Value) (lastKey string, more bool, err error) {
	f, selective := formOf(ctx), !predicate.Empty()
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0)) // an empty list is [], not null
	}
	if !selective {
		items.Grow(growth(len(rows), predicate.Limit))
	}
	for _, row := range rows {
		if predicate.Limit > 0 && int64(items.Len()) >= predicate.Limit {
			return lastKey, true, nil
		}
		lastKey = row.Key
		if selective && s.kind.ruledOut(row, &predicate) {
			continue
		}
		object, err := s.kind.object(row, f)
		if err != nil {
			return "", false, corrupt(row.Key, err)
		}
		if selective {
			if matches, err := predicate.Matches(object.object); err != nil || !matches {
				continue
			}
		}
		items.Set(reflect.Append(items, reflect.ValueOf(object.object).Elem()))
	}
	return lastKey, false, nil
}

func growth(rows int, limit int64) int {
	if limit > 0 {
		return int(min(int64(rows), limit))
	}
	return rows
}
