package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func training() *Reservation {
	return &Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: "ml-training", Namespace: "rome"},
		Spec: ReservationSpec{
			RequesterID:        "rome",
			RequestedResources: resources("cpu", "4", "memory", "8Gi"),
			Duration:           "2h",
			Priority:           10,
		},
	}
}

func paris() *ClusterAdvertisement {
	return &ClusterAdvertisement{
		ObjectMeta: metav1.ObjectMeta{Name: "paris-adv", Annotations: map[string]string{"cost.cpu": "0.50", "cost.memory": "0.05"}},
		Spec: ClusterAdvertisementSpec{
			ClusterID: "paris", Endpoint: "https://paris.example.org:6443", Region: "eu-west", Provider: "acme",
			Cost: map[string]string{"currency": "EUR", "cpu": "0.4", "nvidia.com/gpu": "2"},
		},
	}
}

func report() *FactsReport {
	return &FactsReport{
		Session:     "3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11",
		Allocatable: resources("cpu", "16", "memory", "64Gi"),
		Allocated:   resources("cpu", "0"),
		Use:         []HoldUse{{Namespace: "rome", Name: "ml-training", Fence: 7, Used: resources("cpu", "2")}},
	}
}

// requireFault wants exactly one fault, on the field, with the value in its text.
func requireFault(t *testing.T, errs field.ErrorList, path, value string) {
	t.Helper()
	require.NotEmpty(t, errs, "nothing was refused")
	for _, err := range errs {
		require.Equal(t, path, err.Field, "in %v", errs)
	}
	require.Contains(t, errs.ToAggregate().Error(), value)
}

func TestValidReservationsPass(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*Reservation){
		"as in the README":                func(*Reservation) {},
		"without a duration":              func(r *Reservation) { r.Spec.Duration = "" },
		"for exactly a year":              func(r *Reservation) { r.Spec.Duration = "8760h" },
		"of a GPU alone":                  func(r *Reservation) { r.Spec.RequestedResources = resources("nvidia.com/gpu", "1") },
		"with the lowest priority":        func(r *Reservation) { r.Spec.Priority = -1000 },
		"that may wait, with all filters": everyFilter,
		"kept not a second once finished": func(r *Reservation) { r.Spec.TTLSecondsAfterFinished = new(int32) },
		"of a cluster named by a UID":     func(r *Reservation) { r.Spec.RequesterID = "3e1c0a0e-9c4f-4f0b-8a80-0d6f0a7c5a11" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := training()
			change(r)
			require.Empty(t, ValidateReservation(r))
		})
	}
}

func everyFilter(r *Reservation) {
	r.Spec.WaitFor = "30m"
	r.Spec.Chunk = resources("cpu", "2")
	r.Spec.TargetClusterID = "berlin"
	r.Spec.MaxCostPerHour = "3.5"
	r.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu-west"}}
}

func TestBadReservationsAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change      func(*Reservation)
		path, value string
	}{
		"cpu -1":               {func(r *Reservation) { r.Spec.RequestedResources = resources("cpu", "-1") }, "spec.requestedResources.cpu", `"-1"`},
		"cpu 0":                {func(r *Reservation) { r.Spec.RequestedResources = resources("cpu", "0") }, "spec.requestedResources.cpu", `"0"`},
		"memory of 1E Gi":      {func(r *Reservation) { r.Spec.RequestedResources = resources("memory", "7Ei") }, "spec.requestedResources.memory", `"7Ei"`},
		"no resources":         {func(r *Reservation) { r.Spec.RequestedResources = nil }, "spec.requestedResources", "at least one"},
		"a bad resource name":  {func(r *Reservation) { r.Spec.RequestedResources = resources("c p u", "1") }, "spec.requestedResources.c p u", `"c p u"`},
		"too many resources":   {func(r *Reservation) { r.Spec.RequestedResources = manyResources(MaxResources + 1) }, "spec.requestedResources", "33"},
		"no requester":         {func(r *Reservation) { r.Spec.RequesterID = "" }, "spec.requesterID", "Required"},
		"requester not DNS":    {func(r *Reservation) { r.Spec.RequesterID = "Rome!" }, "spec.requesterID", `"Rome!"`},
		"requester too long":   {func(r *Reservation) { r.Spec.RequesterID = strings.Repeat("r", 64) }, "spec.requesterID", "63"},
		"duration in words":    {func(r *Reservation) { r.Spec.Duration = "2 hours" }, "spec.duration", `"2 hours"`},
		"duration negative":    {func(r *Reservation) { r.Spec.Duration = "-2h" }, "spec.duration", `"-2h"`},
		"duration zero":        {func(r *Reservation) { r.Spec.Duration = "0s" }, "spec.duration", `"0s"`},
		"duration over a year": {func(r *Reservation) { r.Spec.Duration = "8761h" }, "spec.duration", `"8761h"`},
		"waitFor in words":     {func(r *Reservation) { r.Spec.WaitFor = "soon" }, "spec.waitFor", `"soon"`},
		"priority too high":    {func(r *Reservation) { r.Spec.Priority = 1001 }, "spec.priority", "1001"},
		"priority too low":     {func(r *Reservation) { r.Spec.Priority = -1001 }, "spec.priority", "-1001"},
		"chunk over request":   {func(r *Reservation) { r.Spec.Chunk = resources("cpu", "5") }, "spec.chunk.cpu", `"5"`},
		"chunk not requested":  {func(r *Reservation) { r.Spec.Chunk = resources("nvidia.com/gpu", "1") }, "spec.chunk.nvidia.com/gpu", `"1"`},
		"bad selector":         {func(r *Reservation) { r.Spec.ClusterSelector = badSelector() }, "spec.clusterSelector.matchExpressions[0].operator", `"Near"`},
		"target not DNS":       {func(r *Reservation) { r.Spec.TargetClusterID = "a_b" }, "spec.targetClusterID", `"a_b"`},
		"target is requester":  {func(r *Reservation) { r.Spec.TargetClusterID = "rome" }, "spec.targetClusterID", `"rome"`},
		"price in words":       {func(r *Reservation) { r.Spec.MaxCostPerHour = "cheap" }, "spec.maxCostPerHour", `"cheap"`},
		"negative retention":   {func(r *Reservation) { r.Spec.TTLSecondsAfterFinished = int32Pointer(-5) }, "spec.ttlSecondsAfterFinished", "-5"},
		"name too long":        {func(r *Reservation) { r.Name = strings.Repeat("n", 254) }, "metadata.name", "253"},
		"name not DNS":         {func(r *Reservation) { r.Name = "ML_training" }, "metadata.name", `"ML_training"`},
		"too many labels":      {func(r *Reservation) { r.Labels = manyLabels(MaxLabels + 1) }, "metadata.labels", "65"},
		"finalizer of a GC":    {func(r *Reservation) { r.Finalizers = []string{metav1.FinalizerDeleteDependents} }, "metadata.finalizers[0]", "foregroundDeletion"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := training()
			c.change(r)
			requireFault(t, ValidateReservation(r), c.path, c.value)
		})
	}
}

func TestQuantitiesThatAreNoneDoNotDecode(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`"four"`, `"8Q"`, `"4 cores"`, `{}`} {
		var r Reservation
		require.Error(t, json.Unmarshal(fmt.Appendf(nil, `{"spec":{"requestedResources":{"cpu":%s}}}`, bad), &r), bad)
	}
}

