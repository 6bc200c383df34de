package store

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// Kind says how rows of one resource become objects and objects become rows. Immutable.
type Kind struct {
	// Resource qualified by its group. Rows have keys "<resource>/...", whatever the group.
	Resource schema.GroupResource
	// Namespaced: creating an object creates its namespace where there is none.
	Namespaced bool
	// New returns an empty object.
	New func() runtime.Object

	// encode returns what of the object is stored. It may not change the object. The row is the
	// present one, nil at creation.
	encode func(runtime.Object, *fsm.Row) (parts, error)
	// compose puts the parts of a row together, but for the resourceVersion. It may not keep or
	// change the row.
	compose func(*fsm.Row) (runtime.Object, error)
	// reduce removes, in place, what agents may not see. nil: they see everything.
	reduce func(runtime.Object)
	// specChanged compares two objects of the kind.
	specChanged func(before, after runtime.Object) bool
	// createdInSteps: a creation is answered with the object as it last was, not as its first command left it.
	createdInSteps bool
	// specGuardsLedger: what may become of the spec depends on the ledger part.
	specGuardsLedger bool
	// stored says of a field that selectors ask for whether a row may have the value, without decoding the row: agents
	// ask for their own among everybody's.
	stored map[string]func(row *fsm.Row, value string) bool
	// deletionGuardsLedger: others end with the object, so a leader room decides its deletion. It
	// knows one by the guard on the ledger part. nil: never.
	deletionGuardsLedger func(runtime.Object) bool
}

// parts is what of an object is stored in its row.
type parts struct {
	body  []byte
	facts []byte // nil: the kind keeps none
	terms *fsm.Terms
}

// Reduce takes from an object that is the caller's own what agents may not see.
func (k *Kind) Reduce(object runtime.Object) {
	if k.reduce != nil {
		k.reduce(object)
	}
}

// prefix of the kind's row keys.
func (k *Kind) prefix() string { return k.Resource.Resource + "/" }

// rowObjects is what is derived from one row: the row's memo. Who holds one form keeps both; who holds the object alone,
// neither.
type rowObjects struct {
	err  error
	full shared

	reduceOnce sync.Once
	reduced    shared
}

// of returns the row's objects. Every reader of a row comes through here.
func (k *Kind) of(row *fsm.Row) *rowObjects {
	return fsm.Memo(row, func() *rowObjects {
		object, err := k.compose(row)
		if err != nil {
			return &rowObjects{err: fmt.Errorf("row %s at revision %d: %w", row.Key, row.Revision(), err)}
		}
		setRevision(object, row.Revision())
		return &rowObjects{full: shared{object: object}}
	})
}

// object returns the row's object in one of its forms. It is shared: not to be changed.
func (k *Kind) object(row *fsm.Row, f form) (*shared, error) {
	return k.of(row).in(f, k)
}

func (o *rowObjects) in(f form, k *Kind) (*shared, error) {
	if o.err != nil {
		return nil, o.err
	}
	if f == formFull || k.reduce == nil {
		return &o.full, nil
	}
	o.reduceOnce.Do(func() {
		object := o.full.object.DeepCopyObject()
		k.reduce(object)
		o.reduced.object = object
	})
	return &o.reduced, nil
}

// objectOf is the object of a row, shared: not to be changed. nil where the row is nil or its body is
// none that this package wrote.
func objectOf[T runtime.Object](k *Kind, row *fsm.Row) (object T) {
	if row == nil {
		return object
	}
	o, err := k.object(row, formFull)
	if err != nil {
		return object
	}
	return o.object.(T)
}

// ruledOut says that a row can't match, before it is decoded.
func (k *Kind) ruledOut(row *fsm.Row, predicate *storage.SelectionPredicate) bool {
	if predicate.Field == nil {
		return false
	}
	for field, may := range k.stored {
		if value, exact := predicate.Field.RequiresExactMatch(field); exact && !may(row, value) {
			return true
		}
	}
	return false
}

// inBody is for fields that hold cluster IDs: JSON writes them as they are.
func inBody(row *fsm.Row, value string) bool { return bytes.Contains(row.Body, []byte(value)) }

// after is the object that a change left. The change keeps it: it is decoded and encoded once for all who follow.
func (k *Kind) after(c *change, f form) (*shared, error) {
	objects := c.after.Load()
	if objects == nil {
		objects = k.of(c.After)
		c.after.Store(objects)
	}
	return objects.in(f, k)
}

// goneObjects are the forms of an object that was deleted or left a selector, made once for each
// change: the object as it last was, with the revision of the change.
type goneObjects struct {
	mu    sync.Mutex
	forms [2]*shared
}

func (k *Kind) gone(c *change, f form) (*shared, error) {
	last, err := k.object(c.Before, f)
	if err != nil {
		return nil, err
	}
	if k.reduce == nil {
		f = formFull
	}
	c.gone.mu.Lock()
	defer c.gone.mu.Unlock()
	if c.gone.forms[f] == nil {
		object := last.object.DeepCopyObject()
		setRevision(object, c.Revision)
		c.gone.forms[f] = &shared{object: object}
	}
	return c.gone.forms[f], nil
}

func setRevision(object runtime.Object, revision fsm.Revision) {
	object.(metav1.ObjectMetaAccessor).GetObjectMeta().SetResourceVersion(strconv.FormatUint(uint64(revision), 10))
}
