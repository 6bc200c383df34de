package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/test/chaos/history"
)

// Blueprints run on the last clusters only: on the others whatever is held is a reservation's.
const (
	blueprintClusters = 3
	blueprintCount    = 4
)

// consents says whether the cluster runs blueprints.
func consents(cluster string) bool {
	for i := clusterCount - blueprintClusters; i < clusterCount; i++ {
		if cluster == clusterName(i) {
			return true
		}
	}
	return false
}

func blueprintPath(namespace, name string) string {
	return apiPath + "/namespaces/" + namespace + "/blueprints" + strings.TrimSuffix("/"+name, "/")
}

// blueprint makes one, changes how many of what it runs, or deletes it.
func (w *worker) blueprint(ctx context.Context) {
	i := w.rng.IntN(blueprintCount)
	namespace, name := fmt.Sprintf("ns%d", i%namespaces), fmt.Sprintf("bp%d", i)
	spec := fmt.Sprintf(`{"strategy":%q,"slices":[{"name":"app","artifact":"registry.example.com/app:%d","instances":%d,"resources":{"cpu":"%dm","memory":"1Gi"}}]}`,
		[]string{"RoundRobin", "Spread", "Pack", "Balanced"}[w.rng.IntN(4)], 1+w.rng.IntN(3), 1+w.rng.IntN(6), 500+500*w.rng.IntN(3))
	switch w.rng.IntN(6) {
	case 0:
		w.ask(ctx, "delete a blueprint", request{method: http.MethodDelete, path: blueprintPath(namespace, name)})
	case 1, 2:
		w.ask(ctx, "change a blueprint", request{
			method: http.MethodPatch, path: blueprintPath(namespace, name), contentType: mergePatch, body: []byte(`{"spec":` + spec + `}`),
		})
	default:
		w.ask(ctx, "create a blueprint", request{
			method: http.MethodPost, path: blueprintPath(namespace, ""), contentType: jsonBody,
			body: fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"Blueprint","metadata":{"name":%q},"spec":%s}`, broker.GroupName, name, spec),
		})
	}
}

// wireSlice is what an agent reads of a slice.
type wireSlice struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ClusterID string              `json:"clusterID"`
		Instances int32               `json:"instances"`
		Resources corev1.ResourceList `json:"resources"`
		Command   broker.SliceCommand `json:"command"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64             `json:"observedGeneration"`
		State              broker.SliceState `json:"state"`
		ReadyInstances     int32             `json:"readyInstances"`
	} `json:"status"`
}

// slices lists those of a cluster, or of all.
func slicesRequest(cluster, version string) request {
	query := url.Values{}
	if cluster != "" {
		query.Set("fieldSelector", "spec.clusterID="+cluster)
	}
	if version != "" {
		query.Set("resourceVersion", version)
	}
	return request{method: http.MethodGet, path: apiPath + "/slices", query: query.Encode()}
}

// consent says that this cluster runs blueprints, until the exchange has heard it.
func (a *agent) consent(ctx context.Context) {
	body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Flags","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		broker.ConditionBlueprints)
	got := a.client.do(ctx, a.client.reach(a.rng), request{
		method: http.MethodPatch, path: advertisementPath(a.cluster) + "/status", contentType: mergePatch, body: body,
	})
	a.consented = got.ok()
	a.ops.add("consent")
}

// drive does what each of the cluster's slices asks for, at once: a pod that comes up is no matter of the exchange.
// Its pods are no part of what the agent says is allocated, so that the book needs to know of no use.
func (a *agent) drive(ctx context.Context) {
	got := a.client.do(ctx, a.client.reach(a.rng), slicesRequest(a.cluster, "0"))
	var list struct {
		Items []wireSlice `json:"items"`
	}
	if !got.ok() || json.Unmarshal(got.body, &list) != nil {
		return
	}
	for _, s := range list.Items {
		state, ready, unloaded := broker.SliceActive, s.Spec.Instances, "[]"
		switch s.Spec.Command {
		case broker.SliceLoad, broker.SliceDeactivate:
			state, ready = broker.SliceLoaded, 0
		case broker.SliceUnload:
			state, ready = broker.SliceUnloading, 0
			unloaded = fmt.Sprintf(`[{"type":%q,"status":"True","reason":"Gone","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]`, broker.ConditionUnloaded)
		}
		if s.Status.ObservedGeneration == s.Metadata.Generation && s.Status.State == state && s.Status.ReadyInstances == ready {
			continue
		}
		told := a.client.do(ctx, a.client.reach(a.rng), request{
			method: http.MethodPatch, contentType: mergePatch,
			path: apiPath + "/namespaces/" + s.Metadata.Namespace + "/slices/" + s.Metadata.Name + "/status",
			body: fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"observedGeneration":%d,"state":%q,"readyInstances":%d,"conditions":%s}}`,
				s.Metadata.UID, s.Metadata.Generation, state, ready, unloaded),
		})
		if a.ops.add("slice driven"); !told.ok() {
			a.failures.add(fmt.Sprintf("slice driven: %d %s", told.code, told.reason))
		}
	}
}

// slicesHeld holds the slices against the book, when all is quiet: each cluster has promised them what they
// are to run, and nothing where there is none.
func (r *run) slicesHeld(ctx context.Context) error {
	got := r.client.do(ctx, r.client.nodes[0], slicesRequest("", ""))
	if !got.ok() {
		return fmt.Errorf("list slices: %s", got)
	}
	var list struct {
		Items []wireSlice `json:"items"`
	}
	if err := json.Unmarshal(got.body, &list); err != nil {
		return err
	}
	asked := map[string]history.Amounts{}
	for _, s := range list.Items {
		each, err := amounts(s.Spec.Resources)
		if err != nil {
			return err
		}
		sum := asked[s.Spec.ClusterID]
		if s.Spec.Command == broker.SliceLoad || s.Spec.Command == broker.SliceActivate {
			sum.CPUMilli += each.CPUMilli * int64(s.Spec.Instances)
			sum.MemoryBytes += each.MemoryBytes * int64(s.Spec.Instances)
		}
		asked[s.Spec.ClusterID] = sum
	}
	for i := range clusterCount {
		sum, any := asked[clusterName(i)]
		held := r.history.HeldBySlices(clusterName(i))
		if held.CPUMilli < sum.CPUMilli || held.MemoryBytes < sum.MemoryBytes || !any && held != (history.Amounts{}) {
			return fmt.Errorf("the slices of %s are to run %+v, and hold %+v", clusterName(i), sum, held)
		}
	}
	return nil
}
