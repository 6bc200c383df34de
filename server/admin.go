package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

const (
	pathAdmin    = "/admin/v1/"
	pathMetrics  = "/metrics"
	pathSnapshot = adminv1.PathSnapshot

	// maxAdminBodyBytes: the largest request is a member's id.
	maxAdminBodyBytes = 4 << 10
)

// isOwnPath: what is answered even while the API is not ready.
func isOwnPath(path string) bool { return path == pathMetrics || strings.HasPrefix(path, pathAdmin) }

// withOwnPaths serves the operator's endpoints, behind authentication and authorization like the rest.
func (s *Server) withOwnPaths(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+pathMetrics, promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{Registry: s.cfg.Registry}))
	mux.HandleFunc("GET "+adminv1.PathConfiguration, s.adminConfiguration)
	mux.HandleFunc("POST "+adminv1.PathTransfer, s.adminTransfer)
	mux.HandleFunc("DELETE "+adminv1.PathPeers+"{id}", s.adminRemovePeer)
	mux.HandleFunc("GET "+adminv1.PathSnapshot, s.adminSnapshot)
	mux.HandleFunc("GET "+adminv1.PathStateHash, s.adminStateHash)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOwnPath(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) adminConfiguration(w http.ResponseWriter, r *http.Request) {
	configuration, err := s.cfg.Admin.Configuration(r.Context())
	s.answer(w, r, configuration, err)
}

func (s *Server) adminTransfer(w http.ResponseWriter, r *http.Request) {
	var request adminv1.TransferRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdminBodyBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil && !errors.Is(err, io.EOF) {
		s.fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("body: %v", err)))
		return
	}
	s.cfg.Logger.Info("leadership transfer asked for", "to", request.To)
	if err := s.cfg.Admin.TransferLeadership(r.Context(), request.To); err != nil {
		s.fail(w, r, err)
		return
	}
	s.adminConfiguration(w, r)
}

func (s *Server) adminRemovePeer(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.cfg.Logger.Info("removal of a member asked for", "id", id)
	if err := s.cfg.Admin.RemovePeer(r.Context(), id); err != nil {
		s.fail(w, r, err)
		return
	}
	s.adminConfiguration(w, r)
}

func (s *Server) adminStateHash(w http.ResponseWriter, r *http.Request) {
	hash, err := s.cfg.Admin.StateHash(r.Context())
	s.answer(w, r, hash, err)
}

// adminSnapshot streams. What fails after the first byte can only be told by breaking off, so the
// client must verify what it got; the snapshot's trailing hash is for that.
func (s *Server) adminSnapshot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &firstByte{ResponseWriter: w}
	err := s.cfg.Admin.Snapshot(r.Context(), out)
	switch {
	case err == nil:
	case !out.written:
		w.Header().Del("Content-Type")
		s.fail(w, r, err)
	default:
		s.cfg.Logger.Error("snapshot broken off", "error", err)
		panic(http.ErrAbortHandler)
	}
}

// firstByte notices whether a status can still be sent.
type firstByte struct {
	http.ResponseWriter
	written bool
}

func (f *firstByte) Write(p []byte) (int, error) {
	f.written = true
	return f.ResponseWriter.Write(p)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, body any, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.cfg.Logger.Debug("answer not sent", "path", r.URL.Path, "error", err)
	}
}
