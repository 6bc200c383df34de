package server

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// none is what kubectl prints for a field that is not there.
const none = "<none>"

// columns is a resource's table for kubectl get. Each column prints one cell.
type columns []column

type column struct {
	name, about string
	wide        bool // -o wide only
	cell        func(runtime.Object) string
}

func (c columns) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{}
	if list, ok := obj.(metav1.ListInterface); ok {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, ok := obj.(metav1.Object); ok {
		t.ResourceVersion = one.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		t.ColumnDefinitions = c.definitions()
	}
	var err error
	t.Rows, err = table.MetaToTableRow(obj, func(obj runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
		cells := make([]any, len(c))
		for i := range c {
			cells[i] = c[i].cell(obj)
		}
		return cells, nil
	})
	return t, err
}

func (c columns) definitions() []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, len(c))
	for i := range c {
		definitions[i] = metav1.TableColumnDefinition{Name: c[i].name, Type: "string", Description: c[i].about}
		if c[i].wide {
			definitions[i].Priority = 1
		}
		if c[i].name == "Name" {
			definitions[i].Format = "name"
		}
	}
	return definitions
}

var nameColumn = column{name: "Name", about: "The object's name.", cell: func(obj runtime.Object) string {
	meta, err := metaOf(obj)
	if err != nil {
		return ""
	}
	return meta.GetName()
}}

var ageColumn = column{name: "Age", about: "How long ago the object was created.", cell: func(obj runtime.Object) string {
	meta, err := metaOf(obj)
	if err != nil {
		return ""
	}
	return table.ConvertToHumanReadableDateType(meta.GetCreationTimestamp())
}}

// of gives a cell function its type back.
func of[T runtime.Object](cell func(T) string) func(runtime.Object) string {
	return func(obj runtime.Object) string {
		if text := cell(obj.(T)); text != "" {
			return text
		}
		return none
	}
}

var reservationTable = columns{
	nameColumn,
	{name: "Requester", about: "The cluster that asks.", cell: of(func(r *broker.Reservation) string { return r.Spec.RequesterID })},
	{name: "CPU", about: "Requested.", cell: of(func(r *broker.Reservation) string { return quantity(r.Spec.RequestedResources, corev1.ResourceCPU) })},
	{name: "Memory", about: "Requested.", cell: of(func(r *broker.Reservation) string { return quantity(r.Spec.RequestedResources, corev1.ResourceMemory) })},
	{name: "Phase", about: "Pending, Reserved, Released or Failed.", cell: of(func(r *broker.Reservation) string { return string(r.Status.Phase) })},
	{name: "Target", about: "The cluster whose capacity is held.", cell: of(func(r *broker.Reservation) string { return r.Status.TargetClusterID })},
	{name: "Expires", about: "In how long the hold ends by itself.", cell: of(expires)},
	ageColumn,
	{name: "Price", about: "Of the whole request per hour.", wide: true, cell: of(func(r *broker.Reservation) string { return r.Status.PricePerHour })},
	{name: "Score", about: "Of the chosen cluster.", wide: true, cell: of(score)},
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) string {
	if q, ok := list[name]; ok {
		return q.String()
	}
	return ""
}

func expires(r *broker.Reservation) string {
	switch {
	case r.Status.Phase != broker.ReservationReserved:
		return ""
	case r.Status.ExpiresAt == nil:
		return "never"
	}
	return duration.HumanDuration(max(0, time.Until(r.Status.ExpiresAt.Time)))
}

// score is stored in parts per billion; three digits tell offers apart on a screen.
func score(r *broker.Reservation) string {
	if r.Status.Decision == nil {
		return ""
	}
	for _, c := range r.Status.Decision.Candidates {
		if c.ClusterID == r.Status.TargetClusterID && c.Feasible {
			return fmt.Sprintf("%d.%03d", c.Score/1e9, c.Score%1e9/1e6)
		}
	}
	return ""
}

