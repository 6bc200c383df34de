package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// explanation is what `bourse explain -o json` prints.
type explanation struct {
	// Recorded is what was decided, as the reservation keeps it.
	Recorded *broker.Decision `json:"recorded,omitempty"`
	// Now is the full table on the present state.
	Now *broker.Decision `json:"now"`
}

func newExplainCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "explain NAME",
		Short:   "Say why a reservation got the cluster it got, or none",
		Example: "  bourse explain ml-training\n  bourse explain ml-training -n rome -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			rsv, err := exchange.Reservation(command.Context(), args[0])
			if apierrors.IsNotFound(err) {
				if batch, batchErr := exchange.Batch(command.Context(), args[0]); batchErr == nil {
					return notOne(batch)
				}
			}
			if err != nil {
				return err
			}
			now, err := exchange.Explain(command.Context(), args[0])
			if err != nil {
				return err
			}
			e := explanation{Recorded: rsv.Status.Decision, Now: &now.Decision}
			return c.print(command, e, func(w io.Writer) error { return printExplanation(w, rsv, &e) })
		},
	}
	c.flags(command.Flags())
	return command
}

// notOne says of a batch what there is to explain.
func notOne(batch *broker.ReservationBatch) error {
	var items []string
	for i := range batch.Status.Results {
		if i == maxFaultsShown {
			items = append(items, fmt.Sprintf("and %d more", len(batch.Status.Results)-i))
			break
		}
		result := &batch.Status.Results[i]
		item := fmt.Sprintf("%s %s", broker.ItemReservationName(batch.Name, result.Name), result.Phase)
		if result.Message != "" {
			item += " (" + result.Message + ")"
		}
		items = append(items, item)
	}
	what := "explain one of its items"
	if batch.Spec.Atomic && batch.Status.Phase == broker.BatchFailed {
		what = "none of its items is there"
	}
	return fmt.Errorf("%s is a ReservationBatch, %s; %s: %s", batch.Name, batch.Status.Message, what, strings.Join(items, ", "))
}

func printExplanation(w io.Writer, rsv *broker.Reservation, e *explanation) error {
	if err := printReservation(w, rsv, false); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\nDecided anew on the present state:\n"); err != nil {
		return err
	}
	return printDecision(w, e.Now, "")
}

func printDecision(w io.Writer, d *broker.Decision, winner string) error {
	if _, err := fmt.Fprintf(w, "decision at revision %d, policy %s\n", d.Revision, d.Policy); err != nil {
		return err
	}
	rows := [][]string{{"", "CLUSTER", "AVAILABLE", "PRICE/H", "RESOURCES", "COST", "SCORE", "REASON"}}
	for i := range d.Candidates {
		candidate := &d.Candidates[i]
		mark := " "
		switch {
		case winner != "" && candidate.ClusterID == winner:
			mark = paint(w, green, "*")
		case !candidate.Feasible:
			mark = paint(w, red, "x")
		}
		row := []string{mark, candidate.ClusterID, resourcesText(candidate.Available), orDash(candidate.PricePerHour), "-", "-", "-", candidate.Reason}
		if candidate.Feasible {
			row[4], row[5], row[6] = score(candidate.ResourceScore), score(candidate.CostScore), score(candidate.Score)
		}
		rows = append(rows, row)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	var counts []string
	for reason, count := range d.Counts {
		counts = append(counts, fmt.Sprintf("%s %d", reason, count))
	}
	slices.Sort(counts)
	_, err := fmt.Fprintln(w, paint(w, faint, strings.Join(counts, ", ")))
	return err
}

// score shows parts per billion with six decimals.
func score(ppb int64) string { return fmt.Sprintf("%d.%06d", ppb/1e9, ppb%1e9/1e3) }

func resourcesText(list corev1.ResourceList) string {
	var parts []string
	for name, quantity := range list {
		parts = append(parts, fmt.Sprintf("%s %s", name, shortQuantity(name, quantity)))
	}
	slices.Sort(parts)
	return orDash(strings.Join(parts, ", "))
}

// shortQuantity rounds bytes down to a readable size; what is exact stands in -o json.
func shortQuantity(name corev1.ResourceName, quantity resource.Quantity) string {
	if name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
		return quantity.String()
	}
	bytes := quantity.Value()
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 40, "Ti"}, {1 << 30, "Gi"}, {1 << 20, "Mi"}} {
		if bytes >= unit.size {
			tenths := bytes / (unit.size / 10)
			if tenths%10 == 0 {
				return fmt.Sprintf("%d%s", tenths/10, unit.name)
			}
			return fmt.Sprintf("%d.%d%s", tenths/10, tenths%10, unit.name)
		}
	}
	return quantity.String()
}

// costText shows a price list: annotations win over the spec, as in the exchange.
func costText(advertisement *broker.ClusterAdvertisement) string {
	prices := map[string]string{}
	for key, value := range advertisement.Spec.Cost {
		if key != "currency" {
			prices[key] = value
		}
	}
	for key, value := range advertisement.Annotations {
		if resource, ok := strings.CutPrefix(key, "cost."); ok {
			prices[resource] = value
		}
	}
	if len(prices) == 0 {
		return "Unpriced"
	}
	var parts []string
	for key, value := range prices {
		parts = append(parts, key+" "+value)
	}
	slices.Sort(parts)
	if currency := advertisement.Spec.Cost["currency"]; currency != "" {
		parts = append(parts, currency)
	}
	return strings.Join(parts, ", ")
}
