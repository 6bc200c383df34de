package e2e

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The API as its documents promise it, written down once more on purpose: renaming a field breaks this suite.

var (
	brokerVersion      = schema.GroupVersion{Group: "broker.fluidos.eu", Version: "v1alpha1"}
	reservationsKind   = brokerVersion.WithResource("reservations")
	advertisementsKind = brokerVersion.WithResource("clusteradvertisements")
)

// gibi is what memory is priced by.
const gibi = int64(1) << 30

type reservation struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		RequesterID        string              `json:"requesterID"`
		RequestedResources corev1.ResourceList `json:"requestedResources"`
		Duration           string              `json:"duration"`
	} `json:"spec"`
	Status struct {
		Phase                 string             `json:"phase"`
		TargetClusterID       string             `json:"targetClusterID"`
		TargetClusterEndpoint string             `json:"targetClusterEndpoint"`
		ReservedAt            *metav1.MicroTime  `json:"reservedAt"`
		ExpiresAt             *metav1.MicroTime  `json:"expiresAt"`
		Fence                 int64              `json:"fence"`
		PricePerHour          string             `json:"pricePerHour"`
		Message               string             `json:"message"`
		Decision              *decision          `json:"decision"`
		Conditions            []metav1.Condition `json:"conditions"`
		PartOf                *struct {
			Kind  string `json:"kind"`
			UID   string `json:"uid"`
			Bound bool   `json:"bound"`
		} `json:"partOf"`
		Pieces []struct {
			Name            string `json:"name"`
			TargetClusterID string `json:"targetClusterID"`
		} `json:"pieces"`
	} `json:"status"`
}

type decision struct {
	Revision   int64            `json:"revision"`
	Policy     string           `json:"policy"`
	Counts     map[string]int64 `json:"counts"`
	Candidates []candidate      `json:"candidates"`
}

type candidate struct {
	ClusterID     string              `json:"clusterID"`
	Feasible      bool                `json:"feasible"`
	Reason        string              `json:"reason"`
	Available     corev1.ResourceList `json:"available"`
	PricePerHour  string              `json:"pricePerHour"`
	ResourceScore int64               `json:"resourceScore"`
	CostScore     int64               `json:"costScore"`
	Score         int64               `json:"score"`
}

func (d *decision) of(clusterID string) (candidate, error) {
	if d == nil {
		return candidate{}, fmt.Errorf("there is no status.decision")
	}
	for _, c := range d.Candidates {
		if c.ClusterID == clusterID {
			return c, nil
		}
	}
	return candidate{}, fmt.Errorf("status.decision does not name %s: %+v", clusterID, *d)
}

type advertisement struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ClusterID string `json:"clusterID"`
		Endpoint  string `json:"endpoint"`
		Region    string `json:"region"`
		Provider  string `json:"provider"`
		Resources struct {
			Allocatable corev1.ResourceList `json:"allocatable"`
			Allocated   corev1.ResourceList `json:"allocated"`
			Reserved    corev1.ResourceList `json:"reserved"`
			Available   corev1.ResourceList `json:"available"`
		} `json:"resources"`
		LargestFree corev1.ResourceList `json:"largestFree"`
		Cost        map[string]string   `json:"cost"`
	} `json:"spec"`
	Status struct {
		Phase      string             `json:"phase"`
		Epoch      int64              `json:"epoch"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// amounts are cpu in thousandths of a core and memory in bytes.
type amounts struct{ cpu, memory int64 }

func amountsOf(list corev1.ResourceList) amounts {
	return amounts{list.Cpu().MilliValue(), list.Memory().Value()}
}

func (a amounts) plus(b amounts) amounts  { return amounts{a.cpu + b.cpu, a.memory + b.memory} }
func (a amounts) minus(b amounts) amounts { return amounts{a.cpu - b.cpu, a.memory - b.memory} }
func (a amounts) String() string {
	return fmt.Sprintf("cpu %.3f, memory %.3f GiB", float64(a.cpu)/1000, float64(a.memory)/float64(gibi))
}

// request is a reservation to be created.
type request struct {
	name, requester, cpu, memory string
	more                         map[string]any // further fields of spec
	labels                       map[string]string
}

func (r request) object() *unstructured.Unstructured {
	spec := map[string]any{
		"requesterID":        r.requester,
		"requestedResources": map[string]any{"cpu": r.cpu, "memory": r.memory},
	}
	for field, v := range r.more {
		spec[field] = v
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(brokerVersion.String())
	o.SetKind("Reservation")
	o.SetName(r.name)
	o.SetLabels(r.labels)
	return o
}

// read turns what a dynamic client returned into one of the types above.
func read[T any](o *unstructured.Unstructured, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return out, nil
}

func readAll[T any](list *unstructured.UnstructuredList, err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}
	var out []*T
	for i := range list.Items {
		item, err := read[T](&list.Items[i], nil)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, nil
}

func getAdvertisement(ctx context.Context, client dynamic.Interface, clusterID string) (*advertisement, error) {
	return read[advertisement](client.Resource(advertisementsKind).Get(ctx, clusterID+"-adv", metav1.GetOptions{}))
}

// held is what the advertisement says is reserved.
func (a *advertisement) held() amounts { return amountsOf(a.Spec.Resources.Reserved) }

func (a *advertisement) available() amounts { return amountsOf(a.Spec.Resources.Available) }

// readEvent is read for what a watch says.
func readEvent[T any](event watch.Event) (*T, error) {
	o, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		return nil, fmt.Errorf("the watch says %s: %+v", event.Type, event.Object)
	}
	return read[T](o, nil)
}
