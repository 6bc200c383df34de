package v1alpha1

import "time"

// The limits of what users and agents may write. One object stays far below
// MaxObjectBytes when every list in it is full: 4 resource lists of 32 entries of
// at most 317+24 bytes are 44 KiB, labels 64*317 B are 20 KiB.
const (
	// MaxObjectBytes bounds one object of this group as JSON, annotations and managedFields included.
	MaxObjectBytes = 128 << 10

	// MaxBatchBytes bounds a ReservationBatch as JSON. With 24 KiB for what the server adds it is one
	// command to the leader (384 KiB): 1,000 items of 350 bytes; a plain one has 150.
	MaxBatchBytes = 360 << 10
	// MaxBatchItems of one batch. Its results are kept in one row, of 260 bytes each at most.
	MaxBatchItems = 1000
	// MaxAtomicItems of an atomic batch: one command has at most 256 guards, writes and moves each.
	MaxAtomicItems = 128
	// MaxItemBytes of one item's spec: its reservation is an object under MaxObjectBytes.
	MaxItemBytes = MaxObjectBytes - 16<<10
	// MaxItemNameBytes of an item and of a batch: both are one label's value.
	MaxItemNameBytes = 63
	// MaxResultMessageBytes of one result: what is missing where, in short.
	MaxResultMessageBytes = 160
	// MaxPieces of a split reservation: as many clusters as a decision ranks.
	MaxPieces = 8

	// MaxClusterIDBytes is a DNS label's length.
	MaxClusterIDBytes = 63
	// MaxNameBytes is a DNS subdomain's length.
	MaxNameBytes = 253
	// MaxResources in one list of resources. A node of Kubernetes rarely names more than ten.
	MaxResources = 32
	// MaxLabels on one object; they are matched against every waiting request's selector.
	MaxLabels = 64
	// MaxFinalizers on one object.
	MaxFinalizers = 16
	// MaxOwnerReferences on one object.
	MaxOwnerReferences = 16
	// MaxSelectorTerms of a clusterSelector: matchLabels and matchExpressions together.
	MaxSelectorTerms = 32
	// MaxSelectorValues of one matchExpression.
	MaxSelectorValues = 64
	// MaxEndpointBytes of spec.endpoint.
	MaxEndpointBytes = 512
	// MaxCostEntries of spec.cost: one for each resource, and the currency.
	MaxCostEntries = MaxResources + 1
	// MaxConditions in a status.
	MaxConditions = 16
	// MaxConditionMessageBytes of one condition; 16 of them are 16 KiB.
	MaxConditionMessageBytes = 1 << 10
	// MaxHoldUse entries in one report: the most holds that one cluster reports use for.
	// An entry is about 1 KiB at most, 200 bytes as a rule: 400 KiB, under the body limit.
	MaxHoldUse = 2048

	// MaxBlueprintSlices in one blueprint, and MaxBlueprintInstances of all of them together. The
	// status fits one Txn of 511 KiB: 1,000 instances on as many shares of at most 270 bytes each
	// (cluster 63, words 80, reason 127) are 264 KiB, 32 slices with artifact and message 50 KiB,
	// the history of 5 versions 92 KiB.
	MaxBlueprintSlices    = 32
	MaxBlueprintInstances = 1000
	// MaxBlueprintHistory versions: 5 of 32 artifacts with their slices' names (512+63+8 bytes).
	MaxBlueprintHistory = 5
	// MaxPlacementReasonBytes of one placement.
	MaxPlacementReasonBytes = 127
	// MaxArtifactBytes: an image's name (255), tag (128) and digest of SHA-256 (71) with what parts them.
	MaxArtifactBytes = 512
	// MaxReadyInstances of one slice: all of a blueprint, and as many again while they roll.
	MaxReadyInstances = 2 * MaxBlueprintInstances
	// DefaultMaxMoves of an Aggressive blueprint: one at a time disturbs least.
	DefaultMaxMoves = 1
	// DefaultRolloutPercent of instances, both unavailable and surge: a Deployment's own.
	DefaultRolloutPercent = 25

	// MinPriority and MaxPriority bound spec.priority.
	MinPriority = -1000
	MaxPriority = 1000

	// MaxSpan is the longest duration and waitFor: a year.
	MaxSpan = 8760 * time.Hour
	// DefaultRetention is how long a finished reservation is kept where it does not say: a day.
	DefaultRetention = 24 * time.Hour
	// MaxRetentionSeconds is a year, as MaxSpan.
	MaxRetentionSeconds = int32(MaxSpan / time.Second)
)
