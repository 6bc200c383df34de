package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/test/kube"
	"github.com/bourse-dev/bourse/test/kube/internal/child"
)

const (
	// agentManifests is the folder that a user applies to a member cluster.
	agentManifests = "../../../deploy/agent"
	agentNamespace = "bourse-agent"
	agentAccount   = "bourse-agent"
)

// member is one member cluster and its agent.
type member struct {
	name    string
	cluster *kube.Cluster
	node    *node // the broker node that its agent's kubeconfig names
	metrics string
	logPath string
	args    []string // of its agent, beside the offer
	proc    *child.Process
}

// offers are the initial values that each agent is started with. paris is dear until kubectl says otherwise.
var offers = map[string][]string{
	"rome":   {"--region=eu-south", "--provider=roma", "--label=tier=gold", "--cost=currency=EUR", "--cost=cpu=0.70"},
	"paris":  {"--region=eu-west", "--provider=seine", "--label=tier=gold", "--cost=currency=EUR", "--cost=cpu=5.00"},
	"berlin": {"--region=eu-central", "--provider=spree", "--label=tier=silver", "--cost=currency=EUR", "--cost=cpu=0.60", "--cost=memory=0.10"},
}

// applyRights applies what the agent's manifests grant, and has the real API server check the rest of them. The
// Deployment itself stays out: kwok would play a pod that does nothing, beside the agent that runs as a process.
func applyRights(ctx context.Context, c *kube.Cluster) error {
	for _, file := range []string{"namespace.yaml", "rbac.yaml"} {
		if err := c.Apply(ctx, filepath.Join(agentManifests, file)); err != nil {
			return err
		}
	}
	_, err := c.Kubectl(ctx, "apply", "--dry-run=server", "-k", agentManifests)
	return err
}

var deploymentFlag = regexp.MustCompile(`(?m)^ *- (--[a-z-]+)=`)

// checkDeployment looks for each flag of the agent's Deployment in the program's help.
func (x *exchange) checkDeployment(t *testing.T, ctx context.Context) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(agentManifests, "deployment.yaml"))
	must(t, err)
	help, err := exec.CommandContext(ctx, x.bourse, "agent", "--help").CombinedOutput()
	must(t, err)
	flags := deploymentFlag.FindAllStringSubmatch(string(manifest), -1)
	if len(flags) == 0 {
		t.Error("the Deployment gives the agent no flags")
	}
	for _, flag := range flags {
		if !strings.Contains(string(help), flag[1]+" ") {
			t.Errorf("the Deployment gives the agent %s, which it does not know", flag[1])
		}
	}
}

// startAgent runs the agent of m with the rights of its service account.
func (x *exchange) startAgent(ctx context.Context, m *member) error {
	own, err := m.cluster.ServiceAccountKubeconfig(ctx, agentNamespace, agentAccount)
	if err != nil {
		return err
	}
	broker, err := x.kubeconfig(ctx, m.node, "agent:"+m.name)
	if err != nil {
		return err
	}
	if m.metrics, err = freeAddress(); err != nil {
		return err
	}
	m.logPath = filepath.Join(x.dir, "logs", "agent-"+m.name+".log")
	args := append([]string{
		"agent", "--cluster-id", m.name, "--broker-kubeconfig", broker, "--kubeconfig", own,
		"--endpoint", m.cluster.URL(), "--metrics-listen", m.metrics,
	}, append(offers[m.name], m.args...)...)
	m.proc, err = x.program("bourse agent of "+m.name, m.logPath, args)
	return err
}

// histogram is a Prometheus histogram, some of its series added up.
type histogram struct {
	count   float64
	buckets map[float64]float64 // upper bound to cumulative count
}

// histogram reads one of the agent's metrics: those of its series that carry the label. One that has none yet is empty.
func (m *member) histogram(ctx context.Context, name, label string) (histogram, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.metrics+"/metrics", nil)
	if err != nil {
		return histogram{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return histogram{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return histogram{}, err
	}
	return parseHistogram(content, name, label)
}

func parseHistogram(exposition []byte, name, label string) (histogram, error) {
	h := histogram{buckets: map[float64]float64{}}
	lines := bufio.NewScanner(bytes.NewReader(exposition))
	for lines.Scan() {
		series, text, _ := strings.Cut(lines.Text(), "} ")
		metric, labels, _ := strings.Cut(series, "{")
		if metric != name+"_bucket" || !strings.Contains(labels, label) {
			continue
		}
		count, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return h, fmt.Errorf("metric line %q: %w", lines.Text(), err)
		}
		bound, _, _ := strings.Cut(labels[strings.LastIndex(labels, `le="`)+len(`le="`):], `"`)
		upper, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return h, fmt.Errorf("metric line %q: %w", lines.Text(), err)
		}
		h.buckets[upper] += count
		h.count = max(h.count, h.buckets[upper])
	}
	return h, lines.Err()
}

// since leaves out what was counted before.
func (h histogram) since(before histogram) histogram {
	out := histogram{count: h.count - before.count, buckets: map[float64]float64{}}
	for upper, count := range h.buckets {
		out.buckets[upper] = count - before.buckets[upper]
	}
	return out
}

// quantile is the upper bound of the bucket in which the quantile lies: never better than the truth.
func (h histogram) quantile(q float64) float64 {
	var bounds []float64
	for upper := range h.buckets {
		bounds = append(bounds, upper)
	}
	slices.Sort(bounds)
	for _, upper := range bounds {
		if h.buckets[upper] >= q*h.count {
			return upper
		}
	}
	return math.Inf(1)
}

// checkRights asks the member cluster itself what the agent's account may do.
func checkRights(t *testing.T, ctx context.Context, m *member) {
	account := "--as=system:serviceaccount:" + agentNamespace + ":" + agentAccount
	for question, want := range map[string]string{
		"list nodes": "yes", "watch nodes": "yes", "list pods": "yes", "watch pods": "yes",
		"get secrets": "no", "create pods": "no", "delete pods": "no", "update nodes": "no", "create pods/exec": "no",
	} {
		verb, resource, _ := strings.Cut(question, " ")
		// can-i exits with 1 where the answer is no.
		got, err := m.cluster.Kubectl(ctx, "auth", "can-i", verb, resource, "--all-namespaces", account)
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: may the agent %s? Got %q (%v), want %s", m.name, question, strings.TrimSpace(got), err, want)
		}
	}
}

var errNotInLog = errors.New("not in the log")

// logLine returns the first line of a log that has all words.
func logLine(path string, words ...string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return strings.TrimSpace(line), nil
		}
	}
	return "", fmt.Errorf("%w %s: a line with %q", errNotInLog, path, words)
}
