package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// reserveFlags are what `bourse reserve` is told.
type reserveFlags struct {
	client
	from, cpu, memory, duration, waitFor, name, target, maxCost string
	resources, minPiece                                         map[string]string
	priority, maxPieces                                         int32
	file                                                        string
	dryRun, atomic                                              bool
}

func newReserveCommand() *cobra.Command {
	var f reserveFlags
	command := &cobra.Command{
		Use:   "reserve",
		Short: "Reserve capacity, or with --dry-run ask where it would be",
		Example: "  bourse reserve --from rome --cpu 4 --memory 8Gi --for 2h\n" +
			"  bourse reserve --from rome --cpu 4 --memory 8Gi --dry-run\n" +
			"  bourse reserve --from rome --resource nvidia.com/gpu=1 --wait 30m\n" +
			"  bourse reserve --from rome --cpu 40 --memory 80Gi --max-pieces 3 --min-piece cpu=8\n" +
			"  bourse reserve --from rome -f items.yaml             # each item for itself\n" +
			"  bourse reserve --from rome -f items.yaml --atomic    # all items, or none",
		RunE: func(command *cobra.Command, _ []string) error {
			if f.file != "" {
				return f.reserveFile(command)
			}
			if f.atomic {
				return usageError{fmt.Errorf("--atomic is of several items: name them with --file")}
			}
			if err := f.checkFlags(); err != nil {
				return usageError{err}
			}
			rsv, err := f.reservation(time.Now())
			if err != nil {
				return usageError{err}
			}
			exchange, err := f.connect()
			if err != nil {
				return err
			}
			created, err := exchange.CreateReservation(command.Context(), rsv, f.dryRun)
			if err != nil {
				return f.perhaps(err, rsv.Name, exchange.Namespace())
			}
			if err := f.print(command, created, func(w io.Writer) error { return printReservation(w, created, f.dryRun) }); err != nil {
				return err
			}
			if created.Status.Phase == broker.ReservationFailed {
				return refusedError{fmt.Errorf("%s", created.Status.Message)}
			}
			return nil
		},
	}
	flags := command.Flags()
	f.flags(flags)
	flags.StringVar(&f.from, "from", "", "id of the cluster that asks")
	flags.StringVar(&f.cpu, "cpu", "", "cores, as 4 or 500m")
	flags.StringVar(&f.memory, "memory", "", "memory, as 8Gi")
	flags.StringToStringVar(&f.resources, "resource", nil, "further resources, as nvidia.com/gpu=1")
	flags.StringVar(&f.duration, "for", "", "how long, as 2h (default: until deleted)")
	flags.StringVar(&f.waitFor, "wait", "", "how long to wait for capacity, as 30m (default: fail at once)")
	flags.Int32Var(&f.priority, "priority", 0, "higher is served first, -1000 to 1000")
	flags.StringVar(&f.target, "target", "", "only this cluster")
	flags.StringVar(&f.maxCost, "max-cost", "", "most that the request may cost per hour")
	flags.Int32Var(&f.maxPieces, "max-pieces", 0, "it may be held in so many pieces, on a cluster each (default: whole)")
	flags.StringToStringVar(&f.minPiece, "min-piece", nil, "the least that a piece has, as cpu=8")
	flags.StringVar(&f.name, "name", "", "name of the reservation (default: made from --from and the time; of a file: from --from and what it asks for)")
	flags.StringVarP(&f.file, "file", "f", "", "a ReservationBatch, or a list of items {name, spec}; - is the standard input")
	flags.BoolVar(&f.atomic, "atomic", false, "reserve all items of the file, or none")
	flags.BoolVar(&f.dryRun, "dry-run", false, "decide, but hold nothing")
	return command
}

