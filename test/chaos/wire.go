package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/test/chaos/history"
)

// opAnnotation names the operation that wrote an object last.
const opAnnotation = "chaos/op"

// meta is what is read of an object's metadata; the rest would cost more than all else here.
type meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Generation      int64             `json:"generation"`
	Annotations     map[string]string `json:"annotations"`
}

type condition struct {
	Type               string    `json:"type"`
	Reason             string    `json:"reason"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

type wireReservation struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		RequestedResources corev1.ResourceList `json:"requestedResources"`
		Duration           string              `json:"duration"`
	} `json:"spec"`
	Status struct {
		Phase           string      `json:"phase"`
		TargetClusterID string      `json:"targetClusterID"`
		ReservedAt      *time.Time  `json:"reservedAt"`
		ExpiresAt       *time.Time  `json:"expiresAt"`
		Fence           uint64      `json:"fence"`
		Conditions      []condition `json:"conditions"`

		PartOf *broker.PartOf    `json:"partOf"`
		Pieces []json.RawMessage `json:"pieces"`
	} `json:"status"`
}

type wireAdvertisement struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ClusterID string                     `json:"clusterID"`
		Resources broker.AdvertisedResources `json:"resources"`
		Lending   broker.Lending             `json:"lending"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		Epoch int64  `json:"epoch"`
	} `json:"status"`
}

// decode an object of the kind; gone is told by who received it.
func decode(kind history.Kind, data []byte, gone bool) (row history.Row, err error) {
	var m meta
	if kind == history.Reservations {
		var wire wireReservation
		if err := json.Unmarshal(data, &wire); err != nil {
			return row, err
		}
		m = wire.Metadata
		row.Body, err = wire.row()
	} else {
		var wire wireAdvertisement
		if err := json.Unmarshal(data, &wire); err != nil {
			return row, err
		}
		m = wire.Metadata
		row.Body, err = wire.row()
	}
	if err != nil {
		return row, err
	}
	row.Kind, row.Gone, row.Key = kind, gone, m.Name
	if m.Namespace != "" {
		row.Key = m.Namespace + "/" + m.Name
	}
	row.Rev, err = strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil || m.Name == "" || m.UID == "" {
		return row, fmt.Errorf("an object without name, uid or resourceVersion: %.200s", data)
	}
	return row, nil
}

func (w *wireReservation) row() (history.Reservation, error) {
	asked, err := amounts(w.Spec.RequestedResources)
	r := history.Reservation{
		UID: w.Metadata.UID, Op: w.Metadata.Annotations[opAnnotation], Generation: w.Metadata.Generation,
		Asked: asked, Duration: w.Spec.Duration,
		Phase: w.Status.Phase, Target: w.Status.TargetClusterID, Fence: w.Status.Fence,
		ReservedAt: micros(w.Status.ReservedAt), ExpiresAt: micros(w.Status.ExpiresAt),
	}
	r.Pieces = len(w.Status.Pieces)
	if whole := w.Status.PartOf; whole != nil {
		if r.PartOf, r.Bound = string(whole.UID), whole.Bound; whole.Bound && whole.Kind == broker.KindReservationBatch {
			r.Parts = partsOf(w.Metadata.Name)
		}
	}
	for _, c := range w.Status.Conditions {
		if c.Type == broker.ConditionReady {
			r.Reason = c.Reason
			if r.Phase == history.Released || r.Phase == history.Failed {
				r.EndedAt = c.LastTransitionTime.Unix()
			}
		}
	}
	return r, err
}

func (w *wireAdvertisement) row() (history.Advertisement, error) {
	a := history.Advertisement{
		UID: w.Metadata.UID, Op: w.Metadata.Annotations[opAnnotation],
		Cluster: w.Spec.ClusterID, Phase: w.Status.Phase, Epoch: w.Status.Epoch, Withdrawn: w.Spec.Lending.Withdrawn,
		Closed: w.Status.Phase != string(broker.AdvertisementActive) || w.Spec.Lending.Cordoned || w.Spec.Lending.Withdrawn,
	}
	for _, of := range []struct {
		to   *history.Amounts
		from corev1.ResourceList
	}{
		{&a.Allocatable, w.Spec.Resources.Allocatable},
		{&a.Allocated, w.Spec.Resources.Allocated},
		{&a.Reserved, w.Spec.Resources.Reserved},
		{&a.KeepBack, w.Spec.Lending.KeepBack},
	} {
		var err error
		if *of.to, err = amounts(of.from); err != nil {
			return a, err
		}
	}
	return a, nil
}

// amounts in the exchange's units; chaos asks for no resource but these two.
func amounts(list corev1.ResourceList) (a history.Amounts, err error) {
	for resource, quantity := range list {
		n, err := broker.AmountOf(string(resource), quantity, true)
		if err != nil {
			return a, err
		}
		switch resource {
		case corev1.ResourceCPU:
			a.CPUMilli = n
		case corev1.ResourceMemory:
			a.MemoryBytes = n
		default:
			return a, fmt.Errorf("resource %s is not dealt in", resource)
		}
	}
	return a, nil
}

func micros(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// wireList is a list with its items undecoded.
type wireList struct {
	Metadata meta              `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

func decodeList(kind history.Kind, data []byte) (rev uint64, rows []history.Row, err error) {
	var list wireList
	if err := json.Unmarshal(data, &list); err != nil {
		return 0, nil, err
	}
	if rev, err = strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64); err != nil {
		return 0, nil, fmt.Errorf("a list without resourceVersion: %w", err)
	}
	for _, item := range list.Items {
		row, err := decode(kind, item, false)
		if err != nil {
			return 0, nil, err
		}
		rows = append(rows, row)
	}
	return rev, rows, nil
}
