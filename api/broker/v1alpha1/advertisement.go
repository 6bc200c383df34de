package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterAdvertisement is what one member cluster offers to the exchange:
// what it has, what is in use, what is promised, and what it costs.
// It is named <clusterID>-adv.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterAdvertisement struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the offer. Endpoint, region, provider, cost and lending belong to
	// the provider's operators; the resource figures are the agent's and the
	// ledger's and are kept as they are on ordinary writes.
	Spec ClusterAdvertisementSpec `json:"spec"`
	// Status is what the exchange knows of the cluster's agent.
	// +optional
	Status ClusterAdvertisementStatus `json:"status,omitempty"`
}

// ClusterAdvertisementSpec is the offer of one member cluster.
type ClusterAdvertisementSpec struct {
	// ClusterID names the member cluster: a DNS label, unique in the exchange.
	ClusterID string `json:"clusterID"`
	// Endpoint is the URL under which the cluster's API server can be reached by its peers.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Region is where the cluster runs. Counts as the label "region" for clusterSelector.
	// +optional
	Region string `json:"region,omitempty"`
	// Provider is who runs the cluster's machines. Counts as the label "provider" for clusterSelector.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Resources are the figures of the offer. Written by the agent and the ledger only.
	// +optional
	Resources AdvertisedResources `json:"resources,omitempty"`
	// LargestFree is the most of each resource that is free on one single node. Written by the agent only.
	// +optional
	LargestFree corev1.ResourceList `json:"largestFree,omitempty"`
	// Cost is the price list: "currency" (three letters), and either "perHour" (one price per
	// core-hour, all included) or one price per unit and hour for each resource: cpu per core,
	// memory and other byte resources per GiB, all else per piece. Prices are decimal strings.
	// +optional
	Cost map[string]string `json:"cost,omitempty"`
	// Lending says what of the cluster may be lent.
	// +optional
	Lending Lending `json:"lending,omitempty"`
}

// AdvertisedResources are the figures of an offer.
// available = max(0, allocatable - keepBack - allocated - reserved).
type AdvertisedResources struct {
	// Allocatable is what pods can use on the cluster's usable nodes, as its agent last reported.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is what the cluster's own pods request, without the pods that run inside a live hold.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// Reserved is what the ledger holds for others: for each hold the greater of held and used.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// Available is what can be reserved now.
	// +optional
	Available corev1.ResourceList `json:"available,omitempty"`
}

// Lending is the provider's say over what may be lent.
type Lending struct {
	// KeepBack is held back for the cluster itself and never lent.
	// +optional
	KeepBack corev1.ResourceList `json:"keepBack,omitempty"`
	// Cordoned stops new reservations; those that exist stay.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
	// Withdrawn ends every reservation on this cluster (Released, ProviderWithdrawn) and takes no new one.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// AdvertisementPhase is the state of an advertisement.
type AdvertisementPhase string

// The phases of an advertisement.
const (
	// AdvertisementActive: the agent is heard from.
	AdvertisementActive AdvertisementPhase = "Active"
	// AdvertisementStale: the agent was not heard within the stale limit, or never.
	AdvertisementStale AdvertisementPhase = "Stale"
	// AdvertisementWithdrawn: the provider has withdrawn the offer.
	AdvertisementWithdrawn AdvertisementPhase = "Withdrawn"
)

// ClusterAdvertisementStatus is what the exchange knows of a cluster's agent.
type ClusterAdvertisementStatus struct {
	// Phase is Active, Stale or Withdrawn. Only an Active cluster is offered.
	// +optional
	Phase AdvertisementPhase `json:"phase,omitempty"`
	// LastSeen is when a report of the agent was last recorded. Unchanged
	// reports are not recorded: while the phase is Active the agent is heard.
	// +optional
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
	// Epoch counts the sessions that agents of this cluster have opened; the newest wins.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// Conditions: Ready, Stalled, DuplicateAgent, CapacityShort.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterAdvertisementList is a list of advertisements.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ClusterAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the advertisements.
	Items []ClusterAdvertisement `json:"items"`
}

// FactsReport is what an agent sends to the facts subresource of its own
// advertisement: a heartbeat, and the figures that only it can know.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type FactsReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Session is a random id of the agent process, the same for all its reports.
	Session string `json:"session"`
	// Epoch is the session's number as the exchange gave it; 0 opens a session.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// Sequence grows with each report of a session; an older one never overwrites a newer one.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
	// Allocatable as in the advertisement.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is the effective requests of all pods on usable nodes, those inside holds included.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// LargestFree as in the advertisement.
	// +optional
	LargestFree corev1.ResourceList `json:"largestFree,omitempty"`
	// Use is what pods inside each hold request now.
	// +optional
	// +listType=atomic
	Use []HoldUse `json:"use,omitempty"`

	// Status is the answer of the exchange.
	// +optional
	Status FactsReportStatus `json:"status,omitempty"`
}

// HoldUse is what the pods inside one hold request.
type HoldUse struct {
	// Kind of the holder: Reservation (default) or Slice.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Namespace of the holder.
	Namespace string `json:"namespace"`
	// Name of the holder.
	Name string `json:"name"`
	// Fence of the hold; use of an older hold of the same name is dropped.
	Fence int64 `json:"fence"`
	// Used is what its pods request.
	Used corev1.ResourceList `json:"used"`
}

// The kinds of holders that an agent reports use of.
const (
	HolderReservation = "Reservation"
	HolderSlice       = "Slice"
)

// FactsOutcome is the exchange's answer to a report.
type FactsOutcome string

// The outcomes of a report.
const (
	// FactsAccepted: recorded, or nothing had changed.
	FactsAccepted FactsOutcome = "Accepted"
	// FactsSuperseded: a newer agent speaks for this cluster; stay silent until the advertisement is Stale.
	FactsSuperseded FactsOutcome = "Superseded"
	// FactsUnknownSession: the exchange does not know this epoch; open a new session.
	FactsUnknownSession FactsOutcome = "UnknownSession"
)

// FactsReportStatus is the exchange's answer to a report.
type FactsReportStatus struct {
	// Outcome is Accepted, Superseded or UnknownSession.
	// +optional
	Outcome FactsOutcome `json:"outcome,omitempty"`
	// Epoch to use from now on.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// Revision at which the answer was true.
	// +optional
	Revision int64 `json:"revision,omitempty"`
}
