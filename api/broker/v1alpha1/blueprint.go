package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Blueprint says which artifacts run on the member clusters, how many instances of each, and
// under which constraints. The exchange spreads it over clusters as Slices and keeps it there.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Blueprint struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what should run.
	Spec BlueprintSpec `json:"spec"`
	// Status is what does, and why it is where it is.
	// +optional
	Status BlueprintStatus `json:"status,omitempty"`
}

// BlueprintSpec is what should run.
type BlueprintSpec struct {
	// Slices are the artifacts, each at most once.
	// +listType=map
	// +listMapKey=name
	Slices []BlueprintSlice `json:"slices"`
	// Strategy says how instances are spread: RoundRobin (default), Spread, Pack, Cheapest or Balanced.
	// +optional
	Strategy BlueprintStrategy `json:"strategy,omitempty"`
	// Reconciliation is Conservative (default: what runs well stays where it is) or Aggressive
	// (instances move to where they would be placed now, at most maxMoves at a time).
	// +optional
	Reconciliation BlueprintReconciliation `json:"reconciliation,omitempty"`
	// MaxMoves is how many instances an Aggressive reconciliation moves at a time. Default 1.
	// +optional
	MaxMoves *int32 `json:"maxMoves,omitempty"`
	// Rollout bounds what a new version of an artifact may cost while it comes up.
	// +optional
	Rollout BlueprintRollout `json:"rollout,omitempty"`
	// Admission is Warn (default) or Strict: a Strict blueprint that would not fit now is refused.
	// +optional
	Admission BlueprintAdmission `json:"admission,omitempty"`
}

