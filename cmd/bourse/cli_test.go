package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// runs one command line and returns its exit code and what it printed.
func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// cutOnce answers nothing the first time, then what stands under the method alone.
const cutOnce = "cut once"

// exchangeAnswering is a kubeconfig of a server with fixed answers by path.
func exchangeAnswering(t *testing.T, answers map[string]string) (kubeconfig string) {
	t.Helper()
	var cut atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if answer == cutOnce {
			if !cut.Swap(true) {
				panic(http.ErrAbortHandler)
			}
			answer = answers[r.Method]
		}
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`
		} else if status, body, found := strings.Cut(answer, " "); found && status == "403" {
			w.WriteHeader(http.StatusForbidden)
			answer = body
		}
		w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"users: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {server: \"" + server.URL + "\"}}]\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestExitCodesTellUsageFromRefusalFromFailure(t *testing.T) {
	t.Parallel()
	reservations := "POST /apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservations"
	failed := exchangeAnswering(t, map[string]string{reservations: `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Reservation",
		"metadata":{"name":"x"},"spec":{"requesterID":"rome","requestedResources":{"cpu":"4"}},
		"status":{"phase":"Failed","message":"Insufficient resources in paris: cpu 4 requested, 0 available"}}`})
	const notYours = `403 {"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not yours"}`
	forbidden := exchangeAnswering(t, map[string]string{reservations: notYours, "DELETE /admin/v1/raft/peers/n9": notYours})
	refusedBatch := exchangeAnswering(t, map[string]string{"POST /apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservationbatches": `{
		"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","metadata":{"name":"x"},"spec":{"items":[]},
		"status":{"phase":"Failed","message":"0/2: tokyo lacks nvidia.com/gpu","counts":{"items":2,"failed":2}}}`})
	releasedBatch := exchangeAnswering(t, map[string]string{"POST /apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservationbatches": `{
		"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","metadata":{"name":"x"},"spec":{"items":[]},
		"status":{"phase":"Released","message":"0/2 Reserved, 2 Released","counts":{"items":2,"released":2}}}`})
	items := filepath.Join(t.TempDir(), "items.yaml")
	require.NoError(t, os.WriteFile(items, []byte("- spec: {requestedResources: {cpu: 4}}\n- spec: {requestedResources: {nvidia.com/gpu: 1}}\n"), 0o600))
	empty := exchangeAnswering(t, nil)
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"an unknown command", []string{"reserv"}, exitUsage, "reserv"},
		{"an unknown flag", []string{"status", "--nope"}, exitUsage, "--nope"},
		{"a missing argument", []string{"explain"}, exitUsage, "accepts 1 arg"},
		{"an unknown output format", []string{"status", "-o", "yaml", "--kubeconfig", empty}, exitUsage, `"yaml"`},
		{"nothing asked for", []string{"reserve", "--from", "rome"}, exitUsage, "--cpu"},
		{"a bad quantity", []string{"reserve", "--from", "rome", "--cpu", "four"}, exitUsage, `--cpu "four"`},
		{"nobody who asks", []string{"reserve", "--cpu", "4"}, exitUsage, "--from"},
		{"a server without settings", []string{"server"}, exitUsage, "node-id"},
		{"a server without TLS", []string{"server", "--node-id", "n1", "--data-dir", "d", "--bootstrap-expect", "1"}, exitUsage, "insecure-dev"},
		{"an agent without a kubeconfig", []string{"agent"}, exitUsage, "broker kubeconfig"},
		{"an even number of broker nodes", []string{"dev", "--servers", "2"}, exitUsage, "servers 2"},
		{"a dev exchange for everybody", []string{"dev", "--listen", "0.0.0.0:7440"}, exitUsage, `"0.0.0.0:7440"`},
		{"no exchange there", []string{"status", "--kubeconfig", empty}, exitFailed, "not found"},
		{"no room", []string{"reserve", "--from", "rome", "--cpu", "4", "--kubeconfig", failed}, exitRefused, "0 available"},
		{"a batch without room", []string{"reserve", "--from", "rome", "-f", items, "--atomic", "--kubeconfig", refusedBatch}, exitRefused, "tokyo lacks nvidia.com/gpu"},
		{"a batch of nobody", []string{"reserve", "-f", items, "--kubeconfig", empty}, exitUsage, "spec.items[0].spec.requesterID"},
		{"a size beside a file", []string{"reserve", "--from", "rome", "-f", items, "--atomic", "--cpu", "4"}, exitUsage, "--cpu"},
		{"pieces beside a file", []string{"reserve", "--from", "rome", "-f", items, "--max-pieces", "2"}, exitUsage, "--max-pieces"},
		{"an atomic batch that waits", []string{"reserve", "--from", "rome", "-f", items, "--atomic", "--wait", "1h"}, exitUsage, "--wait 1h"},
		{"a bad piece", []string{"reserve", "--from", "rome", "--cpu", "4", "--max-pieces", "2", "--min-piece", "cpu=two"}, exitUsage, `--min-piece cpu "two"`},
		{"a batch that is held no more", []string{"reserve", "--from", "rome", "-f", items, "--kubeconfig", releasedBatch}, exitRefused, "2 Released"},
		{"a bad duration", []string{"reserve", "--from", "rome", "-f", items, "--for", "abc"}, exitUsage, `--for: duration "abc"`},
		{"a bad wait of one", []string{"reserve", "--from", "rome", "--cpu", "4", "--wait", "abc"}, exitUsage, `--wait: duration "abc"`},
		{"a bad priority", []string{"reserve", "--from", "rome", "-f", items, "--priority", "5000"}, exitUsage, "--priority 5000"},
		{"no such file", []string{"reserve", "--from", "rome", "-f", items + ".not"}, exitUsage, "items.yaml.not"},
		{"all of one", []string{"reserve", "--from", "rome", "--cpu", "4", "--atomic"}, exitUsage, "--file"},
		{"not allowed", []string{"reserve", "--from", "rome", "--cpu", "4", "--kubeconfig", forbidden}, exitRefused, "not yours"},
		{"not allowed to administer", []string{"raft", "remove-peer", "n9", "--kubeconfig", forbidden}, exitRefused, "not yours"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := runs(t, tc.args...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.says)
		})
	}
}

func TestAnAmountInPiecesIsAskedForOnTheCommandLine(t *testing.T) {
	t.Parallel()
	f := reserveFlags{from: "rome", cpu: "40", maxPieces: 3, minPiece: map[string]string{"cpu": "8"}}
	r, err := f.reservation(time.Time{})
	require.NoError(t, err)
	require.EqualValues(t, 3, r.Spec.Split.MaxPieces)
	require.Equal(t, "8", r.Spec.Split.MinPiece.Cpu().String())
	require.Empty(t, broker.ValidateReservation(r))
	f.maxPieces, f.minPiece = 0, nil
	r, err = f.reservation(time.Time{})
	require.NoError(t, err)
	require.Nil(t, r.Spec.Split)
	var said strings.Builder
	r.Status.Pieces = []broker.Piece{{Name: "r-1", TargetClusterID: "paris", RequestedResources: r.Spec.RequestedResources}}
	require.NoError(t, printReservation(&said, r, false))
	require.Contains(t, said.String(), "40 on paris")
}

func TestABatchOfAFileIsNamedAndCompletedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	f := reserveFlags{from: "rome", file: "-", duration: "2h", atomic: true, name: "train"}
	batch, err := f.batch(strings.NewReader("items:\n- name: a\n  spec: {requestedResources: {cpu: 4}}\n- spec: {requesterID: rome, requestedResources: {cpu: 2}}\n"))
	require.NoError(t, err)
	require.Equal(t, "train", batch.Name)
	require.True(t, batch.Spec.Atomic)
	require.Equal(t, "2h", batch.Spec.Duration)
	require.Empty(t, batch.Spec.Items[0].Spec.Duration, "it stands on the batch")
	require.Equal(t, []string{"a", "0002"}, []string{batch.Spec.Items[0].Name, batch.Spec.Items[1].Name})
	require.Equal(t, []string{"rome", "rome"}, []string{batch.Spec.Items[0].Spec.RequesterID, batch.Spec.Items[1].Spec.RequesterID})

	f.atomic = false
	batch, err = f.batch(strings.NewReader("kind: ReservationBatch\nmetadata: {name: other}\nspec:\n  items:\n  - spec: {requestedResources: {cpu: 4}, duration: 1h}\n  - spec: {requestedResources: {cpu: 4}}\n"))
	require.NoError(t, err)
	require.Equal(t, "train", batch.Name, "the command line wins")
	require.Equal(t, []string{"1h", "2h"}, []string{batch.Spec.Items[0].Spec.Duration, batch.Spec.Items[1].Spec.Duration})

	_, err = f.batch(strings.NewReader("- {name: a, specs: {}}"))
	require.ErrorContains(t, err, "specs")
}

func TestAFileWithoutANameIsTheSameBatchEachTime(t *testing.T) {
	t.Parallel()
	named := func(from, duration, file string) string {
		f := reserveFlags{from: from, duration: duration, file: "-"}
		batch, err := f.batch(strings.NewReader(file))
		require.NoError(t, err, file)
		require.LessOrEqual(t, len(batch.Name), broker.MaxItemNameBytes)
		return batch.Name
	}
	const item = "- {name: a, spec: {requestedResources: {cpu: 4}}}\n"
	name := named("rome", "2h", item)
	require.Regexp(t, "^rome-[0-9a-f]{16}$", name)
	for _, same := range []string{"# of today\n" + item, "---\n" + item, "# a\n---\n# b\n" + item + "---\n", "[{spec: {requestedResources: {cpu: 4}}, name: a}]", "items:\n" + item} {
		require.Equal(t, name, named("rome", "2h", same), same)
	}
	require.NotEqual(t, name, named("rome", "3h", item))
	require.NotEqual(t, name, named("rome", "2h", item+"- spec: {requestedResources: {cpu: 4}}\n"))
	require.Equal(t, "given", named("rome", "2h", "metadata: {name: given}\nitems:\n"+item))
	named(strings.Repeat("r", broker.MaxClusterIDBytes), "", item)

	lost := repeatable(io.ErrUnexpectedEOF, name, "lazio")
	require.ErrorIs(t, lost, io.ErrUnexpectedEOF)
	require.ErrorContains(t, lost, name)
	require.ErrorContains(t, lost, "the same command again")
	left := repeatable(context.Canceled, name, "lazio")
	require.ErrorIs(t, left, context.Canceled)
	require.ErrorContains(t, left, `goes on at the exchange: "kubectl get rsvb `+name+` -n lazio" shows it, "kubectl delete rsvb `+name+` -n lazio" releases it`)
}

func TestAFileOfABatchIsReadWholeOrRefused(t *testing.T) {
	t.Parallel()
	const item = "- {name: a, spec: {requestedResources: {cpu: 4}}}\n"
	for says, file := range map[string]string{
		"several YAML documents":               item + "---\n" + item,
		"it is empty":                          "# nothing\n",
		"larger than":                          item + strings.Repeat("# long\n", maxBatchFileBytes/7),
		`"name" already set`:                   "- {name: a, name: b, spec: {requestedResources: {cpu: 4}}}",
		"error converting YAML":                "- {name: a",
		"spec.items: Required":                 "metadata: {name: a}",
		`kind is "ConfigMap"`:                  "kind: ConfigMap\nspec: {items: [" + item[2:len(item)-1] + "]}",
		`apiVersion is "broker.fluidos.eu/v9"`: "apiVersion: broker.fluidos.eu/v9\nkind: ReservationBatch\nitems:\n" + item,
		"`kubectl apply -f` takes":             "kind: Reservation\nspec: {requestedResources: {cpu: 4}}",
		"all items stand under spec.items":     "spec: {atomic: true, items: [" + item[2:len(item)-1] + "]}\nitems:\n" + item,
		"neither a ReservationBatch nor":       "hello",
		`spec.items[0] ("a"): requesterID is "paris" and --from is "rome"`: "- {name: a, spec: {requesterID: paris, requestedResources: {cpu: 4}}}",
		`metadata.namespace is "a" and --namespace is "b"`:                 "metadata: {namespace: a}\nitems:\n" + item,
		", and 30 more": strings.Repeat("- spec: {requestedResources: {cpu: -4}}\n", 40),
	} {
		f := reserveFlags{from: "rome", file: "-", client: client{namespace: "b"}}
		_, err := f.batch(strings.NewReader(file))
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "--file -")
	}
}

func TestABatchThatTheExchangeGaveIsTakenAsAFileAgain(t *testing.T) {
	t.Parallel()
	f := reserveFlags{file: "-"}
	batch, err := f.batch(strings.NewReader("\ufeff" + `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","metadata":{
		"name":"x","namespace":"lazio","uid":"u","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b"},
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"},"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]},
		"spec":{"items":[{"name":"a","spec":{"requesterID":"rome","requestedResources":{"cpu":"4"}}}]},
		"status":{"phase":"Reserved","counts":{"items":1}}}`))
	require.NoError(t, err)
	require.Equal(t, metav1.ObjectMeta{Name: "x", Namespace: "lazio", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{}}, batch.ObjectMeta)
	require.Empty(t, batch.Status)
}

func TestWhoAsksForARefusedBatchAgainIsToldThatTheAnswerIsOfBefore(t *testing.T) {
	t.Parallel()
	const path, batch = "/apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservationbatches", `{
		"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","spec":{"atomic":true,"items":[]},
		"metadata":{"name":"x","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},"status":{"phase":"Failed",
		"message":"0/2: tokyo lacks cpu","counts":{"items":2,"failed":2},"results":[
		{"name":"a","phase":"Failed","message":"would fit: the batch was refused"},{"name":"b","phase":"Failed","message":"tokyo lacks cpu"}]}}`
	kubeconfig := exchangeAnswering(t, map[string]string{"POST " + path: batch, "GET " + path + "/x": batch})
	items := filepath.Join(t.TempDir(), "items.yaml")
	require.NoError(t, os.WriteFile(items, []byte("[{spec: {requestedResources: {cpu: 4}}}]"), 0o600))
	code, _, stderr := runs(t, "reserve", "--from", "rome", "-f", items, "--name", "x", "--atomic", "--kubeconfig", kubeconfig)
	require.Equal(t, exitRefused, code)
	require.Contains(t, stderr, "x was asked for before, at 2026-01-02T03:04:05Z")
	require.Contains(t, stderr, `the answer of before: to try again delete it, "kubectl delete rsvb x -n default"`)

	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var errs bytes.Buffer
	require.Equal(t, exitFailed, run(ctx, []string{"reserve", "--from", "rome", "-f", items, "--name", "x", "--kubeconfig", kubeconfig}, io.Discard, &errs))
	require.Contains(t, errs.String(), `interrupted: what has arrived of batch x goes on at the exchange: "kubectl get rsvb x -n default"`)

	code, _, stderr = runs(t, "explain", "x", "--kubeconfig", kubeconfig)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "x is a ReservationBatch, 0/2: tokyo lacks cpu; none of its items is there: x-a Failed (would fit: the batch was refused), x-b")
}

func TestAReservationWithoutAnAnswerIsNamed(t *testing.T) {
	t.Parallel()
	const path = "POST /apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservations"
	kubeconfig := exchangeAnswering(t, map[string]string{path: cutOnce})
	code, _, stderr := runs(t, "reserve", "--from", "rome", "--cpu", "4", "--kubeconfig", kubeconfig)
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `reservation (rome-\S+) may or may not be there: "kubectl get rsv rome-\S+ -n default" shows it, and the same command with --name rome-`, stderr)
}

func TestWhatIsPrintedAsJSONHasItsKindAndTheFilesNamespaceIsUsed(t *testing.T) {
	t.Parallel()
	const api = "POST /apis/broker.fluidos.eu/v1alpha1/namespaces/lazio/"
	kubeconfig := exchangeAnswering(t, map[string]string{
		api + "reservationbatches": `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","metadata":{"name":"x"},
			"spec":{"items":[]},"status":{"counts":{"items":1,"reserved":1}}}`,
		api + "reservations": `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Reservation","metadata":{"name":"x"},"spec":{},"status":{"phase":"Reserved"}}`,
	})
	items := filepath.Join(t.TempDir(), "items.yaml")
	require.NoError(t, os.WriteFile(items, []byte("metadata: {namespace: lazio}\nitems: [{spec: {requestedResources: {cpu: 4}}}]"), 0o600))
	for kind, args := range map[string][]string{
		"ReservationBatch": {"reserve", "--from", "rome", "-f", items},
		"Reservation":      {"reserve", "--from", "rome", "--cpu", "4", "-n", "lazio"},
	} {
		code, stdout, stderr := runs(t, append(args, "-o", "json", "--kubeconfig", kubeconfig)...)
		require.Equal(t, exitDone, code, stderr)
		var got metav1.TypeMeta
		require.NoError(t, json.Unmarshal([]byte(stdout), &got))
		require.Equal(t, metav1.TypeMeta{APIVersion: "broker.fluidos.eu/v1alpha1", Kind: kind}, got)
	}
}

func TestABatchWithoutAnAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	const path = "POST /apis/broker.fluidos.eu/v1alpha1/namespaces/default/reservationbatches"
	kubeconfig := exchangeAnswering(t, map[string]string{path: cutOnce, "POST": `{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch",
		"metadata":{"name":"x"},"spec":{"items":[]},"status":{"phase":"Reserved","message":"1/1 Reserved","counts":{"items":1,"reserved":1}}}`})
	items := filepath.Join(t.TempDir(), "items.yaml")
	require.NoError(t, os.WriteFile(items, []byte("[{spec: {requestedResources: {cpu: 4}}}]"), 0o600))
	code, stdout, stderr := runs(t, "reserve", "--from", "rome", "-f", items, "--kubeconfig", kubeconfig)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stderr, "asking again")
	require.Contains(t, stdout, "1/1 Reserved")
}

func TestListPeersPrintsTheContractedJSON(t *testing.T) {
	t.Parallel()
	kubeconfig := exchangeAnswering(t, map[string]string{"GET /admin/v1/raft/configuration": `{"servers":[
		{"id":"n1","address":"127.0.0.1:1","suffrage":"voter","leader":true,"lastContactMs":0,"lag":0},
		{"id":"n2","address":"127.0.0.1:2","suffrage":"voter","leader":false,"lastContactMs":-1,"lag":-1}],"view":"leader","term":7}`})
	code, stdout, stderr := runs(t, "raft", "list-peers", "-o", "json", "--kubeconfig", kubeconfig)
	require.Equal(t, exitDone, code, stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "leader", got["view"])
	require.InDelta(t, 7, got["term"], 0)
	require.Len(t, got["servers"], 2)

	_, stdout, _ = runs(t, "raft", "list-peers", "--kubeconfig", kubeconfig)
	require.Contains(t, stdout, "leader")
	require.Contains(t, stdout, "never")
	require.NotContains(t, stdout, "\x1b[", "colours only on a terminal")
}

func TestAnInspectedFileThatIsNoSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.snap")
	require.NoError(t, os.WriteFile(path, []byte("hello, this is no snapshot"), 0o600))
	code, _, stderr := runs(t, "snapshot", "inspect", path)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, path)
}

func TestABarShowsSharesOfAWhole(t *testing.T) {
	t.Parallel()
	runes := []rune{'#', '='}
	for _, tc := range []struct {
		name   string
		whole  int64
		shares []int64
		want   string
	}{
		{"half used, a quarter reserved", 8, []int64{4, 2}, "#####===··"},
		{"nothing known", 0, []int64{0, 0}, "··········"},
		{"more promised than there is", 4, []int64{3, 3}, "########=="},
		{"all free", 4, []int64{0, 0}, "··········"},
	} {
		require.Equal(t, tc.want, bar(10, tc.whole, tc.shares, runes), tc.name)
	}
}
