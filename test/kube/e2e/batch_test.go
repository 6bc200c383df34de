package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var batchesKind = brokerVersion.WithResource("reservationbatches")

type batch struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Atomic   bool   `json:"atomic"`
		Duration string `json:"duration"`
	} `json:"spec"`
	Status struct {
		Phase   string `json:"phase"`
		Message string `json:"message"`
		Counts  struct {
			Items    int `json:"items"`
			Reserved int `json:"reserved"`
		} `json:"counts"`
		ExpiresAt *metav1.MicroTime `json:"expiresAt"`
		Results   []struct {
			Name            string `json:"name"`
			Phase           string `json:"phase"`
			TargetClusterID string `json:"targetClusterID"`
			Message         string `json:"message"`
		} `json:"results"`
	} `json:"status"`
}

// train is an atomic batch over two clusters; the third item's cpu is the caller's.
func train(name, cpu string) string {
	return fmt.Sprintf(`apiVersion: %s
kind: ReservationBatch
metadata: {name: %s}
spec:
  atomic: true
  duration: 1h
  items:
  - {name: data, spec: {requesterID: rome, requestedResources: {cpu: "1", memory: 1Gi}, targetClusterID: paris}}
  - {name: work, spec: {requesterID: rome, requestedResources: {cpu: "2", memory: 1Gi}, targetClusterID: berlin}}
  - {name: more, spec: {requesterID: rome, requestedResources: {cpu: %q, memory: 1Gi}, targetClusterID: paris}}
`, brokerVersion, name, cpu)
}

// testBatches asks for many at once, for all or nothing, and for an amount in pieces, through kubectl and the CLI.
func testBatches(t *testing.T, w *world) {
	ctx := subtestContext(t)
	before, err := w.allHeld(ctx)
	must(t, err)
	for _, step := range []struct {
		name string
		run  func(*testing.T, context.Context, *world)
	}{
		{"an atomic batch is reserved whole, lives as one and is released whole", testAtomic},
		{"an atomic batch that does not fit names what lacks and holds nothing", testAtomicRefused},
		{"a batch says of each item what became of it", testPartial},
		{"an amount is held in pieces, which live as one", testSplit},
		{"the CLI says the same", testBatchCLI},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.run(t, ctx, w)
			if now, err := w.allHeld(ctx); err != nil || now != before {
				t.Errorf("reserved is %s (%v), want %s again", now, err, before)
			}
			w.checkAccounts(t, ctx)
		})
	}
}

func testAtomic(t *testing.T, ctx context.Context, w *world) {
	rome := w.as(t, ctx, "requester:rome", 1)
	dry := rome.batch(t, ctx, train("train", "3"), "apply", "--dry-run=server", "-f", "-")
	made := rome.batch(t, ctx, train("train", "3"), "apply", "-f", "-")
	for _, b := range []*batch{dry, made} {
		if b.Status.Phase != "Reserved" || b.Status.Message != "3/3 Reserved" || len(b.Status.Results) != 3 || b.Status.Results[1].TargetClusterID != "berlin" {
			t.Errorf("want 3/3 Reserved, is %+v", b.Status)
		}
	}
	contains(t, "kubectl get rsvb", rome.run(t, ctx, "get", "rsvb"), "train", "Reserved", "3/3 Reserved")
	contains(t, "its reservations", rome.run(t, ctx, "get", "rsv", "-l", "broker.fluidos.eu/batch=train"), "train-data", "train-work", "train-more")
	for _, args := range [][]string{
		{"delete", "rsv", "train-data"},
		{"patch", "rsv", "train-data", "--type=merge", "-p", `{"spec":{"duration":"2h"}}`},
	} {
		if s := rome.try(t, ctx, "", args...); s.code == 0 || !strings.Contains(s.errOut, "Conflict") || !strings.Contains(s.errOut, `ReservationBatch "train"`) {
			t.Errorf("an item alone: %s", s)
		}
	}
	longer := rome.batch(t, ctx, "", "patch", "rsvb", "train", "--type=merge", "-p", `{"spec":{"duration":"2h"}}`)
	item := rome.reservation(t, ctx, "", "get", "rsv", "train-more")
	if !item.Status.ExpiresAt.Equal(longer.Status.ExpiresAt) || longer.Status.ExpiresAt.Sub(made.Status.ExpiresAt.Time) != time.Hour {
		t.Errorf("extended by an hour from %s: the batch ends at %s, an item at %s", made.Status.ExpiresAt, longer.Status.ExpiresAt, item.Status.ExpiresAt)
	}
	rome.run(t, ctx, "delete", "rsvb", "train")
	if left := rome.run(t, ctx, "get", "rsv", "-l", "broker.fluidos.eu/batch=train", "-o", "name"); left != "" {
		t.Errorf("the batch is deleted, and there are still: %s", left)
	}
}

