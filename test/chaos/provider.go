package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/bourse-dev/bourse/test/chaos/history"
)

// terms is a provider who changes its mind: what is kept back, whether anything new is lent, or anything at all.
func (w *worker) terms(ctx context.Context) {
	cluster, op, since := clusterName(w.rng.IntN(clusterCount)), w.newOp(), w.told.Load()
	lending := `{"keepBack":null,"cordoned":false,"withdrawn":false}`
	switch w.rng.IntN(8) {
	case 0:
		lending = `{"withdrawn":true}`
	case 1:
		lending = `{"cordoned":true,"withdrawn":false}`
	case 2, 3:
		lending = fmt.Sprintf(`{"keepBack":{"cpu":"%dm"},"cordoned":false,"withdrawn":false}`, 100*w.rng.IntN(40))
	}
	a := w.ask(ctx, "terms", request{
		method: http.MethodPatch, path: advertisementPath(cluster), contentType: mergePatch,
		body: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"lending":%s}}`, opAnnotation, op, lending),
	})
	switch {
	case a.ok():
		w.wrote(history.Advertisements, a, op, since)
	case !a.unknown():
		w.refused(a, op)
	}
}

// deletedUID is whose end a delete's answer tells.
func deletedUID(body []byte) (string, error) {
	var status struct {
		Details struct {
			UID string `json:"uid"`
		} `json:"details"`
	}
	if err := json.Unmarshal(body, &status); err != nil {
		return "", err
	}
	if status.Details.UID == "" {
		return "", fmt.Errorf("a delete was answered without a uid: %.300s", body)
	}
	return status.Details.UID, nil
}

func clusterName(i int) string { return fmt.Sprintf("c%d", i) }
