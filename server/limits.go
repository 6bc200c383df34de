package server

import "time"

// The limits of one node's HTTP side.
const (
	// maxBodyBytes of any request: the largest, a report with 2,048 holds of about 200 bytes, is
	// 400 KiB. Stored objects are bounded further by v1alpha1.MaxObjectBytes.
	maxBodyBytes = 512 << 10
	// maxBatchWarnings about the items of one batch: they are headers.
	maxBatchWarnings = 8
	// maxHeaderBytes: a list's selectors and a certificate-less request's headers are a few KiB.
	maxHeaderBytes = 64 << 10

	// maxReads and maxWrites in flight. A write holds its body of some 2 KiB, decoded and encoded again
	// about ten times that, while it waits for its Raft round: 400 of them are 8 MiB. (Of the largest
	// objects, 128 KiB, they would be 200 MiB: see maxBatchWrites.) Watches do not count.
	maxReads  = 400
	maxWrites = 400

	// maxBatchWrites in flight: one of the largest takes 2 MiB while it is decoded and waits, 16 of them
	// 32 MiB. Others are told to come again.
	maxBatchWrites = 16

	// requestTimeout of all but watches. A write waits for one Raft round, and for a leader at most this long.
	requestTimeout = 30 * time.Second
	// readHeaderTimeout ends connections that never ask for anything.
	readHeaderTimeout = 10 * time.Second
	// bodyTimeout: 512 KiB in ten seconds are 420 kbit/s.
	bodyTimeout = 10 * time.Second
	// idleTimeout of kept-alive connections; longer than the agents' heartbeat (30 s).
	idleTimeout = 2 * time.Minute
	// drainTimeout: how long Run waits at the end for requests in flight. Watches are ended at once.
	drainTimeout = 10 * time.Second

	// retryAfterSeconds is said only where surely nothing was proposed; an election takes about a second.
	retryAfterSeconds = 1

	// minWatchSeconds: watches without a timeout of their own end after 1x to 2x of this, so that
	// clients spread over the nodes again.
	minWatchSeconds = 1800
)
