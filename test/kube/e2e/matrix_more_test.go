package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c *cell) remove() {
	for _, cascade := range []string{"background", "foreground"} {
		name := "deleted-" + cascade
		c.do("apply", "-f", c.file(rsv(name)))
		contains(c.t, "delete", c.do("delete", "rsv", name, "--cascade="+cascade, "--timeout=20s"), "deleted")
		if s := c.try(c.t, c.ctx, "", "get", "rsv", name); s.code == 0 || !strings.Contains(s.errOut, "NotFound") {
			c.t.Errorf("after delete --cascade=%s: %s", cascade, s)
		}
	}
	path := c.file(rsv("deleted-file"))
	c.do("apply", "-f", path)
	c.do("delete", "-f", path)
	c.do("delete", "-f", path, "--ignore-not-found")
}

func (c *cell) wait() {
	c.do("apply", "-f", c.file(rsv("awaited")))
	c.do("wait", "rsv/awaited", "--for=jsonpath={.status.phase}=Reserved", "--timeout=20s")
	c.do("wait", "rsv/awaited", "--for=condition=Ready", "--timeout=20s")
	c.do("delete", "rsv", "awaited", "--wait=false")
	c.do("wait", "rsv/awaited", "--for=delete", "--timeout=20s")
}

// dryRun asks the same on all three ways to create and gets the same decision, holding nothing.
func (c *cell) dryRun() {
	path := c.file(rsv("tried"))
	answers := map[string]string{}
	for _, way := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side"}} {
		r := c.reservation(c.t, c.ctx, "", append(way, "--dry-run=server", "-f", path)...)
		if r.Status.Phase != "Reserved" || r.Status.Decision == nil {
			c.t.Errorf("%v --dry-run=server: phase %q, decision %v: want what would become of it", way, r.Status.Phase, r.Status.Decision)
			continue
		}
		// Other cells take capacity meanwhile, so figures may differ by what they took; the choice does not.
		var order []string
		for _, candidate := range r.Status.Decision.Candidates {
			order = append(order, candidate.ClusterID)
		}
		answers[strings.Join(way, " ")] = fmt.Sprint(r.Status.TargetClusterID, r.Status.PricePerHour, r.Status.Decision.Policy, order)
	}
	for way, answer := range answers {
		if answer != answers["create"] {
			c.t.Errorf("%s decides %s, create %s", way, answer, answers["create"])
		}
	}
	if s := c.try(c.t, c.ctx, "", "get", "rsv", "tried"); s.code == 0 {
		c.t.Errorf("a dry run left something: %s", s)
	}
	admin := c.w.at(0).Resource(reservationsKind).Namespace(c.namespace)
	if _, err := admin.Get(c.ctx, "tried", metav1.GetOptions{}); err == nil {
		c.t.Error("a dry run left a reservation")
	}
}

func (c *cell) auth() {
	contains(c.t, "auth whoami", c.do("auth", "whoami"), "Username", "admin")
	contains(c.t, "auth can-i --list", c.do("auth", "can-i", "--list"), "Resources", "Verbs")
	if got := strings.TrimSpace(c.do("auth", "can-i", "create", "reservations.broker.fluidos.eu")); got != "yes" {
		c.t.Errorf("may the administrator create reservations? %q", got)
	}
	viewer := c.kubectl
	kubeconfig, err := c.w.exchange.kubeconfig(c.ctx, c.w.exchange.nodes[0], "viewer")
	must(c.t, err)
	viewer.kubeconfig = kubeconfig
	if s := viewer.try(c.t, c.ctx, "", "auth", "can-i", "create", "reservations.broker.fluidos.eu"); s.code != 1 || strings.TrimSpace(s.out) != "no" {
		c.t.Errorf("may the viewer create reservations? %s", s)
	}
}

func (c *cell) selectors() {
	for name, squad := range map[string]string{"sel-a": "blue", "sel-b": "blue", "sel-c": "red"} {
		c.do("apply", "-f", c.file(strings.Replace(rsv(name), "name: "+name, fmt.Sprintf("name: %s\n  labels: {squad: %s, pick: me}", name, squad), 1)))
	}
	c.do("apply", "-f", c.file(strings.Replace(manifest("sel-huge", "berlin", `{cpu: "9999"}`), "name: sel-huge", "name: sel-huge\n  labels: {pick: me}", 1)))
	for _, query := range []struct {
		args string
		want int
	}{
		{"-l squad=blue", 2},
		{"-l squad!=blue,pick=me", 2},
		{"-l squad in (red,green)", 1},
		{"-l pick=me --field-selector=status.phase=Reserved", 3},
		{"-l pick=me --field-selector=status.phase=Failed", 1},
		{"-l pick=me --field-selector=spec.requesterID=rome", 3},
		{"-l pick=me --field-selector=spec.requesterID!=rome", 1},
		{"-l pick=me --field-selector=status.targetClusterID=", 1},
		{"--field-selector=metadata.name=sel-b", 1},
	} {
		args := []string{"get", "rsv", "-o", "name"}
		selector, fields, _ := strings.Cut(query.args, " --field-selector=")
		if label, ok := strings.CutPrefix(selector, "-l "); ok {
			args = append(args, "-l", label)
		} else {
			fields = strings.TrimPrefix(selector, "--field-selector=")
		}
		if fields != "" {
			args = append(args, "--field-selector="+fields)
		}
		if got := len(strings.Fields(c.do(args...))); got != query.want {
			c.t.Errorf("get rsv %s finds %d, want %d", query.args, got, query.want)
		}
	}
}

// many lists the 2,000 objects in the ways that kubectl has.
func (c *cell) many() {
	k := c.kubectl
	k.namespace = manyNamespace
	for _, query := range []struct {
		args []string
		want int
	}{
		{[]string{"get", "rsv", "--no-headers"}, manyObjects},
		{[]string{"get", "rsv", "--no-headers", "-o", "wide", "--chunk-size=500"}, manyObjects},
		{[]string{"get", "rsv", "-o", "name", "-l", "parity=odd"}, manyObjects / 2},
		{[]string{"get", "rsv", "-o", "name", "--field-selector=spec.requesterID=paris"}, manyObjects / 100},
		{[]string{"get", "rsv", "-o", "name", "-l", "parity=even", "--field-selector=status.phase=Reserved,spec.requesterID=rome"}, manyObjects/2 - manyObjects/100},
	} {
		if got := strings.Count(k.run(c.t, c.ctx, query.args...), "\n"); got != query.want {
			c.t.Errorf("kubectl %s finds %d, want %d", strings.Join(query.args, " "), got, query.want)
		}
	}
	var list struct{ Items []reservation }
	must(c.t, json.Unmarshal([]byte(k.run(c.t, c.ctx, "get", "rsv", "-o", "json")), &list))
	names := map[string]bool{}
	for _, r := range list.Items {
		names[r.Name] = true
	}
	if len(names) != manyObjects {
		c.t.Errorf("get -o json finds %d names, want %d", len(names), manyObjects)
	}
}
