package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// maxManifestBytes: no blueprint is larger, see v1alpha1.MaxObjectBytes.
const maxManifestBytes = broker.MaxObjectBytes

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
			"cluster, - fewer, ~ another version or size, each with the reason and the price per hour of what is\n" +
			"there afterwards. It exits with 3 where not every instance that must run has a place: with\n" +
			"spec.admission: Strict it would be refused.",
		Example: "  bourse blueprint plan -f shop.yaml\n  bourse blueprint plan -f - -o json < shop.yaml",
		RunE: func(command *cobra.Command, _ []string) error {
			if path == "" {
				return usageError{errors.New("--filename is empty: name the file of a blueprint, or -")}
			}
			name, namespace, manifest, err := readManifest(command.InOrStdin(), path)
			if err != nil {
				return usageError{err}
			}
			if c.namespace != "" && namespace != "" && namespace != c.namespace {
				return usageError{fmt.Errorf("--namespace is %q, metadata.namespace of %s is %q", c.namespace, path, namespace)}
			}
			if namespace != "" {
				c.namespace = namespace
			}
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			p := plan{Name: name, Namespace: exchange.Namespace(), Changes: []broker.PlannedChange{}}
			planned, err := exchange.PlanBlueprint(command.Context(), name, manifest, func(warning string) { p.Warnings = append(p.Warnings, warning) })
			if err != nil {
				return err
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
				return refusedError{fmt.Errorf("it would not fit now: %s", p.Message)}
			}
			return nil
		},
	}
	c.flags(command.Flags())
	command.Flags().StringVarP(&path, "filename", "f", "", "file of the blueprint, YAML or JSON; - reads standard input")
	return command
}

// readManifest reads one blueprint as the fields that stand in the file.
func readManifest(stdin io.Reader, path string) (name, namespace string, manifest map[string]any, err error) {
	source := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", "", nil, err
		}
		defer file.Close() //nolint:errcheck // only read
		source = file
	}
	text, err := io.ReadAll(io.LimitReader(source, maxManifestBytes+1))
	if err != nil {
		return "", "", nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxManifestBytes {
		return "", "", nil, fmt.Errorf("%s is larger than %d bytes", path, maxManifestBytes)
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		return "", "", nil, fmt.Errorf("%s: %w", path, err)
	}
	if manifest["kind"] != "Blueprint" || manifest["apiVersion"] != broker.SchemeGroupVersion.String() {
		return "", "", nil, fmt.Errorf("%s: apiVersion %v, kind %v: want one %s Blueprint", path, manifest["apiVersion"], manifest["kind"], broker.SchemeGroupVersion)
	}
	metadata, _ := manifest["metadata"].(map[string]any)
	name, _ = metadata["name"].(string)
	namespace, _ = metadata["namespace"].(string)
	if name == "" {
		return "", "", nil, fmt.Errorf("%s: metadata.name is empty", path)
	}
	return name, namespace, manifest, nil
}

func printPlan(w io.Writer, p *plan) error {
	if _, err := fmt.Fprintf(w, "%s/%s (dry run, nothing is changed)\n", p.Namespace, p.Name); err != nil {
		return err
	}
	more, fewer, other := int32(0), int32(0), 0
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
			other++
		}
		instances := fmt.Sprintf("%d -> %d", change.Before, change.After)
		rows = append(rows, []string{mark, change.Slice, change.ClusterID, instances, orDash(change.PricePerHour), change.Reason})
	}
	summary := "Nothing would change."
	if len(p.Changes) > 0 {
		if err := table(w, rows); err != nil {
			return err
		}
		summary = fmt.Sprintf("Instances: %d more, %d fewer. Another version or size: on %d clusters.", more, fewer, other)
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
