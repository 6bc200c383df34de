package server

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// verifiedFor: how long a verified certificate is believed without looking at it again. Verifying takes
	// 0.16 ms, a third of a get; there is no revocation that a shorter time would serve.
	verifiedFor = time.Minute
	// maxVerified certificates are remembered: 50 agents and as many users many times over, 2 MiB at most.
	maxVerified = 4096
)

// verified remembers which client certificates were found good. That the client owns the key is
// proved by each handshake and not remembered. Safe for concurrent use.
type verified struct {
	inner authenticator.Request
	files *certificates

	mu    sync.Mutex
	under *loadedCertificates // the CA that the entries were verified against
	known map[[sha256.Size]byte]verifiedEntry
}

type verifiedEntry struct {
	response *authenticator.Response
	until    time.Time
}

func (v *verified) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return v.inner.AuthenticateRequest(r)
	}
	leaf, now, files := r.TLS.PeerCertificates[0], time.Now(), v.files.current()
	id := sha256.Sum256(leaf.Raw)
	if response := v.lookUp(id, files, now); response != nil {
		return response, true, nil
	}
	response, ok, err := v.inner.AuthenticateRequest(r)
	if ok && err == nil {
		until := now.Add(verifiedFor)
		// The chain above may end before the leaf does, by a minute at most: verifiedFor.
		if leaf.NotAfter.Before(until) {
			until = leaf.NotAfter
		}
		v.remember(id, files, verifiedEntry{response, until})
	}
	return response, ok, err
}

func (v *verified) lookUp(id [sha256.Size]byte, files *loadedCertificates, now time.Time) *authenticator.Response {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under != files {
		return nil
	}
	if e, ok := v.known[id]; ok && now.Before(e.until) {
		return e.response
	}
	return nil
}

func (v *verified) remember(id [sha256.Size]byte, files *loadedCertificates, e verifiedEntry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under != files || len(v.known) >= maxVerified {
		v.under, v.known = files, map[[sha256.Size]byte]verifiedEntry{}
	}
	v.known[id] = e
}
