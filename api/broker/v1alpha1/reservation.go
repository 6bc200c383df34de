package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reservation asks for capacity of another cluster and, once granted, is the hold on it.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type Reservation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request. It is immutable once the phase is not Pending, but
	// for a longer duration of a Reserved one.
	Spec ReservationSpec `json:"spec"`
	// Status is the exchange's answer.
	// +optional
	Status ReservationStatus `json:"status,omitempty"`
}

// ReservationSpec is a request for capacity.
type ReservationSpec struct {
	// RequesterID is the cluster that asks.
	RequesterID string `json:"requesterID"`
	// RequestedResources is what is asked for: any resource name counts.
	RequestedResources corev1.ResourceList `json:"requestedResources"`
	// Duration is how long the capacity is held from the grant on, as "2h" or "90m"; at most a
	// year. Empty: until deleted.
	// +optional
	Duration string `json:"duration,omitempty"`
	// Priority: a higher number is served first. -1000 to 1000, default 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// WaitFor is how long the request may wait for capacity. Empty: it fails at once where nothing fits.
	// +optional
	WaitFor string `json:"waitFor,omitempty"`
	// Chunk is the least that must be free on one single node of the target.
	// +optional
	Chunk corev1.ResourceList `json:"chunk,omitempty"`
	// ClusterSelector limits the candidates by the advertisements' labels; region and provider count as labels.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// TargetClusterID limits the candidates to one cluster.
	// +optional
	TargetClusterID string `json:"targetClusterID,omitempty"`
	// MaxCostPerHour is the most that the whole request may cost per hour, a decimal string.
	// +optional
	MaxCostPerHour string `json:"maxCostPerHour,omitempty"`
	// Split lets the request be met in pieces on several clusters, the cheapest first.
	// +optional
	Split *Split `json:"split,omitempty"`
	// TTLSecondsAfterFinished is how long a Released or Failed reservation is kept. Default a day.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ReservationPhase is the state of a reservation.
type ReservationPhase string

// The phases of a reservation. Released and Failed are final.
const (
	ReservationPending  ReservationPhase = "Pending"
	ReservationReserved ReservationPhase = "Reserved"
	ReservationReleased ReservationPhase = "Released"
	ReservationFailed   ReservationPhase = "Failed"
)

// ReservationStatus is the exchange's answer to a request.
type ReservationStatus struct {
	// Phase is Pending, Reserved, Released or Failed.
	// +optional
	Phase ReservationPhase `json:"phase,omitempty"`
	// TargetClusterID is the cluster whose capacity is held.
	// +optional
	TargetClusterID string `json:"targetClusterID,omitempty"`
	// TargetClusterEndpoint is that cluster's endpoint at the time of the grant.
	// +optional
	TargetClusterEndpoint string `json:"targetClusterEndpoint,omitempty"`
	// ReservedAt is when the capacity was granted.
	// +optional
	ReservedAt *metav1.MicroTime `json:"reservedAt,omitempty"`
	// ExpiresAt is when the hold ends by itself; absent: when it is deleted.
	// +optional
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`
	// Fence is the revision at which the hold began. Agents refuse an instruction with an older one.
	// +optional
	Fence int64 `json:"fence,omitempty"`
	// PricePerHour is the price of the whole request at the time of the grant.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// Message says in words why the phase is what it is.
	// +optional
	Message string `json:"message,omitempty"`
	// Pieces of a split reservation. It holds nothing itself: they do.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pieces []Piece `json:"pieces,omitempty"`
	// PartOf says which batch or split reservation this one is a part of.
	// +optional
	PartOf *PartOf `json:"partOf,omitempty"`
	// Decision is the record of how the target was chosen, or why none could be.
	// +optional
	Decision *Decision `json:"decision,omitempty"`
	// Conditions: Ready, Stalled, and what agents report.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Decision is how a request was decided.
type Decision struct {
	// Revision of the state on which was decided.
	Revision int64 `json:"revision"`
	// Policy names the weights used, as "resource=70,cost=30".
	Policy string `json:"policy"`
	// Counts: how many clusters were considered, how many were feasible, and per reason how many were not.
	// +optional
	Counts map[string]int64 `json:"counts,omitempty"`
	// Candidates are the best feasible clusters, best first, then the nearest misses.
	// +optional
	// +listType=atomic
	Candidates []Candidate `json:"candidates,omitempty"`
}

// Candidate is one cluster as it was seen by a decision.
type Candidate struct {
	// ClusterID of the candidate.
	ClusterID string `json:"clusterID"`
	// Feasible: the request would have fitted and no filter excluded the cluster.
	Feasible bool `json:"feasible"`
	// Reason says why not, with figures.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Available is what could be reserved of the requested resources.
	// +optional
	Available corev1.ResourceList `json:"available,omitempty"`
	// PricePerHour of the whole request there; "Unpriced" where the cluster states no price.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// ResourceScore in parts per billion.
	// +optional
	ResourceScore int64 `json:"resourceScore,omitempty"`
	// CostScore in parts per billion.
	// +optional
	CostScore int64 `json:"costScore,omitempty"`
	// Score in parts per billion; the highest wins.
	// +optional
	Score int64 `json:"score,omitempty"`
}

// ReservationList is a list of reservations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ReservationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the reservations.
	Items []Reservation `json:"items"`
}

// ReservationExplanation is the answer of the explain subresource: the full
// table of candidates on the present state. The record of what was decided is
// the reservation's status.decision; the two may differ.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ReservationExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Decision on the present state, with every candidate.
	Decision Decision `json:"decision"`
}
