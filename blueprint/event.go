package blueprint

import (
	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// eventName ends the names of events of blueprints, and tells them from a reservation's of that name.
const eventName = ".blueprint"

// event tells of a new phase, or of a version that was taken back. False: the status says nothing new.
func event(row *fsm.Row, was *broker.Blueprint, is *broker.BlueprintStatus, now fsm.Millis) (fsm.Write, bool) {
	h := store.Happening{
		Room: "blueprint", Name: was.Name + eventName, At: now, Count: uint64(row.FactsRev),
		Of:     corev1.ObjectReference{Kind: "Blueprint", Namespace: was.Namespace, Name: was.Name, UID: was.UID},
		Kind:   corev1.EventTypeNormal,
		Reason: string(is.Phase), Message: is.Message,
	}
	if is.Phase == broker.BlueprintDegraded {
		h.Kind = corev1.EventTypeWarning
	}
	back := is.RolledBack
	switch {
	case back != nil && (was.Status.RolledBack == nil || was.Status.RolledBack.Generation != back.Generation):
		h.Reason = "RolledBack"
	case is.Phase == was.Status.Phase:
		return fsm.Write{}, false
	}
	return store.EventWrite(&h), true
}