var blueprintTable = columns{
	nameColumn,
	{name: "Phase", about: "Pending, Progressing, Active or Degraded.", cell: of(func(b *broker.Blueprint) string { return string(b.Status.Phase) })},
	{name: "Desired", about: "Instances, over all slices.", cell: of(func(b *broker.Blueprint) string { return count(b.Status.Desired) })},
	{name: "Ready", about: "Instances that are ready.", cell: of(func(b *broker.Blueprint) string { return count(b.Status.Ready) })},
	{name: "Strategy", about: "How instances are spread.", cell: of(func(b *broker.Blueprint) string { return string(b.Spec.EffectiveStrategy()) })},
	ageColumn,
	{name: "Message", about: "Why the phase is what it is.", wide: true, cell: of(func(b *broker.Blueprint) string { return b.Status.Message })},
}

var sliceTable = columns{
	nameColumn,
	{name: "Artifact", about: "As the blueprint names it.", cell: of(func(s *broker.Slice) string { return s.Spec.Artifact })},
	{name: "Cluster", about: "That runs it.", cell: of(func(s *broker.Slice) string { return s.Spec.ClusterID })},
	{name: "Desired", about: "Instances.", cell: of(func(s *broker.Slice) string { return count(s.Spec.Instances) })},
	{name: "Ready", about: "Instances that are ready.", cell: of(func(s *broker.Slice) string { return count(s.Status.ReadyInstances) })},
	{name: "State", about: "How far the cluster's agent is.", cell: of(func(s *broker.Slice) string { return string(s.Status.State) })},
	ageColumn,
	{name: "Message", about: "Why the state is what it is.", wide: true, cell: of(func(s *broker.Slice) string { return s.Status.Message })},
}

func count(n int32) string { return strconv.Itoa(int(n)) }

var batchTable = columns{
	nameColumn,
	{name: "Items", about: "Asked for.", cell: of(func(b *broker.ReservationBatch) string { return fmt.Sprint(b.Status.Counts.Items) })},
	{name: "Reserved", about: "That hold capacity.", cell: of(func(b *broker.ReservationBatch) string { return fmt.Sprint(b.Status.Counts.Reserved) })},
	{name: "Atomic", about: "All or nothing.", cell: of(func(b *broker.ReservationBatch) string { return fmt.Sprint(b.Spec.Atomic) })},
	{name: "Phase", about: "Pending, Reserved, Partial, Released or Failed.", cell: of(func(b *broker.ReservationBatch) string { return string(b.Status.Phase) })},
	{name: "Message", about: "What became of the items.", cell: of(func(b *broker.ReservationBatch) string { return b.Status.Message })},
	ageColumn,
}

var advertisementTable = columns{
	nameColumn,
	{name: "Cluster", about: "The member cluster.", cell: of(func(a *broker.ClusterAdvertisement) string { return a.Spec.ClusterID })},
	{name: "CPU-Avail", about: "Cores that can be reserved now.", cell: of(func(a *broker.ClusterAdvertisement) string {
		return quantity(a.Spec.Resources.Available, corev1.ResourceCPU)
	})},
	{name: "Mem-Avail", about: "Memory that can be reserved now.", cell: of(func(a *broker.ClusterAdvertisement) string {
		return quantity(a.Spec.Resources.Available, corev1.ResourceMemory)
	})},
	{name: "Reserved-CPU", about: "Cores held for others.", cell: of(func(a *broker.ClusterAdvertisement) string {
		return quantity(a.Spec.Resources.Reserved, corev1.ResourceCPU)
	})},
	{name: "Cost", about: "Prices per unit and hour.", cell: of(costText)},
	{name: "Status", about: "Active, Stale or Withdrawn.", cell: of(func(a *broker.ClusterAdvertisement) string { return string(a.Status.Phase) })},
	ageColumn,
}

// costText is the price list in force, without spaces, so that columns stay columns:
// "cpu=0.50,memory=0.05,EUR".
func costText(a *broker.ClusterAdvertisement) string {
	prices := map[string]string{}
	for name, price := range a.Spec.Cost {
		prices[name] = price
	}
	for key, price := range a.Annotations {
		if name, ok := strings.CutPrefix(key, broker.CostAnnotationPrefix); ok {
			prices[name] = price
		}
	}
	currency := prices[broker.CostCurrency]
	delete(prices, broker.CostCurrency)
	if len(prices) == 0 {
		return broker.UnpricedText
	}
	var parts []string
	for name, price := range prices {
		parts = append(parts, name+"="+price)
	}
	sort.Strings(parts)
	if currency != "" {
		parts = append(parts, currency)
	}
	return strings.Join(parts, ",")
}
