package server

import (
	"fmt"
	"io"
	"net/http"
)

// The probes. They need no certificate, so that load balancers can ask.
const (
	pathLive   = "/livez"
	pathReady  = "/readyz"
	pathHealth = "/healthz" // the old name of /livez, which some probes still use
	pathLeader = "/leaderz"
)

// withHealth answers the probes before anybody asks for a certificate.
//
//	/livez    200 while the process serves
//	/readyz   200 once this node may serve the API
//	/leaderz  200 on the leader only, for load balancers that want to save a hop
func (s *Server) withHealth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case pathLive, pathHealth:
			probe(w, r, nil)
		case pathReady:
			probe(w, r, s.cfg.Ready())
		case pathLeader:
			var err error
			if !s.cfg.Admin.IsLeader() {
				err = fmt.Errorf("this node is not the leader")
			}
			probe(w, r, err)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func probe(w http.ResponseWriter, r *http.Request, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	// A client that is gone misses its answer: nothing to do about that.
	_, _ = io.WriteString(w, "ok")
}
