package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slice is the share of one artifact of a blueprint on one cluster. The leader writes its spec, the
// cluster's agent its status.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Slice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the leader's instruction.
	Spec SliceSpec `json:"spec"`
	// Status is the agent's report.
	// +optional
	Status SliceStatus `json:"status,omitempty"`
}

// SliceSpec is an instruction to one cluster's agent.
type SliceSpec struct {
	// Blueprint that it belongs to, in the same namespace.
	Blueprint string `json:"blueprint"`
	// BlueprintUID tells blueprints of one name apart.
	BlueprintUID string `json:"blueprintUID"`
	// Slice of the blueprint.
	Slice string `json:"slice"`
	// ClusterID of the cluster that runs it.
	ClusterID string `json:"clusterID"`
	// Artifact as the blueprint names it.
	Artifact string `json:"artifact"`
	// Image that the artifact stands for.
	Image string `json:"image"`
	// Instances that should run.
	Instances int32 `json:"instances"`
	// Resources that one instance requests.
	Resources corev1.ResourceList `json:"resources"`
	// Rollout bounds a change of the image.
	// +optional
	Rollout BlueprintRollout `json:"rollout,omitempty"`
	// Command is what the agent has to bring about: Load, Activate, Deactivate or Unload.
	Command SliceCommand `json:"command"`
	// Attempt rises with each new try after a failure.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
}

// SliceCommand is what the leader wants.
type SliceCommand string

// The commands.
const (
	SliceLoad       SliceCommand = "Load"       // make the workload, with no instance
	SliceActivate   SliceCommand = "Activate"   // run the instances
	SliceDeactivate SliceCommand = "Deactivate" // run none
	SliceUnload     SliceCommand = "Unload"     // remove the workload
)

// SliceState is how far the agent is.
type SliceState string

// The states. After Unloading the condition Unloaded says that nothing is left.
const (
	SliceLoading      SliceState = "Loading"
	SliceLoaded       SliceState = "Loaded"
	SliceActivating   SliceState = "Activating"
	SliceActive       SliceState = "Active"
	SliceDeactivating SliceState = "Deactivating"
	SliceUnloading    SliceState = "Unloading"
	SliceFailed       SliceState = "Failed"
)

// Conditions that agents set.
const (
	// ConditionUnloaded on a Slice: nothing of it is left in the cluster.
	ConditionUnloaded = "Unloaded"
	// ConditionRefused on a Slice: the cluster's agent is not allowed to run it.
	ConditionRefused = "Refused"
	// ConditionBlueprints on a ClusterAdvertisement: the cluster runs blueprints, says its agent.
	ConditionBlueprints = "BlueprintsAllowed"
)

// SliceStatus is what the agent sees.
type SliceStatus struct {
	// ObservedGeneration is the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is Loading, Loaded, Activating, Active, Deactivating, Unloading or Failed.
	// +optional
	State SliceState `json:"state,omitempty"`
	// StateSince is when the state began, Failed once for each instruction; the exchange keeps it.
	// +optional
	StateSince *metav1.MicroTime `json:"stateSince,omitempty"`
	// Fence is the revision at which the slice's present hold began; the ledger keeps it. Agents
	// report use with it.
	// +optional
	Fence int64 `json:"fence,omitempty"`
	// ReadyInstances are ready now, of whichever version.
	// +optional
	ReadyInstances int32 `json:"readyInstances,omitempty"`
	// Message says in words why the state is what it is.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions: Ready and Stalled, CapacityShort, and what the agent reports: Unloaded, Refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SliceList is a list of slices.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SliceList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the slices.
	Items []Slice `json:"items"`
}
