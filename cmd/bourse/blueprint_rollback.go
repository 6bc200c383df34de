package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// rollback is what `bourse blueprint rollback -o json` prints.
type rollback struct {
	Name string `json:"name"`
	// To is the generation whose artifacts the blueprint has again.
	To int64 `json:"to"`
	// Generation of the spec now.
	Generation int64            `json:"generation"`
	Changes    []artifactChange `json:"changes"`
}

type artifactChange struct {
	Slice  string `json:"slice"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func newBlueprintRollbackCommand() *cobra.Command {
	var c client
	var to int64
	command := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Give a blueprint the artifacts of a version that was ready before",
		Long: "Changes the artifacts in a blueprint's spec back to those of a version in its history: the newest that\n" +
			"differs from the spec, or the one named by --to. Nothing else of the spec is changed. `bourse blueprint\n" +
			"status` shows the history.",
		Example: "  bourse blueprint rollback shop\n  bourse blueprint rollback shop --to 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().Changed("to") && to < 1 {
				return usageError{fmt.Errorf("--to is %d: generations count from 1; without --to it is the newest that differs from the spec", to)}
			}
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			b, err := exchange.Blueprint(command.Context(), args[0])
			if err != nil {
				return err
			}
			version, err := versionBefore(b, to)
			if err != nil {
				return err
			}
			done := rollback{Name: b.Name, To: version.Generation, Generation: b.Generation, Changes: []artifactChange{}}
			artifacts := differing(b, version)
			for _, i := range slices.Sorted(maps.Keys(artifacts)) {
				s := &b.Spec.Slices[i]
				done.Changes = append(done.Changes, artifactChange{s.Name, s.Artifact, artifacts[i]})
			}
			if len(artifacts) > 0 {
				updated, err := exchange.SetArtifacts(command.Context(), b, artifacts)
				if err != nil {
					return err
				}
				done.Generation = updated.Generation
			}
			return c.print(command, done, func(w io.Writer) error { return printRollback(w, &done) })
		},
	}
	c.flags(command.Flags())
	command.Flags().Int64Var(&to, "to", 0, "generation of the version (default: the newest that differs from the spec)")
	return command
}

// versionBefore finds the version to go back to.
func versionBefore(b *broker.Blueprint, generation int64) (*broker.BlueprintVersion, error) {
	if len(b.Status.History) == 0 {
		return nil, fmt.Errorf("no version of %s was ever ready: there is nothing to go back to", b.Name)
	}
	var known []string
	for i := range b.Status.History {
		version := &b.Status.History[i]
		if version.Generation == generation || generation == 0 && len(differing(b, version)) > 0 {
			return version, nil
		}
		known = append(known, fmt.Sprint(version.Generation))
	}
	if generation == 0 {
		return nil, fmt.Errorf("every version in the history of %s has the artifacts of its spec", b.Name)
	}
	return nil, fmt.Errorf("generation %d is not in the history of %s, which knows %s", generation, b.Name, strings.Join(known, ", "))
}

// differing are the artifacts of the version by the index of the slice, where the spec has others.
// Slices that the version did not have stay as they are.
func differing(b *broker.Blueprint, version *broker.BlueprintVersion) map[int]string {
	artifacts := map[int]string{}
	for i := range b.Spec.Slices {
		artifact, ok := version.Artifacts[b.Spec.Slices[i].Name]
		if ok && artifact != b.Spec.Slices[i].Artifact {
			artifacts[i] = artifact
		}
	}
	return artifacts
}

func printRollback(w io.Writer, r *rollback) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintf(w, "%s has the artifacts of generation %d already.\n", r.Name, r.To)
		return err
	}
	rows := [][]string{{"SLICE", "WAS", "IS"}}
	for _, c := range r.Changes {
		rows = append(rows, []string{c.Slice, c.Before, c.After})
	}
	if _, err := fmt.Fprintf(w, "%s has the artifacts of generation %d again, as generation %d.\n", r.Name, r.To, r.Generation); err != nil {
		return err
	}
	return table(w, rows)
}

func artifactsText(artifacts map[string]string) string {
	var parts []string
	for _, slice := range slices.Sorted(maps.Keys(artifacts)) {
		parts = append(parts, slice+"="+artifacts[slice])
	}
	return strings.Join(parts, ", ")
}
