package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// plan is what `bourse blueprint plan -o json` prints.
type plan struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Fits: every instance that must run has a place now.
	Fits bool `json:"fits"`
	// Message says what has none, and why.
	Message  string                 `json:"message,omitempty"`
	Warnings []string               `json:"warnings,omitempty"`
	Changes  []broker.PlannedChange `json:"changes"`
}

func newBlueprintPlanCommand() *cobra.Command {
	var c client
	var path string
	command := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Say what a blueprint would change, and change nothing",
		Long: "Says what the exchange would do with a blueprint if it were applied now: + more instances on a\n" +
			"cluster, - fewer, ~ as many, each with the reason, which version or size becomes which, and the price\n" +
			"per hour of what is there afterwards. It exits with 3 where not every instance that must run has a\n" +
			"place: with spec.admission: Strict it would be refused. Of several YAML documents each is planned for\n" +
			"itself, as if the others were not there.",
		Example: "  bourse blueprint plan -f shop.yaml\n  bourse blueprint plan -f - -o json < shop.yaml",
		RunE: func(command *cobra.Command, _ []string) error {
			if path == "" {
				return usageError{errors.New("--filename is empty: name the file of a blueprint, or -")}
			}
			manifests, err := readManifests(command.InOrStdin(), path)
			if err != nil {
				return usageError{err}
			}
			for _, m := range manifests {
				if c.namespace != "" && m.namespace != "" && m.namespace != c.namespace {
					return usageError{fmt.Errorf("--namespace is %q, metadata.namespace of %s is %q", c.namespace, m.where, m.namespace)}
				}
			}
			var refusals []error
			for _, m := range manifests {
				err := printPlanOf(command, c, m)
				if err != nil && exitCode(err) != exitRefused {
					return err
				}
				refusals = append(refusals, err) // the others are of interest all the same
			}
			return errors.Join(refusals...)
		},
	}
	c.flags(command.Flags())
	command.Flags().StringVarP(&path, "filename", "f", "", "file of the blueprint, YAML or JSON; - reads standard input")
	return command
}

// printPlanOf one manifest. What would not fit is an error after it was printed.
func printPlanOf(command *cobra.Command, c client, m manifest) error {
	if m.namespace != "" {
		c.namespace = m.namespace
	}
	exchange, err := c.connect()
	if err != nil {
		return err
	}
	p := plan{Name: m.name, Namespace: exchange.Namespace(), Changes: []broker.PlannedChange{}}
	planned, err := exchange.PlanBlueprint(command.Context(), m.name, m.object, func(warning string) { p.Warnings = append(p.Warnings, warning) })
	if err != nil {
		return fmt.Errorf("%s: %w", m.where, err)
	}
	p.Fits = planned.Status.Phase != broker.BlueprintDegraded
	p.Changes = append(p.Changes, planned.Status.Plan...)
	if !p.Fits {
		p.Message = planned.Status.Message
	}
	if err := c.print(command, p, func(w io.Writer) error { return printPlan(w, &p) }); err != nil {
		return err
	}
	if !p.Fits {
		return refusedError{fmt.Errorf("%s/%s would not fit now: %s", p.Namespace, p.Name, p.Message)}
	}
	return nil
}

func printPlan(w io.Writer, p *plan) error {
	if _, err := fmt.Fprintf(w, "%s/%s (dry run, nothing is changed)\n", p.Namespace, p.Name); err != nil {
		return err
	}
	more, fewer, renewed := int32(0), int32(0), map[string]bool{}
	rows := [][]string{{"", "SLICE", "CLUSTER", "INSTANCES", "PRICE/H", "REASON"}}
	for i := range p.Changes {
		change := &p.Changes[i]
		mark := change.Action
		switch change.Action {
		case "+":
			mark = paint(w, green, mark)
			more += change.After - change.Before
		case "-":
			mark = paint(w, red, mark)
			fewer += change.Before - change.After
		default:
			mark = paint(w, yellow, mark)
		}
		if change.NewVersion {
			renewed[change.ClusterID] = true
		}
		instances := fmt.Sprintf("%d -> %d", change.Before, change.After)
		rows = append(rows, []string{mark, change.Slice, change.ClusterID, instances, orDash(change.PricePerHour), change.Reason})
	}
	summary := "Nothing would change."
	if len(p.Changes) > 0 {
		if err := table(w, rows); err != nil {
			return err
		}
		summary = fmt.Sprintf("Instances: %d more, %d fewer. Clusters with another version or size: %d.", more, fewer, len(renewed))
	}
	if _, err := fmt.Fprintln(w, summary); err != nil {
		return err
	}
	for _, warning := range p.Warnings {
		if _, err := fmt.Fprintln(w, paint(w, yellow, "Warning:"), warning); err != nil {
			return err
		}
	}
	return nil
}
