package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// handler answers /livez, /readyz and /metrics. Ready means that the member cluster is known. It
// doesn't ask whether the exchange is: an outage there changes nothing in the member cluster,
// not even this pod's readiness.
func handler(ledger *ledger, registry prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ledger.synced:
			answer(w, http.StatusOK, "ok\n")
		default:
			answer(w, http.StatusServiceUnavailable, "nodes and pods of the member cluster are not listed yet\n")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that went away needs no answer
}

// serve answers on the listener until ctx ends, then lets open requests finish for stopWithin.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderWithin}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("metrics listener %s: %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		if server.Shutdown(stopping) != nil {
			return server.Close()
		}
		return nil
	})
	return group.Wait()
}
