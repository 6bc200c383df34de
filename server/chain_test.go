package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

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
	ask := func(ctx context.Context, method, verb string) int {
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: "reservationbatches"})
		response := httptest.NewRecorder()
		turns.ServeHTTP(response, httptest.NewRequestWithContext(ctx, method, "/", nil))
		return response.Code
	}
	codes := make(chan int)
	for range maxBatchWrites {
		go func() { codes <- ask(t.Context(), http.MethodPost, "create") }()
	}
	for range maxBatchWrites {
		<-entered
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, http.StatusTooManyRequests, ask(over, http.MethodPost, "create"))
	require.Equal(t, http.StatusOK, ask(over, http.MethodGet, "get"), "reading waits for nobody")
	close(release)
	for range maxBatchWrites {
		require.Equal(t, http.StatusOK, <-codes)
	}
	require.Equal(t, http.StatusOK, ask(over, http.MethodPost, "delete"))
}
