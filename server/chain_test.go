package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestOnlySoManyBatchesAreWrittenAtATime(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s := &Server{words: newWords()}
	turns := s.withBatchTurns(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Context().Err() == nil {
			entered <- struct{}{}
			<-release
		}
		w.WriteHeader(http.StatusOK)
	}))
	ask := func(method, verb, resource string) *httptest.ResponseRecorder {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: resource})
		response := httptest.NewRecorder()
		turns.ServeHTTP(response, httptest.NewRequestWithContext(ctx, method, "/", nil))
		return response
	}
	codes := make(chan int)
	for range maxBatchWrites {
		go func() { codes <- ask(http.MethodPost, "create", "reservationbatches").Code }()
	}
	for range maxBatchWrites {
		<-entered
	}
	over := ask(http.MethodPost, "create", "reservationbatches")
	require.Equal(t, http.StatusTooManyRequests, over.Code, "it waits, and holds a place of others")
	require.Equal(t, "1", over.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "get", "reservationbatches").Code)
	require.Equal(t, http.StatusOK, ask(http.MethodPatch, "patch", "reservations").Code)
	close(release)
	for range maxBatchWrites {
		require.Equal(t, http.StatusOK, <-codes)
	}
	require.Equal(t, http.StatusOK, ask(http.MethodDelete, "delete", "reservationbatches").Code)
}

func TestABodyThatDoesNotComeEndsTheRequest(t *testing.T) {
	t.Parallel()
	s := &Server{words: newWords()}
	reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			s.fail(w, r, err)
		}
	})
	for _, http2 := range []bool{false, true} {
		web := httptest.NewUnstartedServer(s.withBodyDeadline(reads, 10*time.Millisecond))
		web.EnableHTTP2 = http2
		web.StartTLS()
		never, end := io.Pipe()
		slow, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, never)
		require.NoError(t, err)
		response, err := web.Client().Do(slow)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, response.StatusCode, response.Proto)
		require.NoError(t, response.Body.Close())
		require.NoError(t, end.Close())
		web.Close()
	}
}

// deadlines remembers the read deadline of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

func TestTheDeadlineOfABodyIsOverWithIt(t *testing.T) {
	t.Parallel()
	s := &Server{words: newWords()}
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.withBodyDeadline(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.False(t, w.read.IsZero())
		_, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.True(t, w.read.IsZero(), "it would end the wait for the answer")
	}), time.Hour).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("x")))
	require.Equal(t, http.StatusOK, w.Code)
}
