package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cell is one kubectl at one broker node, in a namespace of its own.
type cell struct {
	kubectl
	t   *testing.T
	ctx context.Context
	w   *world
	dir string // for manifests
}

var cellSteps = []struct {
	name string
	run  func(*cell)
}{
	{"discovery", (*cell).discovery},
	{"apply and diff", (*cell).clientApply},
	{"apply and diff --server-side", (*cell).serverApply},
	{"annotate, label, patch, replace", (*cell).change},
	{"get -w", (*cell).watch},
	{"delete", (*cell).remove},
	{"wait", (*cell).wait},
	{"--dry-run=server", (*cell).dryRun},
	{"auth", (*cell).auth},
	{"selectors", (*cell).selectors},
	{"2,000 objects", (*cell).many},
}

const (
	manyNamespace = "many"
	manyObjects   = 2000
	manyClients   = 32
)

// testKubectl runs the same commands with each kubectl against each node.
func testKubectl(t *testing.T, w *world) {
	ctx := subtestContext(t)
	programs := map[string]string{"built": w.kubectl}
	if path, err := exec.LookPath("kubectl"); err == nil {
		programs["on PATH"] = path
	} else {
		t.Logf("no kubectl on PATH: only the built one is tried")
	}
	versions := map[string]string{}
	for _, path := range programs {
		v := clientVersion(t, ctx, path)
		versions[v] = path
		t.Logf("kubectl %s: %s", v, path)
	}
	w.createMany(t, ctx)
	t.Run("each", func(t *testing.T) {
		for version, path := range versions {
			for i, n := range w.exchange.nodes {
				t.Run(version+" at "+n.id, func(t *testing.T) {
					t.Parallel()
					ctx := subtestContext(t)
					k := w.as(t, ctx, "admin", i)
					k.path, k.home = path, filepath.Join(k.home, version)
					k.namespace = strings.ReplaceAll(strings.TrimPrefix(version, "v"), ".", "-") + "-" + n.id
					c := &cell{kubectl: k, t: t, ctx: ctx, w: w, dir: t.TempDir()}
					must(t, os.MkdirAll(k.home, 0o700))
					for _, step := range cellSteps {
						t.Run(step.name, func(t *testing.T) {
							c := *c
							c.t = t
							step.run(&c)
						})
					}
				})
			}
		}
	})
	ctx = subtestContext(t) // the cells took their own time
	began := time.Now()
	must(t, w.at(0).Resource(reservationsKind).Namespace(manyNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	t.Logf("%d reservations deleted as a collection in %.1f s", manyObjects, time.Since(began).Seconds())
	w.checkAccounts(t, ctx)
}

// clientVersion is a kubectl's version without what a distributor appended.
func clientVersion(t *testing.T, ctx context.Context, path string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, path, "version", "--client", "-o", "json").Output()
	must(t, err)
	var v struct {
		ClientVersion struct{ GitVersion string }
	}
	must(t, json.Unmarshal(out, &v))
	version, _, _ := strings.Cut(v.ClientVersion.GitVersion, "-")
	return version
}

// createMany makes the objects that lists and selectors run over.
func (w *world) createMany(t *testing.T, ctx context.Context) {
	t.Helper()
	began := time.Now()
	numbers := make(chan int)
	var clients sync.WaitGroup
	for c := range manyClients {
		clients.Go(func() {
			client := w.at(c % len(w.exchange.nodes)).Resource(reservationsKind).Namespace(manyNamespace)
			for i := range numbers {
				r := request{name: fmt.Sprintf("m-%04d", i), requester: "rome", cpu: "1m", memory: "1Mi", labels: map[string]string{"parity": []string{"even", "odd"}[i%2]}}
				if i%100 == 0 {
					r.requester = "paris"
				}
				made, err := read[reservation](client.Create(ctx, r.object(), metav1.CreateOptions{}))
				if err != nil {
					t.Error(err)
				} else if made.Status.Phase != "Reserved" {
					t.Errorf("%s is %s: %s", made.Name, made.Status.Phase, made.Status.Message)
				}
			}
		})
	}
	for i := range manyObjects {
		numbers <- i
	}
	close(numbers)
	clients.Wait()
	took := time.Since(began).Seconds()
	t.Logf("%d reservations created by %d clients in %.1f s, %.0f a second", manyObjects, manyClients, took, manyObjects/took)
}

// file writes a manifest and returns its path.
func (c *cell) file(content string) string {
	c.t.Helper()
	f, err := os.CreateTemp(c.dir, "manifest-*.yaml")
	must(c.t, err)
	_, err = f.WriteString(content)
	must(c.t, err)
	must(c.t, f.Close())
	return f.Name()
}

func (c *cell) do(args ...string) string {
	c.t.Helper()
	return c.run(c.t, c.ctx, args...)
}

// rsv is a small reservation's manifest.
func rsv(name string, more ...string) string {
	return manifest(name, "rome", `{cpu: 10m, memory: 8Mi}`, more...)
}

func (c *cell) discovery() {
	contains(c.t, "api-resources", c.do("api-resources"), "reservations", "rsv", "clusteradvertisements", "cadv", "broker.fluidos.eu/v1alpha1", "namespaces", "events")
	contains(c.t, "api-resources -o wide", c.do("api-resources", "-o", "wide", "--api-group=broker.fluidos.eu"), "create", "deletecollection", "watch")
	contains(c.t, "explain", c.do("explain", "reservation.spec.requestedResources"), "DESCRIPTION")
	contains(c.t, "explain --recursive", c.do("explain", "cadv", "--recursive"), "keepBack")
	version := c.try(c.t, c.ctx, "", "version")
	contains(c.t, "version", version.out, "Server Version: v")
	if strings.Contains(version.errOut, "rror") {
		c.t.Error(version)
	}
}

func (c *cell) clientApply() {
	path := c.file(rsv("applied"))
	contains(c.t, "apply", c.do("apply", "-f", path), "created")
	contains(c.t, "apply again", c.do("apply", "-f", path), "unchanged")
	if s := c.try(c.t, c.ctx, "", "diff", "-f", path); s.code != 0 {
		c.t.Errorf("diff of what was applied: %s", s)
	}
	changed := c.file(strings.Replace(rsv("applied"), "name: applied", "name: applied\n  labels: {team: blue}", 1))
	if s := c.try(c.t, c.ctx, "", "diff", "-f", changed); s.code != 1 || !strings.Contains(s.out, "+    team: blue") {
		c.t.Errorf("diff of a new label: %s", s)
	}
	contains(c.t, "apply a change", c.do("apply", "-f", changed), "configured")
	c.expect("applied", "Reserved")
}

func (c *cell) serverApply() {
	path := c.file(rsv("owned"))
	contains(c.t, "apply --server-side", c.do("apply", "--server-side", "-f", path), "serverside-applied")
	contains(c.t, "apply --server-side again", c.do("apply", "--server-side", "-f", path), "serverside-applied")
	c.expect("owned", "Reserved")
	if s := c.try(c.t, c.ctx, "", "diff", "--server-side", "-f", path); s.code != 0 {
		c.t.Errorf("diff --server-side of what was applied: %s", s)
	}
	other := c.file(rsv("owned", "priority: 7"))
	c.do("patch", "rsv", "owned", "--type=merge", "-p", `{"metadata":{"labels":{"team":"red"}}}`, "--field-manager=somebody")
	labelled := c.file(strings.Replace(rsv("owned"), "name: owned", "name: owned\n  labels: {team: blue}", 1))
	if s := c.try(c.t, c.ctx, "", "apply", "--server-side", "-f", labelled); s.code != 1 || !strings.Contains(s.errOut, "conflict with \"somebody\"") {
		c.t.Errorf("a field of another manager: %s", s)
	}
	c.do("apply", "--server-side", "--force-conflicts", "-f", labelled)
	if s := c.try(c.t, c.ctx, "", "apply", "--server-side", "-f", other); s.code != 1 || !strings.Contains(s.errOut, "Reserved") {
		c.t.Errorf("a changed spec of a Reserved one: %s", s)
	}
}

// expect reads one reservation in all forms and checks its phase.
func (c *cell) expect(name, phase string) {
	c.t.Helper()
	if got := c.do("get", "rsv", name, "-o", "jsonpath={.status.phase}"); got != phase {
		c.t.Errorf("%s is %q, want %s", name, got, phase)
	}
	contains(c.t, "get", c.do("get", "reservation", name), "NAME", name, "10m", "8Mi", phase)
	contains(c.t, "get -o wide", c.do("get", "reservations.broker.fluidos.eu", name, "-o", "wide"), name, phase)
	contains(c.t, "get -o name", c.do("get", "rsv", name, "-o", "name"), "reservation.broker.fluidos.eu/"+name)
	text := c.do("get", "rsv", name, "-o", "yaml")
	contains(c.t, "get -o yaml", text, "kind: Reservation", "phase: "+phase, "requesterID: rome")
	contains(c.t, "describe", c.do("describe", "rsv", name), "Name:", name, phase, "Events:")
	contains(c.t, "events", c.do("get", "events", "--field-selector", "involvedObject.name="+name), phase)
	contains(c.t, "get namespace", c.do("get", "namespace", c.namespace), "Active")
}

func (c *cell) change() {
	path := c.file(rsv("changed", `duration: "1h"`))
	c.do("create", "-f", path)
	c.do("annotate", "rsv", "changed", "note=one")
	c.do("annotate", "rsv", "changed", "note=two", "--overwrite")
	c.do("label", "rsv", "changed", "team=blue")
	c.do("label", "rsv", "changed", "team-")
	c.do("patch", "rsv", "changed", "--type=merge", "-p", `{"spec":{"duration":"2h"}}`)
	c.do("patch", "rsv", "changed", "--type=json", "-p", `[{"op":"replace","path":"/spec/duration","value":"3h"}]`)
	if got := c.do("get", "rsv", "changed", "-o", `jsonpath={.spec.duration} {.metadata.annotations.note}`); got != "3h two" {
		c.t.Errorf("after two patches and two annotations: %q, want %q", got, "3h two")
	}
	current := c.do("get", "rsv", "changed", "-o", "yaml")
	replaced := c.file(strings.Replace(current, "duration: 3h", "duration: 4h", 1))
	c.do("replace", "-f", replaced)
	if got := c.do("get", "rsv", "changed", "-o", "jsonpath={.spec.duration}"); got != "4h" {
		c.t.Errorf("after replace: duration %q, want 4h", got)
	}
	if s := c.try(c.t, c.ctx, "", "replace", "-f", replaced); s.code == 0 || !strings.Contains(s.errOut, "Conflict") {
		c.t.Errorf("replace of an old version: %s", s)
	}
	if s := c.try(c.t, c.ctx, "", "patch", "rsv", "changed", "--type=merge", "-p", `{"spec":{"priority":9}}`); s.code == 0 ||
		!strings.Contains(s.errOut, "Reserved") || !strings.Contains(s.errOut, "spec.priority") {
		c.t.Errorf("a changed spec of a Reserved one: %s", s)
	}
}

// watch follows get -w until it shows what other commands did.
func (c *cell) watch() {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	cmd := c.command(ctx, "", "get", "rsv", "-w", "--output-watch-events")
	out, err := cmd.StdoutPipe()
	must(c.t, err)
	must(c.t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // killed
	}()
	// Each step is taken once the line before it was seen; the first needs none.
	steps := []struct {
		args []string
		sees []string
	}{
		{[]string{"create", "-f", c.file(rsv("watched"))}, []string{"ADDED", "watched", "Reserved"}},
		{[]string{"label", "rsv", "watched", "team=blue"}, []string{"MODIFIED", "watched"}},
		{[]string{"delete", "rsv", "watched"}, []string{"DELETED", "watched"}},
	}
	lines := bufio.NewScanner(out)
	for _, step := range steps {
		c.do(step.args...)
		for found := false; !found; {
			if !lines.Scan() {
				c.t.Fatalf("get -w ended before it showed %q", step.sees)
			}
			found = true
			for _, word := range step.sees {
				found = found && strings.Contains(lines.Text(), word)
			}
		}
	}
}
