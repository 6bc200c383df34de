package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/version"
)

// Exit codes, which scripts rely on. A server that must stop has its own: see cluster.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

// usageError is a command line that can't be understood.
type usageError struct{ error }

// refusedError is a request that the exchange understood and refused, by policy or for want of capacity.
type refusedError struct{ error }

// exitError carries a server's own exit code.
type exitError struct {
	error
	code int
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "Error: %s\n", strings.TrimSpace(err.Error())) //nolint:errcheck // nowhere left to report
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var usage usageError
	var refused refusedError
	var exit exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &refused), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return exitRefused
	default:
		return exitFailed
	}
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "bourse",
		Short: "An exchange where Kubernetes clusters trade capacity",
		Long: "Bourse is a highly available exchange where Kubernetes clusters trade capacity.\n" +
			"Start with `bourse dev`: three broker nodes and four simulated member clusters on this machine.",
		Version:       version.Get().GitVersion,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see `%s --help`)", err, command.CommandPath())}
	})
	root.AddCommand(
		newServerCommand(), newAgentCommand(), newDevCommand(), newPKICommand(),
		newStatusCommand(), newClustersCommand(), newReserveCommand(), newExplainCommand(), newBlueprintCommand(),
		newRaftCommand(), newSnapshotCommand(),
	)
	usageOnBadArgs(root)
	return root
}

// usageOnBadArgs makes a wrong number of arguments, or an unknown sub-command, a usage error everywhere.
func usageOnBadArgs(command *cobra.Command) {
	check := command.Args
	if check == nil {
		check = cobra.NoArgs
	}
	command.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath())}
		}
		return nil
	}
	if command.HasSubCommands() && command.RunE == nil {
		command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range command.Commands() {
		usageOnBadArgs(sub)
	}
}
