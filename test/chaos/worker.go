package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// worker is one client that does one thing after another.
type worker struct {
	*run
	id  int
	rng *rand.Rand
}

// duty is one kind of operation and how often it is done, of all together.
type duty struct {
	name  string
	share int
	do    func(*worker, context.Context)
}

var duties = []duty{
	{"get, any age", 400, func(w *worker, ctx context.Context) { w.get(ctx, "0") }},
	{"get, linearizable", 220, func(w *worker, ctx context.Context) { w.get(ctx, "") }},
	{"get, not older", 80, func(w *worker, ctx context.Context) { w.get(ctx, strconv.FormatUint(w.told.Load(), 10)) }},
	{"get advertisement", 60, (*worker).getAdvertisement},
	{"list, any age", 10, func(w *worker, ctx context.Context) { w.list(ctx, history.Reservations, "0") }},
	{"list, linearizable", 10, func(w *worker, ctx context.Context) { w.list(ctx, history.Reservations, "") }},
	{"list, not older", 5, func(w *worker, ctx context.Context) {
		w.list(ctx, history.Reservations, strconv.FormatUint(w.told.Load(), 10))
	}},
	{"list advertisements", 5, func(w *worker, ctx context.Context) { w.list(ctx, history.Advertisements, "") }},
	{"create", 90, func(w *worker, ctx context.Context) { w.create(ctx, w.objects.any(w.rng)) }},
	{"delete", 60, func(w *worker, ctx context.Context) { w.delete(ctx, w.objects.any(w.rng)) }},
	{"extend", 45, func(w *worker, ctx context.Context) { w.extend(ctx, w.objects.any(w.rng)) }},
	{"dry-run", 15, (*worker).dryRun},
	{"terms", 1, (*worker).terms},
	{"blueprint", 3, (*worker).blueprint},
	{"batch", 20, (*worker).batch},
}

// localDuties need no leader: whoever has only these goes on while there is none.
var localDuties = []duty{
	{"get, any age", 19, func(w *worker, ctx context.Context) { w.get(ctx, "0") }},
	{"list, any age", 1, func(w *worker, ctx context.Context) { w.list(ctx, history.Reservations, "0") }},
}

// work until ctx ends.
func (w *worker) work(ctx context.Context, pace *rate.Limiter, duties []duty) {
	total := 0
	for _, d := range duties {
		total += d.share
	}
	for pace.Wait(ctx) == nil {
		n := w.rng.IntN(total)
		for _, d := range duties {
			if n -= d.share; n < 0 {
				w.gate.RLock()
				if ctx.Err() == nil {
					d.do(w, ctx)
				}
				w.gate.RUnlock()
				break
			}
		}
	}
}

// ask one node. Where the run ends meanwhile the answer is unknown.
func (w *worker) ask(ctx context.Context, kind string, r request) *answer {
	a := w.client.do(ctx, w.client.reach(w.rng), r)
	w.ops.add(kind)
	switch {
	case a.ok():
	case a.code == 0:
		w.failures.add(kind + ": no answer")
	default:
		w.failures.add(fmt.Sprintf("%s: %d %s", kind, a.code, a.reason))
	}
	return a
}

// read decodes an object that was read, and has it judged. since is 0 for a read of any age.
func (w *worker) read(kind history.Kind, a *answer, since uint64) (row history.Row, ok bool) {
	row, err := decode(kind, a.body, false)
	if err != nil {
		w.check(fmt.Errorf("%w: %w", errViolated, err))
		return row, false
	}
	w.tell(row.Rev)
	w.check(w.history.Read(row, since))
	return row, true
}

// aged is what a read of that resourceVersion is called and asks for, and how new what it gives must be.
func (w *worker) aged(verb, rv string) (kind, query string, since uint64) {
	switch rv {
	case "":
		return verb + ", linearizable", "", w.told.Load()
	case "0":
		return verb + ", any age", version("0"), 0
	default:
		since, _ = strconv.ParseUint(rv, 10, 64) // it is ours
		return verb + ", not older", version(rv), since
	}
}

