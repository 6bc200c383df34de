package simulated

import "time"

const (
	// DefaultNodes of the default size make a cluster of 12 cores and 48 GiB.
	DefaultNodes = 3
	// DefaultCPUPerNode is a common size of virtual machine, with DefaultMemoryPerNode.
	DefaultCPUPerNode = "4"
	// DefaultMemoryPerNode is 4 GiB a core.
	DefaultMemoryPerNode = "16Gi"
	// DefaultEvery is often enough to see something move, and seldom enough to read it.
	DefaultEvery = 3 * time.Second
	// DefaultLowPercent leaves most of a cluster to lend, as DefaultHighPercent does.
	DefaultLowPercent = 20
	// DefaultHighPercent is how full a cluster gets.
	DefaultHighPercent = 50

	// MaxNodes bounds what one process simulates; 100 nodes full of the smallest pods are 4,000 pods.
	MaxNodes = 100
	// MinEvery keeps a mistyped interval from spinning.
	MinEvery = 10 * time.Millisecond

	// tendEvery is how often Deployments are looked at; what a person takes for at once.
	tendEvery = 200 * time.Millisecond
	// readyAfter, and up to readyWithin more, is how long an instance takes to get ready.
	readyAfter  = time.Second
	readyWithin = time.Second
	// watchQueue is how many events a watcher may be behind before who writes waits for it.
	watchQueue = 100
	// brokenTag of an image: its instances never get ready.
	brokenTag = "broken"

	// podsPerNode is what a kubelet allows by default.
	podsPerNode = 110
	// nodeChangeOneIn: one step in so many is a node that joins or leaves, the others are pods.
	nodeChangeOneIn = 40
)

// podSizes are requests as they are common in clusters: many small ones, few large.
var podSizes = []podSize{
	{cpu: "100m", memory: "128Mi"},
	{cpu: "100m", memory: "256Mi"},
	{cpu: "250m", memory: "512Mi"},
	{cpu: "500m", memory: "1Gi"},
	{cpu: "500m", memory: "2Gi"},
	{cpu: "1", memory: "2Gi"},
}