// BlueprintSlice is one artifact of a blueprint.
type BlueprintSlice struct {
	// Name of the slice within the blueprint, a DNS label.
	Name string `json:"name"`
	// Artifact is an OCI image reference, or coordinates group:name:version that the exchange's
	// configuration maps to a registry.
	Artifact string `json:"artifact"`
	// Instances is how many run. Either this, or minInstances and maxInstances.
	// +optional
	Instances *int32 `json:"instances,omitempty"`
	// MinInstances must run.
	// +optional
	MinInstances *int32 `json:"minInstances,omitempty"`
	// MaxInstances run where there is capacity.
	// +optional
	MaxInstances *int32 `json:"maxInstances,omitempty"`
	// Resources that one instance requests, and holds in the ledger.
	Resources corev1.ResourceList `json:"resources"`
	// ClusterSelector limits the clusters by their labels; region and provider count as labels.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Affinity names slices of this blueprint: instances run only on clusters that run all of them.
	// +optional
	// +listType=set
	Affinity []string `json:"affinity,omitempty"`
	// AntiAffinity names slices of this blueprint that share no cluster with this one; its own
	// name: at most one instance on each cluster.
	// +optional
	// +listType=set
	AntiAffinity []string `json:"antiAffinity,omitempty"`
	// Priority: who is short first when a cluster shrinks, on one scale with reservations. -1000
	// to 1000, default 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// BlueprintStrategy is how instances are spread over clusters.
type BlueprintStrategy string

// The strategies. Ties are broken by cluster ID.
const (
	StrategyRoundRobin BlueprintStrategy = "RoundRobin" // one after another, in the order of their IDs
	StrategySpread     BlueprintStrategy = "Spread"     // on the cluster that runs the fewest of the blueprint
	StrategyPack       BlueprintStrategy = "Pack"       // on as few clusters as will do, the fullest first
	StrategyCheapest   BlueprintStrategy = "Cheapest"   // on the cheapest
	StrategyBalanced   BlueprintStrategy = "Balanced"   // by the score of reservations: 70 % what is left, 30 % price
)

// BlueprintReconciliation is how much may move.
type BlueprintReconciliation string

// The reconciliations.
const (
	ReconcileConservative BlueprintReconciliation = "Conservative"
	ReconcileAggressive   BlueprintReconciliation = "Aggressive"
)

// BlueprintAdmission is what happens to a blueprint that would not fit.
type BlueprintAdmission string

// The admissions.
const (
	AdmissionWarn   BlueprintAdmission = "Warn"
	AdmissionStrict BlueprintAdmission = "Strict"
)

// BlueprintRollout bounds a change of version on each cluster, as a Deployment's rolling update
// does. Versions change on one cluster after another.
type BlueprintRollout struct {
	// MaxUnavailable of a cluster's instances may be missing: a number or a percentage. Default 25%.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge instances more than wanted may run on a cluster: a number or a percentage. Default 25%.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// BlueprintPhase sums a blueprint up.
type BlueprintPhase string

// The phases of a blueprint.
const (
	BlueprintPending     BlueprintPhase = "Pending"     // not looked at yet
	BlueprintProgressing BlueprintPhase = "Progressing" // instances are placed and on their way
	BlueprintActive      BlueprintPhase = "Active"      // all that should run is ready
	BlueprintDegraded    BlueprintPhase = "Degraded"    // something can't be placed, failed, or was rolled back
)

// BlueprintStatus is what runs.
type BlueprintStatus struct {
	// ObservedGeneration is the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is Pending, Progressing, Active or Degraded.
	// +optional
	Phase BlueprintPhase `json:"phase,omitempty"`
	// PhaseSince is when the phase began.
	// +optional
	PhaseSince *metav1.MicroTime `json:"phaseSince,omitempty"`
	// Desired instances, over all slices.
	// +optional
	Desired int32 `json:"desired,omitempty"`
	// Placed instances: those that hold capacity.
	// +optional
	Placed int32 `json:"placed,omitempty"`
	// Ready instances.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// Message says in words why the phase is what it is.
	// +optional
	Message string `json:"message,omitempty"`
	// Slices, in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	Slices []BlueprintSliceStatus `json:"slices,omitempty"`
	// History of what ran in full, by generation of the spec, newest first.
	// +optional
	// +listType=atomic
	History []BlueprintVersion `json:"history,omitempty"`
	// RolledBack names the version that never got ready; it is not tried again until the spec changes.
	// +optional
	RolledBack *BlueprintRollback `json:"rolledBack,omitempty"`
	// ActivatedAt is when all instances of this generation were first ready.
	// +optional
	ActivatedAt *metav1.MicroTime `json:"activatedAt,omitempty"`
	// Plan is what a dry run would change; absent in stored blueprints.
	// +optional
	// +listType=atomic
	Plan []PlannedChange `json:"plan,omitempty"`
	// Conditions: Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BlueprintSliceStatus is one artifact as it runs.
type BlueprintSliceStatus struct {
	// Name of the slice.
	Name string `json:"name"`
	// Artifact that runs or is being brought up.
	Artifact string `json:"artifact"`
	// Desired instances.
	Desired int32 `json:"desired"`
	// Placed instances.
	Placed int32 `json:"placed"`
	// Ready instances.
	Ready int32 `json:"ready"`
	// PricePerHour of the placed instances; "Unpriced" where one cluster states no price.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// Clusters that run it, and why they were chosen.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	Clusters []BlueprintPlacement `json:"clusters,omitempty"`
	// Message says what is missing and why: the nearest clusters, and what each lacks.
	// +optional
	Message string `json:"message,omitempty"`
}

// BlueprintPlacement is the share of one cluster.
type BlueprintPlacement struct {
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID"`
	// Instances placed there.
	Instances int32 `json:"instances"`
	// Ready instances there.
	Ready int32 `json:"ready"`
	// State of the slice there.
	// +optional
	State SliceState `json:"state,omitempty"`
	// Reason says why it is there.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// BlueprintVersion is what the slices ran in full by the end of one generation of the spec. They get into
// it one by one: one that has no place does not keep the others out.
type BlueprintVersion struct {
	// Generation of the spec.
	Generation int64 `json:"generation"`
	// Artifacts by slice: what each last ran in full, be it of an earlier generation. A slice that never
	// did is not among them.
	Artifacts map[string]string `json:"artifacts"`
	// ActiveAt is when the last slice to get into it was ready.
	ActiveAt metav1.MicroTime `json:"activeAt"`
}

// BlueprintRollback is a version that was taken back.
type BlueprintRollback struct {
	// Generation of the spec that did not get ready.
	Generation int64 `json:"generation"`
	// Slice whose new artifact did not get ready.
	Slice string `json:"slice"`
	// Artifact that did not.
	Artifact string `json:"artifact"`
	// ClusterID where it did not.
	ClusterID string `json:"clusterID"`
	// Message of the slice there.
	// +optional
	Message string `json:"message,omitempty"`
}

// PlannedChange is one line of a plan.
type PlannedChange struct {
	// Action is + (more instances), - (fewer) or ~ (as many, of another artifact or size).
	Action string `json:"action"`
	// Slice of the blueprint.
	Slice string `json:"slice"`
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID"`
	// Before and After are instances there.
	Before int32 `json:"before"`
	After  int32 `json:"after"`
	// NewVersion: those that stay get another artifact or size; the reason says which becomes which.
	// +optional
	NewVersion bool `json:"newVersion,omitempty"`
	// Reason says why.
	// +optional
	Reason string `json:"reason,omitempty"`
	// PricePerHour of After instances there.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
}

// BlueprintList is a list of blueprints.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type BlueprintList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the blueprints.
	Items []Blueprint `json:"items"`
}