func (f *reserveFlags) reservation(now time.Time) (*broker.Reservation, error) {
	if f.from == "" {
		return nil, fmt.Errorf("--from is empty: name the cluster that asks")
	}
	requested := corev1.ResourceList{}
	if f.cpu != "" {
		if err := addQuantity(requested, "cpu", f.cpu, "--cpu"); err != nil {
			return nil, err
		}
	}
	if f.memory != "" {
		if err := addQuantity(requested, "memory", f.memory, "--memory"); err != nil {
			return nil, err
		}
	}
	for name, value := range f.resources {
		if err := addQuantity(requested, name, value, "--resource "+name); err != nil {
			return nil, err
		}
	}
	split, err := f.split()
	if err != nil {
		return nil, err
	}
	if len(requested) == 0 {
		return nil, fmt.Errorf("nothing is asked for: give --cpu, --memory or --resource")
	}
	name := f.name
	if name == "" {
		name = nameFrom(f.from, now)
	}
	return &broker.Reservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "Reservation"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: broker.ReservationSpec{
			RequesterID: f.from, RequestedResources: requested, Duration: f.duration, WaitFor: f.waitFor,
			Priority: f.priority, TargetClusterID: f.target, MaxCostPerHour: f.maxCost, Split: split,
		},
	}, nil
}

func addQuantity(to corev1.ResourceList, name, value, flag string) error {
	quantity, err := resource.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("%s %q: %w", flag, value, err)
	}
	to[corev1.ResourceName(name)] = quantity
	return nil
}

// split is nil where neither of its flags is given; what is missing of it the exchange says.
func (f *reserveFlags) split() (*broker.Split, error) {
	if f.maxPieces == 0 && len(f.minPiece) == 0 {
		return nil, nil
	}
	s := &broker.Split{MaxPieces: f.maxPieces, MinPiece: corev1.ResourceList{}}
	for name, value := range f.minPiece {
		if err := addQuantity(s.MinPiece, name, value, "--min-piece "+name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// perhaps says of an answer that never came under which name to look: the next command without --name
// would make another one from the time.
func (f *reserveFlags) perhaps(err error, name, namespace string) error {
	if f.dryRun || !unanswered(err) || utilnet.IsConnectionRefused(err) {
		return err
	}
	return fmt.Errorf("reservation %s may or may not be there: %q shows it, and the same command with --name %s reserves it once at most: %w",
		name, "kubectl get rsv "+name+" -n "+namespace, name, err)
}

func nameFrom(from string, now time.Time) string {
	return strings.ToLower(fmt.Sprintf("%s-%s", from, now.UTC().Format("20060102t150405.000")))
}

func printReservation(w io.Writer, rsv *broker.Reservation, dryRun bool) error {
	heading := rsv.Name
	if dryRun {
		heading += " (dry run, nothing is held)"
	}
	status := &rsv.Status
	rows := [][]string{{"phase", paintReservationPhase(w, status.Phase)}}
	add := func(key, value string) {
		if value != "" {
			rows = append(rows, []string{key, value})
		}
	}
	add("requested", resourcesText(rsv.Spec.RequestedResources))
	add("target", status.TargetClusterID)
	for i := range status.Pieces {
		piece := &status.Pieces[i]
		add(piece.Name, resourcesText(piece.RequestedResources)+" on "+piece.TargetClusterID)
	}
	add("endpoint", status.TargetClusterEndpoint)
	add("price per hour", status.PricePerHour)
	if status.ExpiresAt != nil {
		add("expires", status.ExpiresAt.Format(time.RFC3339))
	}
	add("message", status.Message)
	if _, err := fmt.Fprintln(w, heading); err != nil {
		return err
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if status.Decision == nil {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return printDecision(w, status.Decision, status.TargetClusterID)
}

func paintReservationPhase(w io.Writer, phase broker.ReservationPhase) string {
	switch phase {
	case broker.ReservationReserved:
		return paint(w, green, string(phase))
	case broker.ReservationFailed:
		return paint(w, red, string(phase))
	default:
		return paint(w, yellow, string(phase))
	}
}
