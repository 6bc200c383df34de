package dev

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// probeEvery is how often nodes are asked whether they are ready.
const probeEvery = 250 * time.Millisecond

// health knows which broker nodes are ready.
type health struct {
	client    *http.Client
	addresses []string

	mu    sync.Mutex
	ready map[string]bool
	next  int
}

// run probes all nodes until ctx ends.
func (h *health) run(ctx context.Context) error {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		h.probeAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *health) probeAll(ctx context.Context) {
	var probes sync.WaitGroup
	for _, address := range h.addresses {
		probes.Go(func() {
			ok := h.probe(ctx, address)
			h.mu.Lock()
			h.ready[address] = ok
			h.mu.Unlock()
		})
	}
	probes.Wait()
}

func (h *health) probe(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := h.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close() //nolint:errcheck // only the status counts
	return response.StatusCode == http.StatusOK
}

// candidates lists the nodes to try, ready ones first, beginning with another one each time.
func (h *health) candidates() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	var ready, other []string
	for i := range h.addresses {
		address := h.addresses[(h.next+i)%len(h.addresses)]
		if h.ready[address] {
			ready = append(ready, address)
		} else {
			other = append(other, address)
		}
	}
	return append(ready, other...)
}

// failed is told when a node could not be dialled.
func (h *health) failed(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[address] = false
}

func (h *health) allReady() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, address := range h.addresses {
		if !h.ready[address] {
			return false
		}
	}
	return true
}
