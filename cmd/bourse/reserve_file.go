package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cmd/internal/exchange"
)

// progressInterval is how often a batch is looked at while its answer is awaited.
const progressInterval = time.Second

// batchTries: the name of a batch is its idempotency key, so what got lost is sent again. An election
// takes a second.
const batchTries = 5

// maxBatchFileBytes: YAML is longer than the JSON that is sent.
const maxBatchFileBytes = 4 * broker.MaxBatchBytes

// maxFaultsShown: of a thousand items that all lack the same, a few tell as much.
const maxFaultsShown = 10

// lookTimeout bounds the look whether the batch is there already: a create without it is as good.
const lookTimeout = 5 * time.Second

// reserveFile reserves the items of a file as one batch.
func (f *reserveFlags) reserveFile(command *cobra.Command) error {
	if f.cpu != "" || f.memory != "" || len(f.resources) > 0 || f.target != "" || f.maxCost != "" {
		return usageError{fmt.Errorf("--cpu, --memory, --resource, --target and --max-cost are of one reservation: with --file they stand on its items")}
	}
	if f.maxPieces != 0 || len(f.minPiece) > 0 {
		return usageError{fmt.Errorf("--max-pieces and --min-piece are of one reservation: an item of a batch is not split")}
	}
	batch, err := f.batch(command.InOrStdin())
	if err != nil {
		return usageError{err}
	}
	f.namespace = cmp.Or(f.namespace, batch.Namespace)
	client, err := f.connect()
	if err != nil {
		return err
	}
	since := f.isThere(command, client, batch.Name)
	answered, err := f.createBatch(command, client, batch)
	if err != nil {
		return err
	}
	before := since != nil && since.UID == answered.UID
	if before {
		fmt.Fprintf(command.ErrOrStderr(), "%s was asked for before, at %s, with the same spec: nothing more was reserved, this is what became of it\n", //nolint:errcheck // a note
			answered.Name, since.CreationTimestamp.UTC().Format(time.RFC3339))
	}
	if err := f.print(command, answered, func(w io.Writer) error { return printBatch(w, answered, f.dryRun) }); err != nil {
		return err
	}
	switch counts := answered.Status.Counts; {
	case counts.Failed == 0 && counts.Released == 0:
		return nil
	case before:
		return refusedError{fmt.Errorf("%s (the answer of before: to try again delete it, %q, or take another --name)",
			answered.Status.Message, deleteBatch(answered.Name, client.Namespace()))}
	case f.dryRun:
		return refusedError{errors.New(answered.Status.Message)}
	default:
		return refusedError{fmt.Errorf("%s (who asks for %s again gets this answer while it is kept: delete it, or take another --name)",
			answered.Status.Message, answered.Name)}
	}
}

// isThere is the batch of that name as it is before it is asked for. nil: it is not there, or not to be read.
func (f *reserveFlags) isThere(command *cobra.Command, client *exchange.Client, name string) *broker.ReservationBatch {
	ctx, cancel := context.WithTimeout(command.Context(), lookTimeout)
	defer cancel()
	if batch, err := client.Batch(ctx, name); err == nil {
		return batch
	}
	return nil
}

// createBatch says on stderr how far the exchange has come, where that takes a while.
func (f *reserveFlags) createBatch(command *cobra.Command, client *exchange.Client, batch *broker.ReservationBatch) (*broker.ReservationBatch, error) {
	type answer struct {
		batch *broker.ReservationBatch
		err   error
	}
	done := make(chan answer, 1)
	create := func() {
		created, err := client.CreateBatch(command.Context(), batch, f.dryRun)
		done <- answer{created, err}
	}
	go create()
	tries, lost := 1, false
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case a := <-done:
			if lost = unanswered(a.err) && tries < batchTries && command.Context().Err() == nil; !lost {
				if !f.dryRun {
					a.err = repeatable(a.err, batch.Name, client.Namespace())
				}
				return a.batch, a.err
			}
			fmt.Fprintf(command.ErrOrStderr(), "no answer (%v): asking again\n", a.err) //nolint:errcheck // progress only
		case <-tick.C:
			if lost {
				tries, lost = tries+1, false
				go create()
			}
			if f.dryRun {
				continue
			}
			// Not there yet, or not to be read: the answer will tell.
			if b, err := client.Batch(command.Context(), batch.Name); err == nil {
				fmt.Fprintf(command.ErrOrStderr(), "%s: %s\n", b.Name, b.Status.Message) //nolint:errcheck // progress only
			}
		}
	}
}

// unanswered says whether the request may or may not have been done.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsTimeout(err))
}

