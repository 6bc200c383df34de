package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cmd/internal/dev"
)

func newDevCommand() *cobra.Command {
	config := dev.Config{}
	logs := logFlags{}
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole exchange on this machine",
		Long: "Runs a whole exchange on this machine: broker nodes as processes of their own, and an agent for each\n" +
			"of several member clusters. Only the member clusters are simulated: their nodes and pods exist in\n" +
			"memory. Everything else is the real thing, on a data directory that survives.",
		Example: "  bourse dev\n  bourse dev --servers 1 --clusters rome,paris --listen 127.0.0.1:0 --data-dir /tmp/exchange",
		RunE: func(command *cobra.Command, _ []string) error {
			logger, err := logs.logger(command.ErrOrStderr())
			if err != nil {
				return usageError{err}
			}
			if err := config.Validate(); err != nil {
				return usageError{err}
			}
			config.Binary, err = os.Executable()
			if err != nil {
				return fmt.Errorf("find our own binary: %w", err)
			}
			config.Log, config.Out = logger, command.OutOrStdout()
			return dev.Run(command.Context(), config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.DataDir, "data-dir", "./.bourse-dev", "directory of everything that survives")
	flags.IntVar(&config.Servers, "servers", 3, "broker nodes")
	flags.StringSliceVar(&config.Clusters, "clusters", []string{"rome", "paris", "berlin", "tokyo"}, "simulated member clusters")
	flags.StringVar(&config.Listen, "listen", "127.0.0.1:7440", "address that forwards to any healthy node")
	logs.flags(flags)
	return command
}
