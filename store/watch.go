package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/bourse-dev/bourse/fsm"
)

// Watch sends what happens to the rows that the predicate selects. From a revision it is local and
// needs no leader; without one it starts at a read index. A revision that the leader has not
// reached is refused with 410; one older than the history gets 410 as its only event.
func (s *Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	prefix, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	revision, err := s.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	switch _, err := s.stateFor(ctx, opts.ResourceVersion); {
	case storage.IsTooLargeResourceVersion(err):
		// A revision of another history: what the client knows is worth nothing here, so it must list anew.
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %d is in the future of this exchange", revision))
	case err != nil:
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{
		storage: s, form: formOf(ctx), prefix: prefix, recursive: opts.Recursive, predicate: opts.Predicate,
		result: make(chan watch.Event, watchBuffer), cancel: cancel,
	}
	sendInitial := opts.SendInitialEvents
	switch {
	case sendInitial != nil && *sendInitial, sendInitial == nil && revision == 0:
		w.initial, w.follower = s.db.followState(prefix)
		w.initialBookmark = sendInitial != nil && opts.Predicate.AllowWatchBookmarks
	case revision == 0:
		w.follower = s.db.Follow(prefix)
	default:
		// A nil follower: the history does not reach back.
		if w.follower, err = s.db.FollowFrom(prefix, fsm.Revision(revision)); err != nil && !errors.Is(err, ErrCompacted) {
			cancel()
			return nil, err
		}
	}
	s.db.counters.watches.Add(1)
	go w.run(ctx)
	return w, nil
}

// watcher is one open watch. Its goroutine ends with the context of the request, by Stop, or when
// the client has fallen out of the history.
type watcher struct {
	storage   *Storage
	form      form
	prefix    string
	recursive bool
	predicate storage.SelectionPredicate
	follower  *Follower
	result    chan watch.Event
	cancel    context.CancelFunc

	initial         *fsm.State // to be sent first; nil: nothing is
	initialBookmark bool
}

// Stop ends the watch; events that wait are still delivered.
func (w *watcher) Stop() { w.cancel() }

// ResultChan is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer w.cancel()
	defer w.storage.db.counters.watches.Add(-1)
	if w.follower != nil {
		defer w.follower.Close()
	}
	switch err := w.stream(ctx); {
	case ctx.Err() != nil:
	case errors.Is(err, ErrCompacted):
		w.storage.db.counters.overruns.Add(1)
		w.send(ctx, watch.Error, statusOf(expired("watch")))
	case err != nil:
		w.send(ctx, watch.Error, statusOf(apierrors.NewInternalError(err)))
	}
}

// stream returns when the watch must end.
func (w *watcher) stream(ctx context.Context) error {
	err := w.sendInitial(ctx)
	utilflowcontrol.WatchInitialized(ctx)
	if err != nil {
		return err
	}
	if w.follower == nil {
		return ErrCompacted
	}
	timer := time.NewTimer(untilBookmark(ctx))
	defer timer.Stop()
	bookmark := timer.C
	if !w.predicate.AllowWatchBookmarks {
		bookmark = nil // never
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.follower.Wake():
			if _, err := w.sendChanges(ctx); err != nil {
				return err
			}
		case <-bookmark:
			if err := w.sendBookmark(ctx); err != nil {
				return err
			}
			timer.Reset(untilBookmark(ctx))
		}
	}
}

func (w *watcher) sendInitial(ctx context.Context) error {
	if w.initial == nil {
		return nil
	}
	revision := w.initial.Revision()
	for row := range scan(w.initial, w.prefix, w.recursive) {
		selected, err := w.selects(row)
		if err != nil {
			return err
		}
		if !selected {
			continue
		}
		object, err := w.storage.kind.object(row, w.form)
		if err != nil {
			return err
		}
		if !w.send(ctx, watch.Added, object) {
			return ctx.Err()
		}
	}
	w.initial = nil // the state may be large and soon old
	if !w.initialBookmark {
		return nil
	}
	bookmark := w.bookmark(revision)
	if err := storage.AnnotateInitialEventsEndBookmark(bookmark); err != nil {
		return err
	}
	w.send(ctx, watch.Bookmark, bookmark)
	return ctx.Err()
}

// sendChanges sends one batch and returns the revision up to which everything is sent.
func (w *watcher) sendChanges(ctx context.Context) (fsm.Revision, error) {
	changes, revision, err := w.follower.read()
	if err != nil {
		return 0, err
	}
	for _, c := range changes {
		eventType, object, err := w.event(c)
		if err != nil {
			return 0, err
		}
		if object != nil && !w.send(ctx, eventType, object) {
			return 0, ctx.Err()
		}
	}
	return revision, nil
}

// sendBookmark first sends what is new: the bookmark says that nothing before it is missing.
func (w *watcher) sendBookmark(ctx context.Context) error {
	revision, err := w.sendChanges(ctx)
	if err != nil {
		return err
	}
	w.send(ctx, watch.Bookmark, w.bookmark(revision))
	return ctx.Err()
}

func (w *watcher) bookmark(revision fsm.Revision) runtime.Object {
	object := w.storage.kind.New()
	setRevision(object, revision)
	return object
}

// event is what a change means under the selector: an object that enters it is added, one that
// leaves it is deleted, as it last matched. nil: nothing.
func (w *watcher) event(c *change) (watch.EventType, runtime.Object, error) {
	before, err := w.selects(c.Before)
	if err != nil {
		return "", nil, err
	}
	after, err := w.selects(c.After)
	if err != nil {
		return "", nil, err
	}
	var object *shared
	eventType := watch.Modified
	switch {
	case after:
		object, err = w.storage.kind.after(c, w.form)
		if !before {
			eventType = watch.Added
		}
	case before:
		object, err = w.storage.kind.gone(c, w.form)
		eventType = watch.Deleted
	default:
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return eventType, object, nil
}

// selects says whether the watcher is to see the row. It decodes as few rows as it can.
func (w *watcher) selects(row *fsm.Row) (bool, error) {
	switch {
	case row == nil || !within(w.prefix, w.recursive, row.Key):
		return false, nil
	case w.predicate.Empty():
		return true, nil
	case w.storage.kind.ruledOut(row, &w.predicate):
		return false, nil
	}
	object, err := w.storage.kind.object(row, w.form)
	if err != nil {
		return false, err
	}
	return w.predicate.Matches(object.object)
}

// send returns false when the watch has ended.
func (w *watcher) send(ctx context.Context, eventType watch.EventType, object runtime.Object) bool {
	select {
	case w.result <- watch.Event{Type: eventType, Object: object}:
		w.storage.db.counters.events.Add(1)
		return true
	case <-ctx.Done():
		return false
	}
}

// untilBookmark: the next interval, or shortly before the request's deadline.
func untilBookmark(ctx context.Context) time.Duration {
	wait := bookmarkInterval
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline) - bookmarkBeforeEnd; left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	errors.As(err, &status)
	s := status.Status()
	return &s
}
