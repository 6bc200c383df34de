package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bourse-dev/bourse/allocation"
)

// What all contenders are asked: every request is alike, and every cluster has room for thousands.
const (
	requestMilli = 25
	requestBytes = 32 << 20
)

// requestAmounts is that request as the allocator takes it.
var requestAmounts = allocation.NewAmounts(
	allocation.Amount{Resource: allocation.CPU, Value: requestMilli},
	allocation.Amount{Resource: allocation.Memory, Value: requestBytes})

func requestList() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(requestMilli, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(requestBytes, resource.BinarySI),
	}
}

// clusterSize is one cluster, the same for all contenders: 256 to 512 cores with 4 GiB each, a core
// from 0.20 to 0.60 an hour.
type clusterSize struct {
	id         string
	cores, gib int64
	core, ram  string // prices
	coreNano   int64
	ramNano    int64
}

func clusterOf(i int) clusterSize {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	cores := 256 + random.Int64N(257)
	cents := 20 + random.Int64N(41)
	return clusterSize{
		id: fmt.Sprintf("c%05d", i), cores: cores, gib: 4 * cores,
		core: fmt.Sprintf("0.%02d", cents), ram: fmt.Sprintf("0.0%02d", cents),
		coreNano: cents * 10_000_000, ramNano: cents * 1_000_000,
	}
}

func (c clusterSize) allocatable() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(c.cores, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(c.gib<<30, resource.BinarySI),
	}
}

// offer is the cluster as the peers' allocator takes it, with so many requests held.
func (c clusterSize) offer(holds int64) allocation.Offer {
	return allocation.Offer{
		ClusterID: c.id,
		Account: &allocation.Account{
			Allocatable: allocation.NewAmounts(
				allocation.Amount{Resource: allocation.CPU, Value: c.cores * 1000},
				allocation.Amount{Resource: allocation.Memory, Value: c.gib << 30}),
			HeldOrUsed: allocation.NewAmounts(
				allocation.Amount{Resource: allocation.CPU, Value: holds * requestMilli},
				allocation.Amount{Resource: allocation.Memory, Value: holds * requestBytes}),
		},
		Prices: allocation.Prices{Priced: true, Unit: []allocation.UnitPrice{
			{Resource: allocation.CPU, Nano: c.coreNano}, {Resource: allocation.Memory, Nano: c.ramNano},
		}},
	}
}
