package allocation

import broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"

const (
	// MaxAmount bounds every single amount; see the API's words.
	MaxAmount = broker.MaxAmount

	// MaxResources of one request, and of its chunk, that a Decision shows; the API admits no more.
	MaxResources = broker.MaxResources
	// Listed is how many of the best clusters, and of the nearest misses, a Decision names.
	Listed = 8

	// MaxRecordBytes bounds an encoded Decision. What is left out to keep it is told at EncodeDecision.
	MaxRecordBytes = 1023
	// recordNamesBytes of a record may go to names of resources: cpu, memory and a dozen short ones, or
	// one or two of a long domain. The other 800 hold 16 clusters with short names, 8 with the longest.
	recordNamesBytes = 160
	// recordResources is how many resources a record names.
	recordResources = 8

	// messageCandidates is how many near misses a message names; the others it counts.
	messageCandidates = 4
	// messageReasons is how many lacking resources a message names for one cluster.
	messageReasons = 4
	// MaxMessageBytes bounds a message: 4 clusters of 63 bytes with 4 resources of 90 are 1.7 KiB, so the
	// longest are cut; the usual one has 100.
	MaxMessageBytes = 1024

	// maxColumns bounds the resources that a Market keeps in packed columns: cpu, memory, and those
	// that requests named last. One costs 52 B a cluster: 50 MB with 10,000 clusters and 96 columns.
	// A request and its chunk name at most 64.
	maxColumns = 96
	// maxLabelColumns bounds the label keys that a Market keeps in packed columns, 4 B a cluster
	// and key; a selector names at most 32 keys.
	maxLabelColumns = 64
)