func testAtomicRefused(t *testing.T, ctx context.Context, w *world) {
	rome := w.as(t, ctx, "requester:rome", 2)
	b := rome.batch(t, ctx, train("toolarge", "999"), "apply", "-f", "-")
	if b.Status.Phase != "Failed" || b.Status.Message != "0/3: paris lacks cpu" {
		t.Errorf("want 0/3: paris lacks cpu, is %+v", b.Status)
	}
	if left := rome.run(t, ctx, "get", "rsv", "-l", "broker.fluidos.eu/batch=toolarge", "-o", "name"); left != "" {
		t.Errorf("it failed, and there are: %s", left)
	}
	rome.run(t, ctx, "delete", "rsvb", "toolarge")
	waits := strings.Replace(train("waits", "1"), "targetClusterID: berlin", "waitFor: 1h", 1)
	s := rome.try(t, ctx, waits, "apply", "-f", "-")
	if s.code == 0 {
		t.Errorf("an item that waits was taken: %s", s)
	}
	contains(t, "the refusal", s.errOut, "spec.items[1].spec.waitFor", `"1h"`)
}

func testPartial(t *testing.T, ctx context.Context, w *world) {
	rome := w.as(t, ctx, "requester:rome", 0)
	rome.feed(t, ctx, manifest("jobs-b", "rome", `{cpu: "1"}`), "apply", "-f", "-")
	jobs := strings.NewReplacer("name: data", "name: a", "name: work", "name: b", "name: more", "name: c", "atomic: true\n  duration: 1h", "atomic: false").
		Replace(train("jobs", "999"))
	b := rome.batch(t, ctx, jobs, "apply", "-f", "-")
	if b.Status.Phase != "Partial" || b.Status.Counts.Reserved != 1 || len(b.Status.Results) != 3 {
		t.Fatalf("want one of three, is %+v", b.Status)
	}
	contains(t, "the taken name", b.Status.Results[1].Message, "jobs-b is taken")
	contains(t, "what does not fit", b.Status.Results[2].Message, "paris lacks cpu")
	rome.run(t, ctx, "delete", "rsvb", "jobs")
	rome.run(t, ctx, "delete", "rsv", "jobs-b") // it was another's, and is still there
}

