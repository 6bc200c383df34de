package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func newBlueprintStatusCommand() *cobra.Command {
	var c client
	var watch bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "status NAME",
		Short: "Show where a blueprint's instances run, and why there",
		Long: "Shows where a blueprint's instances run, and why there. With --watch it prints a line for each change\n" +
			"until all instances of the present spec are ready, and fails where the exchange takes it back. In the bars, # is ready, = is placed, · is missing.",
		Example: "  bourse blueprint status shop\n  bourse blueprint status shop --watch --timeout 5m",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			if !watch {
				b, err := exchange.Blueprint(command.Context(), args[0])
				if err != nil {
					return err
				}
				return c.print(command, b, func(w io.Writer) error { return printBlueprint(w, b) })
			}
			ctx := command.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s is not Active after %s", args[0], timeout))
				defer cancel()
			}
			said := ""
			err = exchange.WatchBlueprint(ctx, args[0], func(b *broker.Blueprint) (bool, error) {
				progress := progressText(command.OutOrStdout(), b)
				var err error
				switch {
				case c.output == "json":
					err = json.NewEncoder(command.OutOrStdout()).Encode(b)
				case progress != said: // else it is a change of something that it does not show
					said = progress
					_, err = fmt.Fprintf(command.OutOrStdout(), "%s  %s\n", time.Now().Format(time.TimeOnly), progress)
				}
				if err != nil {
					return false, err
				}
				return hasCome(b)
			})
			if cause := context.Cause(ctx); err != nil && cause != nil {
				return cause // not that some request was cut off by it
			}
			return err
		},
	}
	c.flags(command.Flags())
	command.Flags().BoolVarP(&watch, "watch", "w", false, "print each change until all is ready")
	command.Flags().DurationVar(&timeout, "timeout", 0, "with --watch: fail after that time (default: never)")
	return command
}

// hasCome says whether what is asked for now runs, not what was before a change of the spec. An error
// where the exchange has taken it back, and does not try it again.
func hasCome(b *broker.Blueprint) (bool, error) {
	if back := b.Status.RolledBack; back != nil && back.Generation == b.Generation {
		return false, errors.New("taken back: " + takenBack(back))
	}
	return b.Status.Phase == broker.BlueprintActive && b.Status.ObservedGeneration == b.Generation, nil
}

// progressText is one line of --watch, without the time.
func progressText(w io.Writer, b *broker.Blueprint) string {
	s := &b.Status
	return fmt.Sprintf("%s  %s  %d of %d ready  %s",
		instanceBar(s.Desired, s.Placed, s.Ready), paintBlueprintPhase(w, s.Phase), s.Ready, s.Desired, s.Message)
}

func instanceBar(desired, placed, ready int32) string {
	return bar(barWidth, int64(desired), []int64{int64(ready), int64(max(0, placed-ready))}, []rune{'#', '='})
}

func printBlueprint(w io.Writer, b *broker.Blueprint) error {
	s := &b.Status
	rows := [][]string{
		{"phase", paintBlueprintPhase(w, s.Phase)},
		{"instances", fmt.Sprintf("%s  %d desired, %d placed, %d ready", instanceBar(s.Desired, s.Placed, s.Ready), s.Desired, s.Placed, s.Ready)},
		{"strategy", string(b.Spec.EffectiveStrategy())},
	}
	if s.ObservedGeneration != b.Generation {
		rows = append(rows, []string{"generation", fmt.Sprintf("%d is not looked at yet, what follows is of %d", b.Generation, s.ObservedGeneration)})
	}
	if s.Message != "" {
		rows = append(rows, []string{"message", s.Message})
	}
	if back := s.RolledBack; back != nil {
		rows = append(rows, []string{"taken back", takenBack(back)})
	}
	if _, err := fmt.Fprintf(w, "%s/%s\n", b.Namespace, b.Name); err != nil {
		return err
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for i := range s.Slices {
		if err := printBlueprintSlice(w, &s.Slices[i]); err != nil {
			return err
		}
	}
	return printHistory(w, s.History)
}

func takenBack(back *broker.BlueprintRollback) string {
	return fmt.Sprintf("generation %d: %s of slice %s did not get ready on %s", back.Generation, back.Artifact, back.Slice, back.ClusterID)
}

func printBlueprintSlice(w io.Writer, s *broker.BlueprintSliceStatus) error {
	if _, err := fmt.Fprintf(w, "\n%s  %s  %d of %d ready, %s per hour\n", s.Name, s.Artifact, s.Ready, s.Desired, orDash(s.PricePerHour)); err != nil {
		return err
	}
	rows := [][]string{{"", "CLUSTER", "INSTANCES", "READY", "STATE", "REASON"}}
	for i := range s.Clusters {
		p := &s.Clusters[i]
		rows = append(rows, []string{"", p.ClusterID, fmt.Sprint(p.Instances), fmt.Sprint(p.Ready), paintSliceState(w, p.State), p.Reason})
	}
	if len(s.Clusters) > 0 {
		if err := table(w, rows); err != nil {
			return err
		}
	}
	if s.Message == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, "   "+s.Message)
	return err
}

func printHistory(w io.Writer, history []broker.BlueprintVersion) error {
	if len(history) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	rows := [][]string{{"GENERATION", "READY AT", "ARTIFACTS"}}
	for i := range history {
		v := &history[i]
		rows = append(rows, []string{fmt.Sprint(v.Generation), v.ActiveAt.Format(time.RFC3339), artifactsText(v.Artifacts)})
	}
	return table(w, rows)
}

func paintBlueprintPhase(w io.Writer, phase broker.BlueprintPhase) string {
	switch phase {
	case broker.BlueprintActive:
		return paint(w, green, string(phase))
	case broker.BlueprintDegraded:
		return paint(w, red, string(phase))
	default:
		return paint(w, yellow, string(phase))
	}
}

func paintSliceState(w io.Writer, state broker.SliceState) string {
	switch state {
	case broker.SliceActive:
		return paint(w, green, string(state))
	case broker.SliceFailed:
		return paint(w, red, string(state))
	default:
		return paint(w, yellow, orDash(string(state)))
	}
}
