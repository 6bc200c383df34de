package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// DefaultHeartbeatEvery is a third of the exchange's default stale limit (90 s): two lost
	// heartbeats cost nothing.
	DefaultHeartbeatEvery = 30 * time.Second
	// DefaultPublishWithin gathers a burst of pod events (a rollout) into one report.
	DefaultPublishWithin = 200 * time.Millisecond
	// MaxPublishWithin is what a change may wait here: it must be with the exchange within 1 s, and
	// the rest is the request's.
	MaxPublishWithin = 900 * time.Millisecond
	// MinHeartbeatEvery bounds HeartbeatEvery from below: more often, 50 agents would be a load.
	MinHeartbeatEvery = time.Second
	// MaxHeartbeatEvery bounds it from above: more seldom, the exchange would call a healthy agent Stale.
	MaxHeartbeatEvery = 80 * time.Second

	// requestTimeout bounds one request to the exchange. An election takes about a second; the
	// answer of a node that waits for one still comes in time.
	requestTimeout = 5 * time.Second
	// backoffBase and backoffCap: waits of 0.25..0.5 s, doubling to 5..10 s. After an outage the
	// last agent is back within 10 s, and 50 agents make at most 10 requests a second meanwhile.
	backoffBase = 500 * time.Millisecond
	backoffCap  = 10 * time.Second

	// blindAfter is how long the agent goes on speaking for a member cluster whose API server it
	// can't reach. Then it falls silent and the exchange calls the offer Stale: figures that
	// nobody can check are not to be sold.
	blindAfter = 90 * time.Second

	// maxEndedFences remembers fences of deleted reservations, so that a late event can't bring
	// one back. About 150 bytes each: 600 KiB.
	maxEndedFences = 4096

	// stopWithin bounds the end of the HTTP listener's open requests.
	stopWithin = 3 * time.Second
	// readHeaderWithin bounds a slow client of the metrics listener.
	readHeaderWithin = 5 * time.Second

	// MaxBlueprintNamespaces bounds a Consent: each namespace is watched for itself.
	MaxBlueprintNamespaces = 64
	// MaxBlueprintRegistries bounds a Consent: each image is compared with each of them.
	MaxBlueprintRegistries = 64

	// What a slice may take from one state to the next before it is Failed. Activating starts anew with each instance
	// that gets ready, as a Deployment's own deadline does: a hundred instances come up a few at a time.
	loadWithin       = 2 * time.Minute
	activateWithin   = time.Minute
	deactivateWithin = 30 * time.Second
	unloadWithin     = 2 * time.Minute
	// stopGraceSeconds is what an instance gets to end by itself; within deactivateWithin.
	stopGraceSeconds int64 = 20
	// orphanGrace is how long a workload may be without its slice: a slice deleted by hand is made again, and claims it.
	orphanGrace = 30 * time.Second

	// actEvery bounds writes into the member cluster: 20 a second, so that 2,048 slices, the most for which one cluster
	// reports use, are loaded within 103 s of their 2 minutes.
	actEvery = 50 * time.Millisecond
	// waitForSight is how often it is looked whether slices can be judged again, while they can't.
	waitForSight = time.Second
	// idle is how long the driver may sleep while nothing changes.
	idle = time.Hour
	// lookAgain is how often a slice is looked at whose Deployment can't be watched.
	lookAgain = 10 * time.Second
	// tellEvery bounds status writes of one slice that change its message only: kubelets say the same in turns.
	tellEvery = 10 * time.Second
	// maxSliceMessage of a status: what a person reads of a pod's trouble.
	maxSliceMessage = 512

	// maxLabelValue is Kubernetes' own, also of cluster ids.
	maxLabelValue = validation.LabelValueMaxLength
	// maxWorkloadName leaves room for the 11 characters that a ReplicaSet's name adds to its Deployment's.
	maxWorkloadName = validation.DNS1123SubdomainMaxLength - 11
)

// defaultRollout is Kubernetes' own.
var defaultRollout = intstr.FromString("25%")