func testSplit(t *testing.T, ctx context.Context, w *world) {
	rome := w.as(t, ctx, "requester:rome", 1)
	split := manifest("crunch", "rome", fmt.Sprintf(`{cpu: "%dm"}`, w.moreThanOne(t, ctx)), "duration: 1h", `split: {maxPieces: 2, minPiece: {cpu: "1"}}`)
	r := rome.reservation(t, ctx, split, "apply", "-f", "-")
	if r.Status.Phase != "Reserved" || r.Status.TargetClusterID != "" || r.Status.Fence != 0 {
		t.Fatalf("want it Reserved and holding nothing itself, is %+v", r.Status)
	}
	sum, targets := amounts{}, map[string]bool{}
	for _, name := range []string{"crunch-1", "crunch-2"} {
		piece := rome.reservation(t, ctx, "", "get", "rsv", name)
		sum, targets[piece.Status.TargetClusterID] = sum.plus(amountsOf(piece.Spec.RequestedResources)), true
		if piece.Status.Phase != "Reserved" || piece.Status.Fence == 0 || !piece.Status.ExpiresAt.Equal(r.Status.ExpiresAt) {
			t.Errorf("%s: %+v", name, piece.Status)
		}
	}
	if sum != amountsOf(r.Spec.RequestedResources) || len(targets) != 2 {
		t.Errorf("the pieces are %s on %v", sum, targets)
	}
	if s := rome.try(t, ctx, "", "delete", "rsv", "crunch-1"); s.code == 0 || !strings.Contains(s.errOut, "Conflict") {
		t.Errorf("a piece alone: %s", s)
	}
	longer := rome.reservation(t, ctx, "", "patch", "rsv", "crunch", "--type=merge", "-p", `{"spec":{"duration":"2h"}}`)
	if piece := rome.reservation(t, ctx, "", "get", "rsv", "crunch-2"); !piece.Status.ExpiresAt.Equal(longer.Status.ExpiresAt) {
		t.Errorf("extended, and ends at %s; a piece ends at %s", longer.Status.ExpiresAt, piece.Status.ExpiresAt)
	}
	rome.run(t, ctx, "delete", "rsv", "crunch")
	if s := rome.try(t, ctx, "", "get", "rsv", "crunch-1"); s.code == 0 {
		t.Errorf("deleted, and a piece is there: %s", s.out)
	}
}

func testBatchCLI(t *testing.T, ctx context.Context, w *world) {
	rome := w.as(t, ctx, "requester:rome", 2)
	out, code := w.bourse(t, ctx, rome, train("cli", "3"), "reserve", "--from", "rome", "-f", "-")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	contains(t, "bourse reserve -f", out, "cli: 3/3 Reserved", "data", "paris", "berlin")
	rome.run(t, ctx, "delete", "rsvb", "cli")
	items := `- {name: a, spec: {requestedResources: {cpu: "1"}}}` + "\n" + `- {name: b, spec: {requestedResources: {cpu: "999"}}}` + "\n"
	if out, code = w.bourse(t, ctx, rome, items, "reserve", "--from", "rome", "--name", "none", "--atomic", "-f", "-"); code != 3 {
		t.Errorf("exit code %d of what is refused, want 3", code)
	}
	contains(t, "what is refused", out, "none: 0/2:", "lacks cpu")
	rome.run(t, ctx, "delete", "rsvb", "none")
	out, code = w.bourse(t, ctx, rome, "", "reserve", "--from", "rome", "--name", "pieces",
		"--cpu", fmt.Sprintf("%dm", w.moreThanOne(t, ctx)), "--max-pieces", "2", "--min-piece", "cpu=1")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	contains(t, "bourse reserve --max-pieces", out, "pieces-1", "pieces-2", "on paris", "on berlin")
	rome.run(t, ctx, "delete", "rsv", "pieces")
}

// moreThanOne is more cpu than paris or berlin has free, and less than both have.
func (w *world) moreThanOne(t *testing.T, ctx context.Context) int64 {
	t.Helper()
	paris, err := getAdvertisement(ctx, w.at(0), "paris")
	must(t, err)
	berlin, err := getAdvertisement(ctx, w.at(0), "berlin")
	must(t, err)
	a, b := paris.available().cpu, berlin.available().cpu
	return max(a, b) + min(a, b)/2
}

// bourse runs the CLI as that user, and returns all that it said.
func (w *world) bourse(t *testing.T, ctx context.Context, user kubectl, input string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, w.exchange.bourse, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+user.kubeconfig, "HOME="+user.home)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("running bourse %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// batch runs a kubectl command that prints one batch as JSON.
func (k kubectl) batch(t *testing.T, ctx context.Context, input string, args ...string) *batch {
	t.Helper()
	out := k.feed(t, ctx, input, append(args, "-o", "json")...)
	b := &batch{}
	if err := json.Unmarshal([]byte(out), b); err != nil {
		t.Fatalf("kubectl %s printed no batch: %v\n%s", strings.Join(args, " "), err, out)
	}
	return b
}
