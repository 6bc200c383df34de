package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse/fsm"
)

// FuzzObjects: no body and no facts make a row's object panic. What reads as an object is written so
// that it reads the same, and then always as the same bytes.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"ml","namespace":"rome"},"spec":{"requesterID":"rome","requestedResources":{"cpu":"4"}}}`),
		[]byte(`{"conditions":[{"type":"Peered","status":"True"}]}`), []byte("x"))
	f.Add([]byte(`{"metadata":{"name":"paris-adv"},"spec":{"clusterID":"paris","cost":{"currency":"EUR","cpu":"0.5"}}}`), []byte(nil), []byte(nil))
	f.Add([]byte(`{"metadata":{"name":"e","namespace":"rome"},"reason":"Reserved"}`), []byte(nil), []byte(nil))
	f.Add([]byte(`null`), []byte(`null`), []byte{0})
	f.Fuzz(func(t *testing.T, body, facts, decision []byte) {
		ledger := &fsm.Ledger{Phase: PhaseReserved, Target: "paris", Fence: 3, Decision: decision}
		for _, kind := range []*Kind{ReservationKind(), AdvertisementKind(), NamespaceKind(), EventKind()} {
			rowOf := func(body []byte) *fsm.Row {
				return &fsm.Row{
					Key: kind.prefix() + "rome/x", Created: 1, Body: body, BodyRev: 1, SpecRev: 1, Facts: facts, FactsRev: 2,
					Ledger: ledger, LedgerRev: 3, Account: &fsm.Account{},
				}
			}
			row := rowOf(body)
			object, err := kind.object(row, formFull)
			if err != nil {
				continue
			}
			if _, err := kind.object(row, formReduced); err != nil {
				t.Fatalf("%s: whole, but not reduced: %v", kind.Resource, err)
			}
			once, err := kind.encode(object.object.DeepCopyObject(), row)
			if err != nil {
				continue // conditions that only a hostile agent could have written
			}
			next := rowOf(once.body)
			again, err := kind.compose(next)
			if err != nil {
				t.Fatalf("%s: written as %s, which is refused: %v", kind.Resource, once.body, err)
			}
			twice, err := kind.encode(again, next)
			if err != nil || !bytes.Equal(once.body, twice.body) {
				t.Fatalf("%s: written as %s, then as %s (%v)", kind.Resource, once.body, twice.body, err)
			}
		}
	})
}

// FuzzIdentity: whatever lies in the file, it is the node's own identity or a typed refusal.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"format":1,"nodeID":"n1","uuid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","clusterID":"x"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, IdentityFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		id, isNew, err := loadIdentity(dir, "n1")
		switch {
		case err == nil && (id.NodeID != "n1" || id.UUID == "" || isNew):
			t.Fatalf("%+v", id)
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrIdentity):
			t.Fatalf("untyped error %v", err)
		}
	})
}
