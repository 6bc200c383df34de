package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const batchCount = 8 // even ones are atomic

// What is counted beside the operations.
const (
	batchHeld  = "atomic batch held"
	piecesHeld = "held in several pieces"
)

func batchPath(namespace, name string) string {
	return apiPath + "/namespaces/" + namespace + "/reservationbatches" + strings.TrimSuffix("/"+name, "/")
}

// wireBatch is what is read of a batch.
type wireBatch struct {
	Spec struct {
		Atomic bool `json:"atomic"`
	} `json:"spec"`
	Status broker.ReservationBatchStatus `json:"status"`
}

// batch creates one, extends or deletes it. Its reservations are in the history as all others are.
func (w *worker) batch(ctx context.Context) {
	i := w.rng.IntN(batchCount)
	namespace, name, atomic := fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("batch%d", i), i%2 == 0
	switch w.rng.IntN(6) {
	case 0:
		w.ask(ctx, "delete a batch", request{method: http.MethodDelete, path: batchPath(namespace, name)})
	case 1:
		w.judgeBatch(w.ask(ctx, "extend a batch", request{
			method: http.MethodPatch, path: batchPath(namespace, name), contentType: mergePatch,
			body: fmt.Appendf(nil, `{"spec":{"duration":"%dms"}}`, 4000+w.rng.IntN(4000)),
		}))
	default:
		r := request{method: http.MethodPost, path: batchPath(namespace, ""), contentType: jsonBody, body: w.batchBody(name, atomic)}
		for range 3 { // the name makes it idempotent: after an unknown outcome the same is asked for again
			a := w.ask(ctx, "create a batch", r)
			w.judgeBatch(a)
			if !a.unknown() || ctx.Err() != nil {
				return
			}
			w.ops.add("retry after an unknown outcome")
		}
	}
}

// batchBody names items as partsOf reads them: "2of3".
func (w *worker) batchBody(name string, atomic bool) []byte {
	count := 2 + w.rng.IntN(3)
	items, lasting := make([]string, count), fmt.Sprintf(`"duration":"%dms","ttlSecondsAfterFinished":%d`, 1000+w.rng.IntN(3000), 1+w.rng.IntN(3))
	for i := range items {
		own := ""
		if !atomic {
			own = fmt.Sprintf(`,%s,"priority":%d`, lasting, w.rng.IntN(3))
		}
		items[i] = fmt.Sprintf(`{"name":"%dof%d","spec":{"requesterID":"chaos","requestedResources":{"cpu":"%dm","memory":"1Gi"}%s}}`,
			i+1, count, 500+100*w.rng.IntN(40), own)
	}
	more := `"ttlSecondsAfterFinished":2`
	if atomic {
		more = `"atomic":true,` + lasting
	}
	return fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"ReservationBatch","metadata":{"name":%q},"spec":{%s,"items":[%s]}}`,
		broker.GroupName, name, more, strings.Join(items, ","))
}

// judgeBatch: an answer says of an atomic batch that all or none of it is held, and of any that all is decided.
func (w *worker) judgeBatch(a *answer) {
	if !a.ok() {
		return
	}
	var b wireBatch
	if err := json.Unmarshal(a.body, &b); err != nil {
		w.check(fmt.Errorf("%w: a batch: %w", errViolated, err))
		return
	}
	c := b.Status.Counts
	if c.Items == 0 || int(c.Items) != len(b.Status.Results) || b.Spec.Atomic && c.Reserved != 0 && c.Reserved != c.Items {
		w.check(fmt.Errorf("%w: a batch was answered %.600s", errViolated, a.body))
	}
	if b.Spec.Atomic && c.Reserved > 0 {
		w.ops.add(batchHeld)
	}
}

// partsOf says how many parts an atomic batch has, by the name of one of them.
func partsOf(item string) (parts int) {
	var n int
	at := strings.LastIndexByte(item, '-')
	if _, err := fmt.Sscanf(item[at+1:], "%dof%d", &n, &parts); err != nil {
		return 0
	}
	return parts
}
