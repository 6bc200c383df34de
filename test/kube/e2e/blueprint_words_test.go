package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

var (
	blueprintsKind = brokerVersion.WithResource("blueprints")
	slicesKind     = brokerVersion.WithResource("slices")
)

type blueprint struct {
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		ObservedGeneration int64  `json:"observedGeneration"`
		Phase              string `json:"phase"`
		Desired            int32  `json:"desired"`
		Placed             int32  `json:"placed"`
		Ready              int32  `json:"ready"`
		Message            string `json:"message"`
	} `json:"status"`
}

type slice struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Blueprint string `json:"blueprint"`
		Slice     string `json:"slice"`
		ClusterID string `json:"clusterID"`
		Image     string `json:"image"`
		Instances int32  `json:"instances"`
		Command   string `json:"command"`
	} `json:"spec"`
	Status struct {
		State          string             `json:"state"`
		ReadyInstances int32              `json:"readyInstances"`
		Message        string             `json:"message"`
		Conditions     []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (s *slice) condition(of string) string {
	for _, c := range s.Status.Conditions {
		if c.Type == of {
			return string(c.Status)
		}
	}
	return ""
}

func (s *slice) String() string {
	return fmt.Sprintf("%s on %s: %s %d: %s, %d ready (%s)", s.Spec.Slice, s.Spec.ClusterID, s.Spec.Command, s.Spec.Instances,
		s.Status.State, s.Status.ReadyInstances, s.Status.Message)
}

func getSlices(ctx context.Context, client dynamic.Interface, namespace string) ([]*slice, error) {
	return readAll[slice](client.Resource(slicesKind).Namespace(namespace).List(ctx, metav1.ListOptions{}))
}

// placement is how many instances of each slice run on each cluster.
type placement map[string]int32

func (p placement) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, p[key]))
	}
	return strings.Join(parts, ", ")
}

// instances are the pods of blueprints in a namespace of a cluster.
func (m *member) instances(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := m.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "broker.fluidos.eu/blueprint"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func running(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