func (w *worker) get(ctx context.Context, rv string) {
	o := w.objects.any(w.rng)
	kind, query, since := w.aged("get", rv)
	call := w.since()
	a := w.ask(ctx, kind, get(reservationPath(o.namespace(), o.name()), query))
	op := history.Op{Client: w.id, Key: o.key(), Action: history.Get, Call: call, Return: w.since()}
	switch {
	case a.ok():
		row, ok := w.read(history.Reservations, a, since)
		if !ok {
			return
		}
		op.Value = row.Body.(history.Reservation).Op
	case a.code == http.StatusNotFound:
	default:
		return
	}
	if rv == "" && o.use == plain {
		w.registers.Add(op)
	}
}

func (w *worker) getAdvertisement(ctx context.Context) {
	since := w.told.Load()
	if a := w.ask(ctx, "get advertisement", get(advertisementPath(clusterName(w.rng.IntN(clusterCount))), "")); a.ok() {
		w.read(history.Advertisements, a, since)
	}
}

func (w *worker) list(ctx context.Context, kind history.Kind, rv string) {
	path, prefix := apiPath+"/"+kind.String(), ""
	if namespace := w.rng.IntN(namespaces + 1); kind == history.Reservations && namespace < namespaces {
		prefix = fmt.Sprintf("ns%d/", namespace)
		path = reservationPath(strings.TrimSuffix(prefix, "/"), "")
	}
	what, query, since := w.aged("list", rv)
	if kind == history.Advertisements {
		what = "list advertisements"
	}
	a := w.ask(ctx, what, get(path, query))
	if !a.ok() {
		return
	}
	rev, rows, err := decodeList(kind, a.body)
	if err != nil {
		w.check(fmt.Errorf("%w: %w", errViolated, err))
		return
	}
	w.tell(rev)
	w.check(w.history.Listed(kind, prefix, rev, since, rows))
}

func (w *worker) dryRun(ctx context.Context) {
	o := w.objects.any(w.rng)
	what := w.wanted(o)
	a := w.ask(ctx, "dry-run", request{
		method: http.MethodPost, path: reservationPath(o.namespace(), ""), query: "dryRun=All", contentType: jsonBody, body: what.body(),
	})
	w.check(w.history.Refused(what.op))
	if a.code == http.StatusBadRequest || a.code == http.StatusUnprocessableEntity {
		w.check(fmt.Errorf("%w: a dry-run was answered %s", errViolated, a))
	}
}

// lastSpan makes each extension longer than all before.
var lastSpan atomic.Int64

// wanted is a request for the object.
func (w *worker) wanted(o object) asks {
	a := asks{
		name: o.name(), op: w.newOp(),
		amounts: history.Amounts{CPUMilli: 500 + 100*w.rng.Int64N(50), MemoryBytes: (1 + w.rng.Int64N(8)) << 30},
	}
	switch o.use {
	case plain:
		a.duration = "1h"
	case lease, inPieces:
		a.duration = fmt.Sprintf("%dms", 1000+w.rng.IntN(3000))
		a.retentionSeconds = 1 + w.rng.IntN(3)
		if a.split = o.use == inPieces; a.split {
			a.amounts.CPUMilli *= 4
		}
	case waiter:
		a.wait = fmt.Sprintf("%dms", 500+w.rng.IntN(5000))
		a.retentionSeconds = 1 + w.rng.IntN(3)
	}
	return a
}

// create, as kubectl apply and its user would: after an outcome that is unknown they look, and ask again.
func (w *worker) create(ctx context.Context, o object) {
	for try := 0; try < 3 && ctx.Err() == nil; try++ {
		if !w.createOnce(ctx, o) {
			return
		}
		w.ops.add("retry after an unknown outcome")
	}
}

