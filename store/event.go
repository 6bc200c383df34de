package store

import (
	"strconv"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

const (
	// EventsPrefix of the rows that kubectl describe shows.
	EventsPrefix = "events/"
	// EventCounterBits of the number that ends an event's name: its time in milliseconds, then a counter.
	EventCounterBits = 12
	// maxEventSuffixBytes is ".", 16 hexadecimal digits.
	maxEventSuffixBytes = 17
)

// eventSpace makes an event's uid from its key: the same on whichever node asks.
var eventSpace = uuid.MustParse("6f0a4f52-8c0e-4b0e-9a53-2d1c5f0f8f11")

// Happening is what a leader-only room tells of an object, with the change itself.
type Happening struct {
	Room    string
	Of      corev1.ObjectReference // a namespaced one of our group
	Name    string                 // of the event, before the number
	Kind    string                 // Normal or Warning
	Reason  string
	Message string
	At      fsm.Millis
	Count   uint64 // tells events of one millisecond apart
}

// EventWrite is the event as a row. Where a row of that name exists already, nothing is written: an
// event is never worth a refusal. The room of reservations removes events, whoever wrote them.
func EventWrite(h *Happening) fsm.Write {
	number := uint64(h.At)<<EventCounterBits | h.Count&(1<<EventCounterBits-1)
	name := h.Name[:min(len(h.Name), broker.MaxNameBytes-maxEventSuffixBytes)] + "." + strconv.FormatUint(number, 16)
	key := EventsPrefix + h.Of.Namespace + "/" + name
	at := seconds(h.At)
	of := h.Of
	of.APIVersion = broker.SchemeGroupVersion.String()
	p, err := eventKind.encode(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: name, CreationTimestamp: at,
			UID: types.UID(uuid.NewSHA1(eventSpace, []byte(key)).String()),
		},
		InvolvedObject: of, Type: h.Kind, Reason: h.Reason, Count: 1,
		Message:        broker.Clip(h.Message, broker.MaxConditionMessageBytes),
		FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "bourse"},
		ReportingController: broker.GroupName + "/" + h.Room,
	}, nil)
	if err != nil {
		panic("store: an event of plain strings can't be encoded: " + err.Error())
	}
	return fsm.Write{Key: key, IfAbsent: true, Body: p.body}
}
