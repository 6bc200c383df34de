package agent

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// reach knows whether the last request to one API server, of all that are watched through it,
// got through. All methods may be called from any goroutine.
type reach struct {
	server string // for the log: what is reached
	clock  clock.Clock
	logger hclog.Logger
	up     prometheus.Gauge

	mu   sync.Mutex
	lost map[string]time.Time // by what was asked for; only what fails
}

func newReach(server string, clock clock.Clock, logger hclog.Logger, up prometheus.Gauge) *reach {
	return &reach{server: server, clock: clock, logger: logger, up: up, lost: map[string]time.Time{}}
}

// lostSince is when the oldest failure that still stands began; zero: all is well.
func (r *reach) lostSince() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var oldest time.Time
	for _, since := range r.lost {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest
}

func (r *reach) note(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was := r.lost[what]
	switch {
	case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		delete(r.lost, what)
		if was {
			r.logger.Info("watching again", "server", r.server, "what", what)
		}
	case !was:
		r.lost[what] = r.clock.Now()
		r.logger.Warn("cannot watch: trying on", "server", r.server, "what", what, "error", err)
	}
	if len(r.lost) == 0 {
		r.up.Set(1)
	} else {
		r.up.Set(0)
	}
}

// noting returns lw with each outcome noted.
func (r *reach) noting(what string, lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContextFunc(ctx, options)
			r.note(ctx, what, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := lw.WatchFuncWithContext(ctx, options)
			// A server without streaming lists refuses them; the reflector then lists, and that counts.
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				r.note(ctx, what, err)
			}
			return stream, err
		},
	}
}

// follow keeps store in step with what lw lists and watches until ctx ends: it resumes by
// resourceVersion, lists again on 410, and tries for ever. example is one object of the type.
// client says whether it can stream lists.
func (r *reach) follow(ctx context.Context, what string, client any, lw *cache.ListWatch, example runtime.Object, store cache.ReflectorStore) {
	noisy := funcr.New(func(prefix, args string) { r.logger.Debug("client-go", "from", prefix, "says", args) }, funcr.Options{})
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(r.noting(what, lw), client), example, store,
		cache.ReflectorOptions{
			Logger:  &noisy,
			Name:    what,
			Backoff: &wait.Backoff{Duration: backoffBase / 2, Cap: backoffCap, Steps: 16, Factor: 2, Jitter: 1},
		})
	reflector.RunWithContext(klog.NewContext(ctx, noisy))
}