// repeatable says what to do about an answer that never came, or was not waited for.
func repeatable(err error, name, namespace string) error {
	switch {
	case !unanswered(err):
		return err
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: what has arrived of batch %s goes on at the exchange: %q shows it, %q releases it: %w",
			name, "kubectl get rsvb "+name+" -n "+namespace, deleteBatch(name, namespace), err)
	}
	return fmt.Errorf("batch %s may or may not be reserved: the same command again gives its answer and reserves nothing twice: %w", name, err)
}

func deleteBatch(name, namespace string) string {
	return "kubectl delete rsvb " + name + " -n " + namespace
}

// batch is what the file and the command line ask for together.
func (f *reserveFlags) batch(stdin io.Reader) (*broker.ReservationBatch, error) {
	if err := f.checkFlags(); err != nil {
		return nil, err
	}
	data, err := readFile(f.file, stdin)
	if err != nil {
		return nil, err
	}
	batch, err := parseBatch(data)
	if err == nil {
		err = f.agrees(batch)
	}
	if err != nil {
		return nil, fmt.Errorf("--file %s: %w", f.file, err)
	}
	if f.complete(batch); batch.Spec.Atomic && f.waitFor != "" {
		return nil, fmt.Errorf("--wait %s: an atomic batch does not wait, it is reserved whole or fails at once", f.waitFor)
	}
	faults := broker.ValidateReservationBatch(batch)
	switch more := len(faults) - maxFaultsShown; {
	case len(faults) == 0:
		return batch, nil
	case more > 0:
		return nil, fmt.Errorf("--file %s: %w, and %d more", f.file, faults[:maxFaultsShown].ToAggregate(), more)
	}
	return nil, fmt.Errorf("--file %s: %w", f.file, faults.ToAggregate())
}

// complete fills in what the command line says.
func (f *reserveFlags) complete(batch *broker.ReservationBatch) {
	batch.TypeMeta = metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: broker.KindReservationBatch}
	spec := &batch.Spec
	spec.Atomic = spec.Atomic || f.atomic
	if spec.Atomic && f.duration != "" {
		spec.Duration = f.duration
	}
	if spec.Atomic && f.priority != 0 {
		spec.Priority = f.priority
	}
	for i := range spec.Items {
		item := &spec.Items[i]
		if item.Name == "" {
			item.Name = fmt.Sprintf("%04d", i+1)
		}
		if item.Spec.RequesterID == "" {
			item.Spec.RequesterID = f.from
		}
		if spec.Atomic {
			continue
		}
		if item.Spec.Duration == "" {
			item.Spec.Duration = f.duration
		}
		if item.Spec.WaitFor == "" {
			item.Spec.WaitFor = f.waitFor
		}
		if item.Spec.Priority == 0 {
			item.Spec.Priority = f.priority
		}
	}
	switch {
	case f.name != "":
		batch.Name = f.name
	case batch.Name == "":
		batch.Name = nameOf(cmp.Or(f.from, "batch"), spec)
	}
}

// nameOf what is asked for is the same whenever the same is asked for: a batch is known by its name.
func nameOf(prefix string, spec *broker.ReservationBatchSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic("a batch that was read can't be encoded: " + err.Error())
	}
	digest := sha256.Sum256(text)
	hash := hex.EncodeToString(digest[:8])
	return strings.ToLower(prefix[:min(len(prefix), broker.MaxItemNameBytes-1-len(hash))]) + "-" + hash
}

// soleDocument is the only YAML document of a file that says anything, and what it says.
func soleDocument(data []byte) (sole []byte, says any, err error) {
	documents := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && sole == nil:
			return nil, nil, errors.New("it is empty: name at least one item, as - {name: a, spec: {...}}")
		case errors.Is(err, io.EOF):
			return sole, says, nil
		case err != nil:
			return nil, nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, nil, err
		}
		switch {
		case content == nil: // comments
		case sole != nil:
			return nil, nil, errors.New("there are several YAML documents in it: one file is one batch")
		default:
			sole, says = document, content
		}
	}
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(filepath.Clean(path))
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer file.Close() //nolint:errcheck // only read
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxBatchFileBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--file %s: %w", path, err)
	case len(data) > maxBatchFileBytes:
		return nil, fmt.Errorf("--file %s: larger than %d bytes", path, maxBatchFileBytes)
	}
	return data, nil
}

func printBatch(w io.Writer, batch *broker.ReservationBatch, dryRun bool) error {
	heading := batch.Name
	if dryRun {
		heading += " (dry run, nothing is held)"
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", heading, batch.Status.Message); err != nil {
		return err
	}
	rows := make([][]string, 0, len(batch.Status.Results))
	for _, r := range batch.Status.Results {
		where := r.TargetClusterID
		if where == "" {
			where = r.Message
		}
		rows = append(rows, []string{r.Name, paintReservationPhase(w, r.Phase), where})
	}
	return table(w, rows)
}
