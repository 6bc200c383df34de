package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// barWidth is the width of a usage bar, in characters.
const barWidth = 20

func newClustersCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "clusters",
		Short:   "Show what every member cluster offers",
		Long:    "Shows what every member cluster offers. In the bars, # is used by the cluster's own pods,\n= is reserved by others, · is free.",
		Example: "  bourse clusters\n  bourse clusters -o json",
		RunE: func(command *cobra.Command, _ []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			list, err := exchange.Advertisements(command.Context())
			if err != nil {
				return err
			}
			return c.print(command, list, func(w io.Writer) error { return printClusters(w, list.Items) })
		},
	}
	c.flags(command.Flags())
	return command
}

func printClusters(w io.Writer, advertisements []broker.ClusterAdvertisement) error {
	if len(advertisements) == 0 {
		_, err := fmt.Fprintln(w, "No member cluster has advertised yet. Start an agent: bourse agent --help")
		return err
	}
	rows := [][]string{{"CLUSTER", "STATUS", "REGION", "CPU", "FREE", "MEMORY", "FREE", "COST"}}
	for i := range advertisements {
		spec := &advertisements[i].Spec
		rows = append(rows, []string{
			spec.ClusterID, paintPhase(w, advertisements[i].Status.Phase), orDash(spec.Region),
			usageBar(&spec.Resources, corev1.ResourceCPU), freeOf(&spec.Resources, corev1.ResourceCPU),
			usageBar(&spec.Resources, corev1.ResourceMemory), freeOf(&spec.Resources, corev1.ResourceMemory),
			costText(&advertisements[i]),
		})
	}
	return table(w, rows)
}

func paintPhase(w io.Writer, phase broker.AdvertisementPhase) string {
	colour := red
	switch phase {
	case broker.AdvertisementActive:
		colour = green
	case broker.AdvertisementStale:
		colour = yellow
	}
	return paint(w, colour, string(phase))
}

func usageBar(r *broker.AdvertisedResources, name corev1.ResourceName) string {
	value := func(list corev1.ResourceList) int64 {
		quantity := list[name]
		return quantity.MilliValue()
	}
	return bar(barWidth, value(r.Allocatable), []int64{value(r.Allocated), value(r.Reserved)}, []rune{'#', '='})
}

func freeOf(r *broker.AdvertisedResources, name corev1.ResourceName) string {
	free, known := r.Available[name]
	all, reported := r.Allocatable[name]
	if !known && !reported {
		return "no data"
	}
	return shortQuantity(name, free) + "/" + shortQuantity(name, all)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
