package reservation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// eventWrite is one event of a reservation or batch as a row.
func (t *term) eventWrite(key string, object metav1.Object, kind, reason, message string) fsm.Write {
	t.eventCount++
	of := broker.KindReservation
	if isBatch(key) {
		of = broker.KindReservationBatch
	}
	namespace, name, _ := strings.Cut(pathOf(key), "/")
	return store.EventWrite(&store.Happening{
		Room: "reservation", Name: name,
		Of:   corev1.ObjectReference{Kind: of, Namespace: namespace, Name: object.GetName(), UID: object.GetUID()},
		Kind: kind, Reason: reason, Message: message, At: t.now, Count: t.eventCount,
	})
}

// eventIndex knows which events there are and which have to go, whichever room wrote them: an object is
// what the event's name speaks of.
type eventIndex struct {
	live     map[string]fsm.Millis // event key -> when it was
	byAge    []string              // oldest first; may name events that are gone
	byObject map[string][]string   // pathOf an object -> event keys, oldest first
	doomed   []string
	sweptAt  fsm.Millis
}

func newEventIndex(state *fsm.State, now fsm.Millis) *eventIndex {
	x := &eventIndex{live: map[string]fsm.Millis{}, byObject: map[string][]string{}}
	type dated struct {
		at  fsm.Millis
		key string
	}
	var rows []dated
	for row := range state.Scan(store.EventsPrefix) {
		rows = append(rows, dated{eventTime(row.Key, now), row.Key})
	}
	slices.SortStableFunc(rows, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	for _, row := range rows {
		x.add(row.key, now)
	}
	return x
}

// sync brings the index up to one event's row; nil: it is gone.
func (x *eventIndex) sync(key string, row *fsm.Row, now fsm.Millis) {
	switch {
	case !strings.HasPrefix(key, store.EventsPrefix):
	case row == nil:
		x.remove(key)
	default:
		x.add(key, now)
	}
}

func (x *eventIndex) add(key string, now fsm.Millis) {
	if _, known := x.live[key]; known {
		return
	}
	x.live[key] = eventTime(key, now)
	x.byAge = append(x.byAge, key)
	owner := ownerOf(key)
	of := append(x.byObject[owner], key)
	x.byObject[owner] = of
	if over := len(of) - maxEventsPerObject; over > 0 {
		x.doomed = append(x.doomed, of[:over]...)
	}
}

func (x *eventIndex) remove(key string) {
	if _, known := x.live[key]; !known {
		return
	}
	delete(x.live, key)
	owner := ownerOf(key)
	of := slices.DeleteFunc(x.byObject[owner], func(k string) bool { return k == key })
	if x.byObject[owner] = of; len(of) == 0 {
		delete(x.byObject, owner)
	}
}

// doomOwner marks all events of an object that is removed.
func (x *eventIndex) doomOwner(key string) {
	x.doomed = append(x.doomed, x.byObject[pathOf(key)]...)
}

// sweep marks what is too old or too much. nextSweep says when to call it again.
func (x *eventIndex) sweep(now fsm.Millis) {
	excess := len(x.live) - maxEvents
	due := now >= x.sweptAt+eventSweep
	for len(x.byAge) > 0 {
		at, known := x.live[x.byAge[0]]
		if known {
			if excess <= 0 && (!due || at+eventTTL > now) {
				break
			}
			x.doomed = append(x.doomed, x.byAge[0])
			excess--
		}
		x.byAge = x.byAge[1:]
	}
	if due {
		x.sweptAt = now
	}
}

func (x *eventIndex) nextSweep() fsm.Millis {
	if len(x.byAge) == 0 {
		return 0
	}
	return max(x.live[x.byAge[0]]+eventTTL, x.sweptAt+eventSweep)
}

// take returns up to n doomed events that are still there.
func (x *eventIndex) take(n int) []string {
	var keys []string
	for len(keys) < n && len(x.doomed) > 0 {
		key := x.doomed[0]
		x.doomed = x.doomed[1:]
		if _, known := x.live[key]; known && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// eventTime is in the event's name. An event that this room did not write counts from when it
// was first seen.
func eventTime(key string, now fsm.Millis) fsm.Millis {
	if number, ok := eventNumber(key); ok {
		if at := fsm.Millis(number >> store.EventCounterBits); at > 0 && at <= now {
			return at
		}
	}
	return now
}

func eventNumber(key string) (uint64, bool) {
	dot := strings.LastIndexByte(key, '.')
	if dot < 0 {
		return 0, false
	}
	number, err := strconv.ParseUint(key[dot+1:], 16, 64)
	return number, err == nil
}

// ownerOf is the path of the object that an event's name speaks of, as if it were a reservation: a batch
// and a reservation of one name share their events' limits. Names of other rooms' events end in a word
// that tells them apart.
func ownerOf(eventKey string) string {
	path := pathOf(eventKey)
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		path = path[:dot]
	}
	return path
}

// pathOf a key without its resource: "rome/ml-training".
func pathOf(key string) string {
	_, path, _ := strings.Cut(key, "/")
	return path
}