// createOnce says whether its outcome is unknown.
func (w *worker) createOnce(ctx context.Context, o object) (unknown bool) {
	what, since, call := w.wanted(o), w.told.Load(), w.since()
	a := w.ask(ctx, "create", request{
		method: http.MethodPost, path: reservationPath(o.namespace(), ""), contentType: jsonBody, body: what.body(),
	})
	op := history.Op{Client: w.id, Key: o.key(), Action: history.Create, Value: what.op, Call: call, Return: w.since()}
	switch {
	case a.ok():
		row, ok := w.wrote(history.Reservations, a, what.op, since)
		if !ok {
			return false
		}
		if body := row.Body.(history.Reservation); body.Phase == history.Failed {
			w.ops.add("refused for lack of capacity")
		} else if body.Pieces > 1 {
			w.ops.add(piecesHeld)
		}
	case a.unknown():
		op.Outcome = history.Unknown
	default:
		if a.code == http.StatusConflict && a.reason == "AlreadyExists" {
			op.Outcome = history.Exists
		} else {
			op.Key = ""
		}
		w.refused(a, what.op)
	}
	w.record(o, op)
	return op.Outcome == history.Unknown
}

// refused: the exchange said that nothing was changed.
func (w *worker) refused(a *answer, op string) {
	w.check(w.history.Refused(op))
	switch a.code {
	case http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusUnprocessableEntity:
	default:
		w.check(fmt.Errorf("%w: an operation was answered %s", errViolated, a))
	}
}

func (w *worker) record(o object, op history.Op) {
	if op.Outcome == history.Unknown {
		w.ops.add("unknown outcome")
	}
	if o.use == plain && op.Key != "" {
		w.registers.Add(op)
	}
}

// wrote decodes what a write was answered and has it judged.
func (w *worker) wrote(kind history.Kind, a *answer, op string, since uint64) (row history.Row, ok bool) {
	row, err := decode(kind, a.body, false)
	if err == nil && opOf(row) != op {
		err = fmt.Errorf("operation %s was answered with the object of another: %+v", op, row)
	}
	if err != nil {
		w.check(fmt.Errorf("%w: %w", errViolated, err))
		return row, false
	}
	w.tell(row.Rev)
	w.check(w.history.Wrote(row, since))
	return row, true
}

func opOf(row history.Row) string {
	if r, ok := row.Body.(history.Reservation); ok {
		return r.Op
	}
	return row.Body.(history.Advertisement).Op
}

// extend asks for a longer duration, longer than any before on plain objects.
func (w *worker) extend(ctx context.Context, o object) {
	duration := fmt.Sprintf("%dms", 4000+w.rng.IntN(4000))
	if o.use == plain {
		duration = (time.Hour + time.Duration(lastSpan.Add(1))*time.Second).String()
	}
	name, since, call := w.newOp(), w.told.Load(), w.since()
	a := w.ask(ctx, "extend", request{
		method: http.MethodPatch, path: reservationPath(o.namespace(), o.name()), contentType: mergePatch,
		body: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"duration":%q}}`, opAnnotation, name, duration),
	})
	op := history.Op{Client: w.id, Key: o.key(), Action: history.Write, Value: name, Call: call, Return: w.since()}
	switch {
	case a.ok():
		if _, ok := w.wrote(history.Reservations, a, name, since); !ok {
			return
		}
	case a.unknown():
		op.Outcome = history.Unknown
	default:
		switch a.code {
		case http.StatusNotFound:
			op.Outcome = history.Missing
		case http.StatusUnprocessableEntity: // it has ended, or others have made it longer
			op.Outcome = history.Exists
		default:
			op.Key = ""
		}
		w.refused(a, name)
	}
	w.record(o, op)
}

func (w *worker) delete(ctx context.Context, o object) {
	since, call := w.told.Load(), w.since()
	a := w.ask(ctx, "delete", request{method: http.MethodDelete, path: reservationPath(o.namespace(), o.name())})
	op := history.Op{Client: w.id, Key: o.key(), Action: history.Delete, Call: call, Return: w.since()}
	switch {
	case a.ok():
		uid, err := deletedUID(a.body)
		if err != nil {
			w.check(fmt.Errorf("%w: %w", errViolated, err))
			return
		}
		w.check(w.history.Deleted(uid, since))
	case a.unknown():
		op.Outcome = history.Unknown
	case a.code == http.StatusNotFound:
		op.Outcome = history.Missing
	default:
		op.Key = ""
	}
	w.record(o, op)
}
