package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// status is what `bourse status -o json` prints.
type status struct {
	adminv1.RaftConfiguration
	Clusters map[broker.AdvertisementPhase]int `json:"clusters"`
}

func newStatusCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show the broker nodes: members, leader, term, lag",
		Example: "  bourse status\n  bourse status -o json",
		RunE: func(command *cobra.Command, _ []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			configuration, err := exchange.Configuration(command.Context())
			if err != nil {
				return err
			}
			advertisements, err := exchange.Advertisements(command.Context())
			if err != nil {
				return err
			}
			s := status{RaftConfiguration: *configuration, Clusters: map[broker.AdvertisementPhase]int{}}
			for i := range advertisements.Items {
				s.Clusters[advertisements.Items[i].Status.Phase]++
			}
			return c.print(command, s, func(w io.Writer) error { return printStatus(w, &s) })
		},
	}
	c.flags(command.Flags())
	return command
}

func printStatus(w io.Writer, s *status) error {
	voters, heard := 0, 0
	for _, server := range s.Servers {
		if server.Suffrage == "voter" {
			voters++
			if server.Leader || server.LastContactMs >= 0 && server.LastContactMs < 2000 {
				heard++
			}
		}
	}
	health := paint(w, green, "healthy")
	switch {
	case heard < voters/2+1:
		health = paint(w, red, "no majority")
	case heard < voters:
		health = paint(w, yellow, "degraded")
	}
	if _, err := fmt.Fprintf(w, "Exchange: %s, %d of %d broker nodes heard, term %d\n\n", health, heard, voters, s.Term); err != nil {
		return err
	}
	if err := table(w, peerRows(w, &s.RaftConfiguration)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nMember clusters: %d active, %d stale, %d withdrawn\n",
		s.Clusters[broker.AdvertisementActive], s.Clusters[broker.AdvertisementStale], s.Clusters[broker.AdvertisementWithdrawn])
	return err
}