func TestSpecIsImmutableOnceNotPendingButForALongerReservedDuration(t *testing.T) {
	t.Parallel()
	duration := func(d string) func(*Reservation) { return func(r *Reservation) { r.Spec.Duration = d } }
	moreCPU := func(r *Reservation) { r.Spec.RequestedResources = resources("cpu", "5", "memory", "8Gi") }
	cases := map[string]struct {
		phase   ReservationPhase
		from    string
		change  func(*Reservation)
		refused string // what the message names; empty: allowed
	}{
		"Pending may change its size":           {ReservationPending, "2h", moreCPU, ""},
		"undecided may change its size":         {"", "2h", moreCPU, ""},
		"Reserved may last longer":              {ReservationReserved, "2h", duration("3h"), ""},
		"Reserved may last until deleted":       {ReservationReserved, "2h", duration(""), ""},
		"Reserved may say the same in minutes":  {ReservationReserved, "2h", duration("120m"), ""},
		"Reserved may write 8Gi as 8192Mi":      {ReservationReserved, "2h", func(r *Reservation) { r.Spec.RequestedResources = resources("cpu", "4", "memory", "8192Mi") }, ""},
		"Reserved may get a label":              {ReservationReserved, "2h", func(r *Reservation) { r.Labels = map[string]string{"a": "b"} }, ""},
		"Reserved can't be shorter":             {ReservationReserved, "2h", duration("1h"), "Reserved"},
		"until deleted can't be shorter":        {ReservationReserved, "", duration("8760h"), "Reserved"},
		"Reserved can't grow":                   {ReservationReserved, "2h", moreCPU, "Reserved"},
		"longer and larger is still refused":    {ReservationReserved, "2h", func(r *Reservation) { moreCPU(r); r.Spec.Duration = "3h" }, "Reserved"},
		"Released can't be extended":            {ReservationReleased, "2h", duration("3h"), "Released"},
		"Failed can't change":                   {ReservationFailed, "2h", moreCPU, "Failed"},
		"a longer duration must still be valid": {ReservationReserved, "2h", duration("9000h"), "9000h"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := training()
			old.Spec.Duration, old.Status.Phase = c.from, c.phase
			updated := old.DeepCopy()
			c.change(updated)
			errs := ValidateReservationUpdate(updated, old)
			if c.refused == "" {
				require.Empty(t, errs)
				return
			}
			require.NotEmpty(t, errs)
			require.Contains(t, errs.ToAggregate().Error(), c.refused)
		})
	}
}

func TestValidAdvertisementsPass(t *testing.T) {
	t.Parallel()
	require.Empty(t, ValidateClusterAdvertisement(paris()))
	require.Empty(t, ValidateFactsReport(report()))
	allIn := paris()
	allIn.Spec.Cost = map[string]string{"currency": "EUR", "perHour": "0.08"}
	require.Empty(t, ValidateClusterAdvertisement(allIn))
}

func TestBadAdvertisementsAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	cost := func(pairs map[string]string) func(*ClusterAdvertisement) {
		return func(a *ClusterAdvertisement) { a.Spec.Cost = pairs }
	}
	cases := map[string]struct {
		change      func(*ClusterAdvertisement)
		path, value string
	}{
		"annotation in words": {func(a *ClusterAdvertisement) { a.Annotations["cost.cpu"] = "cheap" }, "metadata.annotations[cost.cpu]", `"cheap"`},
		"annotation negative": {func(a *ClusterAdvertisement) { a.Annotations["cost.memory"] = "-1" }, "metadata.annotations[cost.memory]", `"-1"`},
		"annotation empty":    {func(a *ClusterAdvertisement) { a.Annotations["cost.cpu"] = "" }, "metadata.annotations[cost.cpu]", `""`},
		"annotation all-in": {func(a *ClusterAdvertisement) {
			a.Annotations = map[string]string{"cost.perHour": "1", "cost.cpu": "1", "cost.currency": "EUR"}
		}, "metadata.annotations[cost.cpu]", "perHour"},
		"price in words":         {cost(map[string]string{"cpu": "free"}), "spec.cost.cpu", `"free"`},
		"price absurd":           {cost(map[string]string{"cpu": "99999999999999999999"}), "spec.cost.cpu", "99999999999999999999"},
		"currency in words":      {cost(map[string]string{"currency": "euros"}), "spec.cost.currency", `"euros"`},
		"all-in and units":       {cost(map[string]string{"perHour": "1", "cpu": "1"}), "spec.cost.cpu", "perHour"},
		"price of a bad name":    {cost(map[string]string{"c p": "1"}), "spec.cost.c p", `"c p"`},
		"name of another":        {func(a *ClusterAdvertisement) { a.Name = "berlin-adv" }, "metadata.name", `"paris-adv"`},
		"endpoint no URL":        {func(a *ClusterAdvertisement) { a.Spec.Endpoint = "paris:6443" }, "spec.endpoint", `"paris:6443"`},
		"region no label":        {func(a *ClusterAdvertisement) { a.Spec.Region = "eu west" }, "spec.region", `"eu west"`},
		"keepBack negative":      {func(a *ClusterAdvertisement) { a.Spec.Lending.KeepBack = resources("cpu", "-2") }, "spec.lending.keepBack.cpu", `"-2"`},
		"keepBack out of bounds": {func(a *ClusterAdvertisement) { a.Spec.Lending.KeepBack = resources("memory", "7Ei") }, "spec.lending.keepBack.memory", `"7Ei"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := paris()
			c.change(a)
			requireFault(t, ValidateClusterAdvertisement(a), c.path, c.value)
		})
	}
}

func TestACredentialInAnEndpointIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	a := paris()
	a.Spec.Endpoint = "https://admin:hunter2@paris.example.org"
	errs := ValidateClusterAdvertisement(a)
	requireFault(t, errs, "spec.endpoint", "password")
	require.NotContains(t, errs.ToAggregate().Error(), "hunter2")
}

func TestClusterIDOfAnAdvertisementIsImmutable(t *testing.T) {
	t.Parallel()
	updated := paris()
	updated.Spec.ClusterID = "lyon"
	errs := ValidateClusterAdvertisementUpdate(updated, paris())
	require.Contains(t, errs.ToAggregate().Error(), `spec.clusterID: Invalid value: "lyon"`)
}

func TestBadReportsAreRefusedByFieldAndValue(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change      func(*FactsReport)
		path, value string
	}{
		"allocatable negative": {func(f *FactsReport) { f.Allocatable = resources("cpu", "-1") }, "allocatable.cpu", `"-1"`},
		"allocatable absurd":   {func(f *FactsReport) { f.Allocatable = resources("memory", "7Ei") }, "allocatable.memory", `"7Ei"`},
		"allocated negative":   {func(f *FactsReport) { f.Allocated = resources("memory", "-1Gi") }, "allocated.memory", `"-1Gi"`},
		"largestFree negative": {func(f *FactsReport) { f.LargestFree = resources("cpu", "-4") }, "largestFree.cpu", `"-4"`},
		"no session":           {func(f *FactsReport) { f.Session = "" }, "session", `""`},
		"session no UUID":      {func(f *FactsReport) { f.Session = "me" }, "session", `"me"`},
		"epoch negative":       {func(f *FactsReport) { f.Epoch = -1 }, "epoch", "-1"},
		"use without a fence":  {func(f *FactsReport) { f.Use[0].Fence = 0 }, "use[0].fence", "0"},
		"use of a bad name":    {func(f *FactsReport) { f.Use[0].Name = "A/B" }, "use[0].name", `"A/B"`},
		"use negative":         {func(f *FactsReport) { f.Use[0].Used = resources("cpu", "-1") }, "use[0].used.cpu", `"-1"`},
		"too much use":         {func(f *FactsReport) { f.Use = manyUse(MaxHoldUse + 1) }, "use", "2049"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := report()
			c.change(f)
			requireFault(t, ValidateFactsReport(f), c.path, c.value)
		})
	}
}

func badSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Near", Values: []string{"eu"}}}}
}

func manyResources(n int) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := range n {
		list[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	return list
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("l%d", i)] = "x"
	}
	return labels
}

func manyUse(n int) []HoldUse {
	use := make([]HoldUse, n)
	for i := range use {
		use[i] = HoldUse{Namespace: "rome", Name: fmt.Sprintf("r%d", i), Fence: 1}
	}
	return use
}

func int32Pointer(v int32) *int32 { return &v }
