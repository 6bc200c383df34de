package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// watcher follows one kind, for the whole run. One that stays with its node lists anew where the
// node has forgotten what came since; one that roams asks the next node instead: together the
// roaming ones see everything.
type watcher struct {
	*run
	name   string
	kind   history.Kind
	home   int // the node; roaming ones begin there
	roams  bool
	cursor history.Cursor
	at     atomic.Uint64 // cursor.At, for others
	http   *http.Client

	resumed, relisted atomic.Int64
	forgotten         int // nodes in a row that have forgotten
}

// watchFor is how long one watch lasts; resuming is half of what is tested.
const watchFor = 20 * time.Second

var errForgotten = errors.New("410: the node has forgotten")

func newWatcher(r *run, kind history.Kind, home int, roams bool, start uint64) *watcher {
	w := &watcher{run: r, kind: kind, home: home, roams: roams, cursor: history.Cursor{Kind: kind, At: start}}
	w.name = fmt.Sprintf("watch of %s at n%d", kind, home+1)
	if roams {
		w.name = fmt.Sprintf("roaming watch %d of %s", home+1, kind)
	}
	w.at.Store(start)
	w.http = &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	return w
}

func (w *watcher) watch(ctx context.Context) {
	for ctx.Err() == nil {
		e := w.client.nodes[w.home]
		err := w.once(ctx, e)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errViolated):
			w.check(fmt.Errorf("%s: %w", w.name, err))
			return
		case errors.Is(err, errForgotten) && !w.roams:
			err = w.relist(ctx, e)
		case errors.Is(err, errForgotten):
			if w.forgotten++; w.forgotten > 20*nodeCount {
				w.check(fmt.Errorf("%w: %s: no node remembers revision %d", errViolated, w.name, w.cursor.At))
				return
			}
			w.home = (w.home + 1) % nodeCount
		case w.roams:
			w.home = (w.home + 1) % nodeCount
		}
		w.resumed.Add(1)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(50*time.Millisecond + rand.N(100*time.Millisecond)):
			}
		}
	}
}

type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// once is one watch, from where the last one ended.
func (w *watcher) once(ctx context.Context, e *endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor+patience)
	defer cancel()
	target := fmt.Sprintf("%s%s/%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%d",
		e.url, apiPath, w.kind, int(watchFor/time.Second), w.cursor.At)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := w.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode == http.StatusGone {
		return errForgotten
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	events := json.NewDecoder(bufio.NewReaderSize(response.Body, 64<<10))
	for {
		var event watchEvent
		if err := events.Decode(&event); err != nil {
			return err // the end, or half an event of a stream that broke
		}
		if err := w.event(event); err != nil {
			return err
		}
		w.forgotten = 0
		w.at.Store(w.cursor.At)
	}
}

func (w *watcher) event(event watchEvent) error {
	switch event.Type {
	case "ADDED", "MODIFIED", "DELETED":
		row, err := decode(w.kind, event.Object, event.Type == "DELETED")
		if err != nil {
			return fmt.Errorf("%w: %w", errViolated, err)
		}
		w.ops.add("watch event")
		if err := w.history.Saw(&w.cursor, row); err != nil {
			return err
		}
		w.tell(row.Rev)
		return nil
	case "BOOKMARK":
		var object struct {
			Metadata meta `json:"metadata"`
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return fmt.Errorf("%w: %w", errViolated, err)
		}
		rev, err := strconv.ParseUint(object.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: a bookmark: %w", errViolated, err)
		}
		return w.history.Bookmark(&w.cursor, rev)
	case "ERROR":
		var status struct {
			Code int `json:"code"`
		}
		if json.Unmarshal(event.Object, &status) == nil && status.Code == http.StatusGone {
			return errForgotten
		}
		return fmt.Errorf("watch: %s", event.Object)
	default:
		return fmt.Errorf("%w: a watch event of type %q", errViolated, event.Type)
	}
}

// relist begins anew at what the node has.
func (w *watcher) relist(ctx context.Context, e *endpoint) error {
	since := w.told.Load()
	a := w.client.do(ctx, e, get(apiPath+"/"+w.kind.String(), ""))
	if !a.ok() {
		return errors.New(a.String())
	}
	rev, rows, err := decodeList(w.kind, a.body)
	if err != nil {
		return fmt.Errorf("%w: %w", errViolated, err)
	}
	w.tell(rev)
	if err := w.history.Listed(w.kind, "", rev, since, rows); err != nil {
		w.check(err)
		return err
	}
	w.cursor.At = rev
	w.at.Store(rev)
	w.relisted.Add(1)
	return nil
}
