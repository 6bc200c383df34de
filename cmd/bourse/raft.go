package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
)

func newRaftCommand() *cobra.Command {
	command := &cobra.Command{Use: "raft", Short: "Look after the group of broker nodes"}
	command.AddCommand(newListPeersCommand(), newRemovePeerCommand(), newTransferLeaderCommand())
	return command
}

func newListPeersCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "list-peers",
		Short:   "List the members of the group",
		Example: "  bourse raft list-peers\n  bourse raft list-peers -o json | jq -r '.servers[] | select(.leader).id'",
		RunE: func(command *cobra.Command, _ []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			configuration, err := exchange.Configuration(command.Context())
			if err != nil {
				return err
			}
			return c.printConfiguration(command, configuration)
		},
	}
	c.flags(command.Flags())
	return command
}

func newRemovePeerCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "remove-peer ID",
		Short:   "Remove a member, so that its id can be used by a new data directory",
		Example: "  bourse raft remove-peer n3",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			configuration, err := exchange.RemovePeer(command.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printConfiguration(command, configuration)
		},
	}
	c.flags(command.Flags())
	return command
}

func newTransferLeaderCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "transfer-leader [ID]",
		Short:   "Hand leadership to another member",
		Example: "  bourse raft transfer-leader\n  bourse raft transfer-leader n2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			to := ""
			if len(args) > 0 {
				to = args[0]
			}
			configuration, err := exchange.TransferLeader(command.Context(), to)
			if err != nil {
				return err
			}
			return c.printConfiguration(command, configuration)
		},
	}
	c.flags(command.Flags())
	return command
}

func (c *client) printConfiguration(command *cobra.Command, configuration *adminv1.RaftConfiguration) error {
	return c.print(command, configuration, func(w io.Writer) error { return table(w, peerRows(w, configuration)) })
}

func peerRows(w io.Writer, configuration *adminv1.RaftConfiguration) [][]string {
	rows := [][]string{{"NODE", "ADDRESS", "ROLE", "CONTACT", "LAG"}}
	for _, server := range configuration.Servers {
		role := "follower"
		switch {
		case server.Leader:
			role = paint(w, green, "leader")
		case server.Suffrage != "voter":
			role = "non-voter"
		}
		contact := paint(w, red, "never")
		switch {
		case server.Leader:
			contact = "-"
		case server.LastContactMs >= 0:
			contact = fmt.Sprintf("%d ms ago", server.LastContactMs)
		}
		lag := "unknown"
		if server.Lag >= 0 {
			lag = strconv.FormatInt(server.Lag, 10)
		}
		rows = append(rows, []string{server.ID, server.Address, role, contact, lag})
	}
	return rows
}
