package store

import (
	"bytes"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// verdict says what an attempt came to.
type verdict uint8

const (
	// verdictSettled: the leader has spoken, or nobody could be asked.
	verdictSettled verdict = iota
	// verdictLocal: decided on this node's state (a failed closure, nothing to change), which may
	// lag. It counts only once that state is proven current.
	verdictLocal
	// verdictConflict: the row was written meanwhile.
	verdictConflict
)

// settle runs attempt on this node's row of key until its outcome counts: again on a fresh row
// after a conflict, and once more on the current row after a verdict on one that was not current.
func (s *Storage) settle(ctx context.Context, key string, attempt func(*fsm.Row) (verdict, error)) error {
	row, current := s.db.State().Row(key), false
	for {
		v, err := attempt(row)
		switch {
		case v == verdictConflict:
			if ctx.Err() != nil {
				return APIError(context.Cause(ctx))
			}
			row, current = s.db.State().Row(key), false
		case v == verdictSettled || current:
			return err
		default:
			state, currentErr := s.current(ctx)
			if currentErr != nil {
				return currentErr
			}
			present := state.Row(key)
			if present == row {
				return err
			}
			row, current = present, true
		}
	}
}

// conflictOr tells a conflict from an answer.
func conflictOr(err error) (verdict, error) {
	if errors.Is(err, errRerun) || storage.IsExist(err) || storage.IsNotFound(err) {
		return verdictConflict, nil
	}
	return verdictSettled, err
}

// GuaranteedUpdate runs tryUpdate on the row's object and proposes what it changed, guarded on the
// parts it concerns. What changes nothing writes nothing. The suggestion is not needed: the local
// state is as near.
func (s *Storage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	rowKey, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	return s.settle(ctx, rowKey, func(row *fsm.Row) (verdict, error) {
		if row == nil && !ignoreNotFound {
			return verdictLocal, storage.NewKeyNotFoundError(rowKey, 0)
		}
		var meta storage.ResponseMeta
		before, object := runtime.Object(nil), s.kind.New()
		if row != nil {
			// A patch can test and copy what it is shown, so it is shown what its user may see.
			o, err := s.kind.object(row, formOf(ctx))
			if err != nil {
				return verdictLocal, corrupt(rowKey, err)
			}
			before, object = o.object, o.GetObject()
			meta.ResourceVersion = uint64(row.Revision())
		}
		if err := preconditions.Check(rowKey, object); err != nil {
			return verdictLocal, err
		}
		after, _, err := tryUpdate(object, meta)
		if err != nil {
			return verdictLocal, err
		}
		if row == nil {
			return conflictOr(s.create(ctx, rowKey, after, destination))
		}
		txn, err := s.updateTxn(row, before, after)
		if err != nil {
			return verdictSettled, s.invalid(rowKey, err)
		}
		if len(txn.Writes) == 0 {
			return verdictLocal, s.setObject(ctx, row, destination)
		}
		txn.Guards = append(txn.Guards, rowGuard(row, preconditions)...)
		revision, err := s.write(ctx, rowKey, txn)
		if err != nil {
			return conflictOr(err)
		}
		return verdictSettled, s.written(ctx, rowKey, revision, destination)
	})
}

// updateTxn writes the parts in which after differs from what is stored, each guarded by its
// revision: an annotation never conflicts with a grant, nor a heartbeat with a price.
func (s *Storage) updateTxn(row *fsm.Row, before, after runtime.Object) (fsm.Txn, error) {
	is, err := s.kind.encode(before, row)
	if err != nil {
		return fsm.Txn{}, err
	}
	want, err := s.kind.encode(after, row)
	if err != nil {
		return fsm.Txn{}, err
	}
	txn, write := s.newTxn(), fsm.Write{Key: row.Key}
	bodyChanged := !bytes.Equal(want.body, row.Body)
	factsChanged := !bytes.Equal(want.facts, is.facts)
	if bodyChanged {
		write.Body, write.Terms = want.body, want.terms
		write.SpecChanged = s.kind.specChanged(before, after)
		txn.Guards = append(txn.Guards, fsm.GuardBody(row))
	}
	if write.SpecChanged && s.kind.specGuardsLedger {
		txn.Guards = append(txn.Guards, fsm.GuardSpec(row), fsm.GuardLedger(row))
	}
	if factsChanged {
		write.Facts = want.facts
		txn.Guards = append(txn.Guards, fsm.GuardFacts(row))
	}
	if bodyChanged || factsChanged {
		txn.Writes = []fsm.Write{write}
	}
	return txn, nil
}

// rowGuard holds a precondition on the resourceVersion until the write is applied.
func rowGuard(row *fsm.Row, preconditions *storage.Preconditions) []fsm.Guard {
	if preconditions == nil || preconditions.ResourceVersion == nil {
		return nil
	}
	return []fsm.Guard{fsm.GuardRow(row)}
}

// Delete removes the row; what it holds ends in the same Apply. out is the object as it last was,
// with the revision of its deletion.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions,
) error {
	rowKey, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	return s.settle(ctx, rowKey, func(row *fsm.Row) (verdict, error) {
		if row == nil {
			return verdictLocal, storage.NewKeyNotFoundError(rowKey, 0)
		}
		if err := s.mayDelete(ctx, row, preconditions, validateDeletion, opts); err != nil {
			return verdictLocal, err
		}
		txn := s.newTxn()
		txn.Guards = append(rowGuard(row, preconditions), fsm.GuardBody(row))
		txn.Writes = []fsm.Write{{Key: rowKey, Delete: true}}
		if s.deletionGuardsLedger(row) {
			txn.Guards = append(txn.Guards, fsm.GuardLedger(row))
		}
		revision, err := s.write(ctx, rowKey, txn)
		if err != nil {
			return conflictOr(err)
		}
		if opts.ExpectTransformOrDecodeError {
			return verdictSettled, nil // there is no object to return
		}
		return verdictSettled, s.deleted(ctx, row, revision, out)
	})
}

func (s *Storage) deletionGuardsLedger(row *fsm.Row) bool {
	if s.kind.deletionGuardsLedger == nil {
		return false
	}
	o, err := s.kind.object(row, formFull)
	return err == nil && s.kind.deletionGuardsLedger(o.object)
}

func (s *Storage) mayDelete(ctx context.Context, row *fsm.Row, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, opts storage.DeleteOptions,
) error {
	o, err := s.kind.object(row, formFull)
	if opts.ExpectTransformOrDecodeError {
		if err == nil {
			return storage.NewInvalidObjError(row.Key, "the object can be read; delete it without ignoring read errors")
		}
		return validateDeletion(ctx, nil)
	}
	if err != nil {
		return corrupt(row.Key, err)
	}
	object := o.GetObject()
	if err := preconditions.Check(row.Key, object); err != nil {
		return err
	}
	return validateDeletion(ctx, object)
}

// deleted sets out to the object as it last was.
func (s *Storage) deleted(ctx context.Context, row *fsm.Row, revision fsm.Revision, out runtime.Object) error {
	c := s.db.changeAt(row.Key, revision)
	if c == nil || c.Before == nil {
		c = &change{Change: fsm.Change{Revision: revision, Before: row}} // it fell out of the history
	}
	o, err := s.kind.gone(c, formOf(ctx))
	if err != nil {
		return corrupt(row.Key, err)
	}
	return copyTo(out, o.GetObject())
}
