package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// handlerChain is the library's default chain without what the exchange has no use for (priority
// and fairness, impersonation, audit, tracing, CORS, per-request goroutines): it costs a fifth of a
// create and a third of a get. Read it from the bottom up: the last filter is the first to run.
func (s *Server) handlerChain(api http.Handler, c *genericapiserver.Config) http.Handler {
	h := s.withPatchFaults(api)
	h = s.withBatchTurns(h)
	h = s.withBodyDeadline(h, bodyTimeout)
	h = s.withBodyLimit(h)
	h = s.withOwnPaths(h)
	h = genericapifilters.WithAuthorization(h, c.Authorization.Authorizer, c.Serializer)
	h = s.withReadiness(h)
	h = genericfilters.WithMaxInFlightLimit(h, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	h = genericapifilters.WithAuthentication(h, c.Authentication.Authenticator, genericapifilters.Unauthorized(c.Serializer), nil, nil)
	h = s.withHealth(h)
	h = genericapifilters.WithWarningRecorder(h)
	h = genericapifilters.WithRequestDeadline(h, nil, nil, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	h = genericfilters.WithWaitGroup(h, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	h = genericapifilters.WithCacheControl(h)
	h = s.metrics.measured(h)
	h = genericapifilters.WithRequestInfo(h, c.RequestInfoResolver)
	h = genericapifilters.WithRequestReceivedTimestamp(h)
	h = genericfilters.WithPanicRecovery(h, c.RequestInfoResolver)
	// Nothing is audited, but the patch handlers want the context, and clients the Audit-Id.
	return genericapifilters.WithAuditInit(h)
}

// endingWith ends watches when the server begins to drain: they would hold it up for half an hour.
func (s *Server) endingWith(drain context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(drain, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withReadiness refuses the API until this node's state is not an old one. The operator's own
// endpoints stay: they tell why.
func (s *Server) withReadiness(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOwnPath(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.cfg.Ready(); err != nil {
			// Nothing was proposed: a client may well try again, here or at another node.
			unready := apierrors.NewServiceUnavailable("this node is not ready: " + err.Error())
			w.Header().Set("Retry-After", fmt.Sprint(retryAfterSeconds))
			s.fail(w, r, unready)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withBodyLimit refuses a body that says itself that it is larger than any object may be. One
// that does not say meets maxBodyBytes while it is read.
func (s *Server) withBodyLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := int64(broker.MaxObjectBytes)
		if info, ok := request.RequestInfoFrom(r.Context()); ok {
			switch {
			case info.Subresource == "facts":
				limit = maxBodyBytes
			case info.Resource == "blueprints":
				limit = maxBodyBytes // its status alone may be larger, and whoever writes a whole object sends it along
			case info.Resource == "reservationbatches":
				limit = broker.MaxBatchBytes
			}
		}
		if r.ContentLength > limit {
			s.fail(w, r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("body: %d bytes, limit is %d", r.ContentLength, limit)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withBodyDeadline ends requests whose body does not come: it would hold their place among the
// writes in flight. Once the body is read, the answer may take its time.
func (s *Server) withBodyDeadline(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		body := &timedBody{ReadCloser: r.Body, connection: http.NewResponseController(w), limit: limit}
		if err := body.connection.SetReadDeadline(time.Now().Add(limit)); err != nil {
			s.fail(w, r, fmt.Errorf("body: %w", err))
			return
		}
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// timedBody lifts the deadline at its end, and gives errors their status.
type timedBody struct {
	io.ReadCloser
	connection *http.ResponseController
	limit      time.Duration
}

func (b *timedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonBadRequest,
			Message: fmt.Sprintf("body: not received within %s; nothing was changed", b.limit),
		}}
	case errors.Is(err, io.EOF):
		if err := b.connection.SetReadDeadline(time.Time{}); err != nil {
			return n, fmt.Errorf("body: %w", err)
		}
	case err != nil:
		return n, apierrors.NewBadRequest("body: " + err.Error())
	}
	return n, err
}

// withBatchTurns bounds how many batches are written at a time: their bodies are large. Who finds no
// turn is told to come again: waiting would take the places of those that write something else.
func (s *Server) withBatchTurns(next http.Handler) http.Handler {
	turns := make(chan struct{}, maxBatchWrites)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Resource != "reservationbatches" || info.Verb != "create" && info.Verb != "update" && info.Verb != "patch" {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			next.ServeHTTP(w, r)
		default:
			s.fail(w, r, apierrors.NewTooManyRequests(
				fmt.Sprintf("%d batches are being written at this node; nothing was changed", maxBatchWrites), retryAfterSeconds))
		}
	})
}

// fail answers with the error's status, as the API would.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	gv := schema.GroupVersion{}
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	responsewriters.ErrorNegotiated(apiError(err), s.words.codecs, gv, w, r)
}
