package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/server/servertest"
)

const romeBatches = group + "/namespaces/rome/reservationbatches"

// batchBody has items "name=cpu" or "name=cpu@target", as "a=4@berlin b=2".
func batchBody(name, items, more string) string {
	var list []string
	for _, text := range strings.Fields(items) {
		item, what, _ := strings.Cut(text, "=")
		cpu, target, _ := strings.Cut(what, "@")
		if target != "" {
			target = fmt.Sprintf(`,"targetClusterID":%q`, target)
		}
		list = append(list, fmt.Sprintf(`{"name":%q,"spec":{"requesterID":"rome","requestedResources":{"cpu":%q}%s}}`, item, cpu, target))
	}
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ReservationBatch","metadata":{"name":%q},"spec":{"items":[%s]%s}}`,
		name, strings.Join(list, ","), more)
}

func (a answer) batch(t *testing.T) *broker.ReservationBatch {
	t.Helper()
	b := &broker.ReservationBatch{}
	require.NoError(t, json.Unmarshal([]byte(a.body), b), a.body)
	return b
}

func (c client) phase(path string) broker.ReservationPhase {
	c.t.Helper()
	r := &broker.Reservation{}
	require.NoError(c.t, json.Unmarshal([]byte(c.must(http.StatusOK, "GET", path, "").body), r))
	return r.Status.Phase
}

func TestAnAtomicBatchIsReservedWholeOrNotAtAllHoweverItIsCreated(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	x.advertise("paris", 32)
	c := x.client(server.GroupRequester + "rome")
	ways := map[string]func(name, items, query string) answer{
		"create": func(name, items, query string) answer {
			return c.must(http.StatusCreated, "POST", romeBatches+applied+query, batchBody(name, items, `"atomic":true,"duration":"2h"`))
		},
		"apply --server-side": func(name, items, query string) answer {
			return c.must(http.StatusCreated, "PATCH", romeBatches+"/"+name+applied+query, batchBody(name, items, `"atomic":true,"duration":"2h"`), "Content-Type", applyTyp)
		},
	}
	for way, create := range ways {
		name := strings.Fields(way)[0]
		before := x.DB.State().Revision()
		dry := create(name, "a=4@berlin b=2@paris c=1", "&"+dryRun).batch(t)
		require.Equal(t, before, x.DB.State().Revision(), "%s: a dry run wrote something", way)
		real := create(name, "a=4@berlin b=2@paris c=1", "").batch(t)
		for _, b := range []*broker.ReservationBatch{dry, real} {
			require.Equal(t, broker.BatchReserved, b.Status.Phase, way)
			require.Equal(t, "3/3 Reserved", b.Status.Message, way)
			require.Equal(t, dry.Status.Results, b.Status.Results, way)
			require.Equal(t, "berlin", b.Status.Results[0].TargetClusterID)
			require.NotNil(t, b.Status.ExpiresAt)
		}
		item := c.must(http.StatusOK, "GET", rome+"/"+name+"-b", "").reservation(t)
		require.Equal(t, broker.ReservationReserved, item.Status.Phase)
		require.Equal(t, "paris", item.Status.TargetClusterID)
		require.True(t, item.Status.ExpiresAt.Equal(real.Status.ExpiresAt))
		require.Equal(t, &broker.PartOf{Kind: "ReservationBatch", Name: name, UID: real.UID, Bound: true}, item.Status.PartOf)
		require.Equal(t, name, item.Labels[broker.LabelBatch])

		failed := create("no"+name, "a=4@berlin b=64@paris", "").batch(t)
		require.Equal(t, broker.BatchFailed, failed.Status.Phase, way)
		require.Equal(t, "0/2: paris lacks cpu", failed.Status.Message, way)
		c.must(http.StatusNotFound, "GET", rome+"/no"+name+"-a", "")
	}
	berlin := x.stored("berlin").Spec.Resources.Reserved["cpu"]
	require.Equal(t, "8", berlin.String(), "what failed holds nothing, a is held once each")
	c.must(http.StatusOK, "DELETE", romeBatches+"/create", "")
	c.must(http.StatusNotFound, "GET", rome+"/create-a", "")
	berlin = x.stored("berlin").Spec.Resources.Reserved["cpu"]
	require.Equal(t, "4", berlin.String())
}

func TestAPartOfAnAtomicBatchIsNotEndedAlone(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(server.GroupRequester + "rome")
	c.must(http.StatusCreated, "POST", romeBatches, batchBody("train", "a=4 b=2", `"atomic":true,"duration":"2h"`))
	refused := c.must(http.StatusConflict, "DELETE", rome+"/train-a", "")
	require.Contains(t, refused.body, `part of the ReservationBatch \"train\"`)
	refused = c.must(http.StatusConflict, "PATCH", rome+"/train-a", `{"spec":{"duration":"3h"}}`, "Content-Type", mergeTyp)
	require.Contains(t, refused.body, "extend that instead")
	c.must(http.StatusOK, "PATCH", rome+"/train-a", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", mergeTyp)

	longer := c.must(http.StatusOK, "PATCH", romeBatches+"/train", `{"spec":{"duration":"3h"}}`, "Content-Type", mergeTyp).batch(t)
	item := c.must(http.StatusOK, "GET", rome+"/train-a", "").reservation(t)
	require.True(t, item.Status.ExpiresAt.Equal(longer.Status.ExpiresAt))
	require.Equal(t, "3h", item.Spec.Duration)
	c.must(http.StatusUnprocessableEntity, "PATCH", romeBatches+"/train", `{"spec":{"duration":"1h"}}`, "Content-Type", mergeTyp)

	x.Advance(3*time.Hour + time.Second)
	require.Equal(t, broker.ReservationReleased, c.phase(rome+"/train-a"))
	ended := c.must(http.StatusOK, "GET", romeBatches+"/train", "").batch(t)
	require.Equal(t, broker.BatchReleased, ended.Status.Phase)
	require.Contains(t, ended.Status.Message, "0/2 Reserved, 2 Released")
}

func TestABatchSaysOfEachItemWhatBecameOfItAndItsNameMakesItIdempotent(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 8)
	c := x.client(server.GroupRequester + "rome")
	c.must(http.StatusCreated, "POST", rome, reservationBody("jobs-b", "rome", ""))
	body := batchBody("jobs", "a=2 b=1 c=4 d=1@oslo", "")
	first := c.must(http.StatusCreated, "POST", romeBatches, body)
	b := first.batch(t)
	require.Equal(t, broker.BatchPartial, b.Status.Phase)
	require.Equal(t, broker.BatchCounts{Items: 4, Reserved: 1, Failed: 3}, b.Status.Counts)
	require.Equal(t, "the name jobs-b is taken by another reservation", b.Status.Results[1].Message)
	require.Equal(t, "berlin lacks cpu", b.Status.Results[2].Message)
	require.NotEmpty(t, first.header.Values("Warning"), "nobody advertises oslo")

	revision := x.DB.State().Revision()
	again := c.must(http.StatusCreated, "POST", romeBatches, body).batch(t)
	require.Equal(t, b.UID, again.UID)
	require.Equal(t, b.Status.Results, again.Status.Results)
	require.Equal(t, revision, x.DB.State().Revision(), "nothing was written twice")
	c.must(http.StatusConflict, "POST", romeBatches, batchBody("jobs", "a=1", ""))
	x.client(admin...).must(http.StatusConflict, "DELETE", "/api/v1/namespaces/rome", "")

	// Its items are reservations as others are.
	require.Equal(t, "jobs", c.must(http.StatusOK, "GET", rome+"?labelSelector="+broker.LabelBatch+"%3Djobs", "").list(t)[0].Labels[broker.LabelBatch])
	c.must(http.StatusOK, "DELETE", rome+"/jobs-a", "")
	x.Advance(2 * time.Second)
	b = c.must(http.StatusOK, "GET", romeBatches+"/jobs", "").batch(t)
	require.Equal(t, broker.BatchReleased, b.Status.Phase)
	table := c.must(http.StatusOK, "GET", romeBatches+"?fieldSelector=status.phase%3DReleased", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	require.Contains(t, table.body, `"Released"`)
	require.Contains(t, table.body, "0/4 Reserved, 1 Released: deleted, 3 Failed: ")
	c.must(http.StatusOK, "DELETE", romeBatches+"/jobs", "")
	c.must(http.StatusOK, "GET", rome+"/jobs-b", "")
	c.must(http.StatusNotFound, "GET", rome+"/jobs-c", "")
}

func (a answer) list(t *testing.T) []broker.Reservation {
	t.Helper()
	l := &broker.ReservationList{}
	require.NoError(t, json.Unmarshal([]byte(a.body), l), a.body)
	require.NotEmpty(t, l.Items)
	return l.Items
}

func TestWhoMayDoWhatWithBatches(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 8)
	c := x.client(server.GroupRequester + "rome")
	c.must(http.StatusCreated, "POST", romeBatches, batchBody("mine", "a=1", `"atomic":true`))
	foreign := strings.Replace(batchBody("theirs", "a=1 b=1", ""), `"requesterID":"rome"`, `"requesterID":"paris"`, 1)
	require.Contains(t, c.must(http.StatusForbidden, "POST", romeBatches, foreign).body, `spec.items[0].spec.requesterID is \"paris\"`)
	c.must(http.StatusForbidden, "POST", strings.Replace(romeBatches, "/rome/", "/paris/", 1), batchBody("b", "a=1", ""))
	c.must(http.StatusOK, "GET", romeBatches, "")
	agent, viewer, stranger := x.client(server.GroupAgent+"berlin"), x.client(server.GroupViewer), x.client(server.GroupRequester+"paris")
	agent.must(http.StatusForbidden, "GET", romeBatches+"/mine", "")
	viewer.must(http.StatusOK, "GET", romeBatches+"/mine", "")
	viewer.must(http.StatusForbidden, "DELETE", romeBatches+"/mine", "")
	stranger.must(http.StatusForbidden, "GET", romeBatches, "")
	stranger.must(http.StatusForbidden, "DELETE", romeBatches+"/mine", "")

	// Both agents see the items as they see every reservation.
	seen := agent.must(http.StatusOK, "GET", rome+"/mine-a", "").reservation(t)
	require.Nil(t, seen.Status.Decision)
	require.NotNil(t, seen.Status.PartOf)
}

func TestASplitReservationIsOneThingToItsUser(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 8)
	x.advertise("paris", 8)
	c := x.client(server.GroupRequester + "rome")
	body := func(name string) string {
		return strings.Replace(reservationBody(name, "rome", `"duration":"1h","split":{"maxPieces":3,"minPiece":{"cpu":"1"}}`), `"cpu":"4"`, `"cpu":"12"`, 1)
	}
	dry := c.must(http.StatusCreated, "POST", rome+"?"+dryRun, body("whole")).reservation(t)
	c.must(http.StatusNotFound, "GET", rome+"/whole-1", "")
	real := c.must(http.StatusCreated, "PATCH", rome+"/whole"+applied, body("whole"), "Content-Type", applyTyp).reservation(t)
	for _, r := range []*broker.Reservation{dry, real} {
		require.Equal(t, broker.ReservationReserved, r.Status.Phase)
		require.Len(t, r.Status.Pieces, 2)
		require.Contains(t, r.Status.Message, "held in 2 pieces on berlin, paris until")
	}
	piece := c.must(http.StatusOK, "GET", rome+"/whole-2", "").reservation(t)
	require.Equal(t, "paris", piece.Status.TargetClusterID)
	require.Equal(t, real.UID, piece.OwnerReferences[0].UID)
	require.Contains(t, c.must(http.StatusConflict, "DELETE", rome+"/whole-2", "").body, `part of the Reservation \"whole\"`)
	c.must(http.StatusConflict, "PATCH", rome+"/whole-2", `{"spec":{"duration":"3h"}}`, "Content-Type", mergeTyp)

	c.must(http.StatusOK, "PATCH", rome+"/whole", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", mergeTyp)
	longer := c.must(http.StatusOK, "PATCH", rome+"/whole", `{"spec":{"duration":"3h"}}`, "Content-Type", mergeTyp).reservation(t)
	require.Len(t, longer.Status.Pieces, 2, "kept by the writes of users")
	piece = c.must(http.StatusOK, "GET", rome+"/whole-2", "").reservation(t)
	require.True(t, piece.Status.ExpiresAt.Equal(longer.Status.ExpiresAt))
	c.must(http.StatusOK, "DELETE", rome+"/whole", "")
	c.must(http.StatusNotFound, "GET", rome+"/whole-1", "")
	berlin := x.stored("berlin").Spec.Resources.Available["cpu"]
	require.Equal(t, "8", berlin.String())
}

func TestBadBatchesAreRefusedByFieldAndValueAndChangeNothing(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(admin...)
	c.must(http.StatusCreated, "POST", romeBatches, batchBody("held", "a=1 b=1", `"atomic":true,"duration":"2h"`))
	with := func(spec string) string {
		return strings.Replace(batchBody("bad", "a=1", `"atomic":true`), `"cpu":"1"}`, `"cpu":"1"},`+spec, 1)
	}
	many := make([]string, broker.MaxBatchItems+1)
	for i := range many {
		many[i] = fmt.Sprintf("i%d=1", i)
	}
	split := func(spec string) string { return reservationBody("bad", "rome", spec) }
	values := slices.Repeat([]string{`"` + strings.Repeat("v", 63) + `"`}, broker.MaxSelectorValues)
	term := `{"key":"region","operator":"In","values":[` + strings.Join(values, ",") + `]}`
	x.refuses(c, map[string]badInput{
		"no items":             {"POST", romeBatches, batchBody("bad", "", ""), "", 422, []string{"spec.items"}},
		"too many":             {"POST", romeBatches, batchBody("bad", strings.Join(many, " "), ""), "", 422, []string{"spec.items", "1001", "1000"}},
		"too many, atomic":     {"POST", romeBatches, batchBody("bad", strings.Join(many[:129], " "), `"atomic":true`), "", 422, []string{"spec.items", "129", "128"}},
		"duration of an item":  {"POST", romeBatches, with(`"duration":"2h"`), "", 422, []string{"spec.items[0].spec.duration", "2h"}},
		"priority of an item":  {"POST", romeBatches, with(`"priority":7`), "", 422, []string{"spec.items[0].spec.priority", "7"}},
		"an item that waits":   {"POST", romeBatches, with(`"waitFor":"1h"`), "", 422, []string{"spec.items[0].spec.waitFor", "1h"}},
		"an item in pieces":    {"POST", romeBatches, with(`"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`), "", 422, []string{"spec.items[0].spec.split"}},
		"duration, not atomic": {"POST", romeBatches, batchBody("bad", "a=1", `"duration":"2h"`), "", 422, []string{"spec.duration", "2h", "spec.atomic"}},
		"the same item twice":  {"POST", romeBatches, batchBody("bad", "a=1 a=1", ""), "", 422, []string{"spec.items[1].name", `"a"`}},
		"a bad item name":      {"POST", romeBatches, batchBody("bad", "A=1", ""), "", 422, []string{"spec.items[0].name", `"A"`}},
		"a long name":          {"POST", romeBatches, batchBody(strings.Repeat("n", 64), "a=1", ""), "", 422, []string{"metadata.name", "63"}},
		"cpu four":             {"POST", romeBatches, batchBody("bad", "a=1 b=four", ""), "", 400, []string{"spec.items[1].spec.requestedResources.cpu", `"four"`}},
		"a long item":          {"POST", romeBatches, with(`"clusterSelector":{"matchExpressions":[` + strings.Join(slices.Repeat([]string{term}, broker.MaxSelectorTerms), ",") + `]}`), "", 422, []string{"spec.items[0].spec", "at most 114688 bytes"}},
		"over the limit":       {"POST", romeBatches, strings.Repeat(" ", broker.MaxBatchBytes+1), "", 413, []string{"368641", "368640"}},
		"other items":          {"PATCH", romeBatches + "/held", `{"spec":{"items":[]}}`, "", 422, []string{"spec.items"}},
		"no longer atomic":     {"PATCH", romeBatches + "/held", `{"spec":{"atomic":false}}`, "", 422, []string{"spec.atomic"}},
		"another priority":     {"PATCH", romeBatches + "/held", `{"spec":{"priority":3}}`, "", 422, []string{"spec.priority", "3"}},
		"a split that waits":   {"POST", rome, split(`"waitFor":"1h","split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`), "", 422, []string{"spec.waitFor", "1h", "spec.split"}},
		"one piece":            {"POST", rome, split(`"split":{"maxPieces":1,"minPiece":{"cpu":"1"}}`), "", 422, []string{"spec.split.maxPieces", "1"}},
		"nine pieces":          {"POST", rome, split(`"split":{"maxPieces":9,"minPiece":{"cpu":"1"}}`), "", 422, []string{"spec.split.maxPieces", "9"}},
		"no smallest piece":    {"POST", rome, split(`"split":{"maxPieces":2}`), "", 422, []string{"spec.split.minPiece"}},
		"a large piece":        {"POST", rome, split(`"split":{"maxPieces":2,"minPiece":{"cpu":"5"}}`), "", 422, []string{"spec.split.minPiece.cpu", "5", "4"}},
		"a piece of something": {"POST", rome, split(`"split":{"maxPieces":2,"minPiece":{"disk":"1"}}`), "", 422, []string{"spec.split.minPiece.disk"}},
		"a large chunk":        {"POST", rome, split(`"chunk":{"cpu":"2"},"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`), "", 422, []string{"spec.chunk.cpu", "2"}},
	})
	c.must(http.StatusConflict, "POST", romeBatches, batchBody("held", "c=1", `"atomic":true`))
	c.must(http.StatusCreated, "POST", rome, reservationBody("he-y", "rome", ""))
	for _, query := range []string{"", "?" + dryRun} {
		taken := c.must(http.StatusConflict, "POST", romeBatches+query, batchBody("he", "x=1 y=1", `"atomic":true`))
		require.Contains(t, taken.body, `\"he-y\" exists`)
	}
}

// An older node, once it leads, would end one part without the others.
func TestWhatHasPartsWaitsForEveryNodeToKnowThem(t *testing.T) {
	t.Parallel()
	x := startWith(t, servertest.NewExchangeOf(fsm.PartsBehaviour-1))
	x.advertise("berlin", 32)
	c := x.client(server.GroupRequester + "rome")
	const inPieces = `"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`
	before := x.DB.State().Hash()
	for name, attempt := range map[string][4]string{
		"batch":         {"POST", romeBatches, batchBody("b", "a=1", ""), "application/json"},
		"batch, dry":    {"POST", romeBatches + "?" + dryRun, batchBody("b", "a=1", ""), "application/json"},
		"batch applied": {"PATCH", romeBatches + "/b" + applied, batchBody("b", "a=1", ""), applyTyp},
		"split":         {"POST", rome, reservationBody("r", "rome", inPieces), "application/json"},
		"split applied": {"PATCH", rome + "/r" + applied, reservationBody("r", "rome", inPieces), applyTyp},
	} {
		got := c.must(http.StatusServiceUnavailable, attempt[0], attempt[1], attempt[2], "Content-Type", attempt[3])
		require.Contains(t, got.body, "upgrade the others", name)
	}
	require.Equal(t, before, x.DB.State().Hash(), "something was changed")
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", `"waitFor":"1h"`))
}

// What an atomic batch is made of has to be one log entry, however small its body is.
func TestAnAtomicBatchBeyondOneEntryIsTooLarge(t *testing.T) {
	t.Parallel()
	x := start(t)
	session, epoch := x.advertise("berlin", 32)
	kinds := func(amount int) string {
		list := `"cpu":"30"`
		for i := range 30 {
			list += fmt.Sprintf(`,"example.com/%s-%d":"%d"`, strings.Repeat("r", 40), i, amount)
		}
		return list
	}
	x.client(server.GroupAgent+"berlin").must(http.StatusCreated, "POST", group+"/clusteradvertisements/berlin-adv/facts",
		factsBody(session, epoch, 2, fmt.Sprintf(`,"allocatable":{%s},"largestFree":{%s}`, kinds(1000), kinds(1000))))
	names := make([]string, broker.MaxAtomicItems)
	for i := range names {
		names[i] = fmt.Sprintf("i%d=1m", i)
	}
	body := strings.ReplaceAll(batchBody("fat", strings.Join(names, " "), `"atomic":true`), `"cpu":"1m"`, strings.Replace(kinds(1), `"30"`, `"1m"`, 1))
	require.Less(t, len(body), broker.MaxBatchBytes)
	before := x.DB.State().Hash()
	c := x.client(admin...)
	for _, query := range []string{"?" + dryRun, ""} {
		refused := c.must(http.StatusRequestEntityTooLarge, "POST", romeBatches+query, body)
		require.Contains(t, refused.body, fmt.Sprintf("bytes of one log entry, the limit is %d", fsm.MaxTxnBytes), query)
	}
	require.Equal(t, before, x.DB.State().Hash(), "something was changed")
}

func TestNoCollectionDeleteEndsAPartAlone(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(server.GroupRequester + "rome")
	c.must(http.StatusCreated, "POST", romeBatches, batchBody("train", "a=4 b=2 c=1", `"atomic":true`))
	before := x.DB.State().Revision()
	refused := c.must(http.StatusConflict, "DELETE", rome+"?fieldSelector=spec.requesterID%3Drome", "")
	require.Contains(t, refused.body, "can't be deleted alone")
	require.Equal(t, before, x.DB.State().Revision())

	c.must(http.StatusOK, "DELETE", romeBatches+"/train", "")
	c.must(http.StatusNotFound, "GET", rome+"/train-a", "")
	berlin := x.stored("berlin").Spec.Resources.Reserved["cpu"]
	require.Zero(t, berlin.Value())
}

func TestAnItemThatWaitsIsNotEditedIntoASplitOne(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 4)
	c := x.client(server.GroupRequester + "rome")
	body := strings.Replace(batchBody("train", "a=8", ""), `"requestedResources"`, `"waitFor":"1h","requestedResources"`, 1)
	c.must(http.StatusCreated, "POST", romeBatches, body)
	refused := c.must(http.StatusUnprocessableEntity, "PATCH", rome+"/train-a",
		`{"spec":{"waitFor":null,"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}}}`, "Content-Type", mergeTyp)
	require.Contains(t, refused.body, "spec.split: Forbidden: a part of a ReservationBatch can't be split")
	c.must(http.StatusOK, "PATCH", rome+"/train-a", `{"spec":{"requestedResources":{"cpu":"2"}}}`, "Content-Type", mergeTyp)
	require.Equal(t, broker.ReservationReserved, c.phase(rome+"/train-a"))
}

func TestAPartWithAFinalizerGoesWithItsLastFinalizer(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	c := x.client(server.GroupRequester + "rome")
	for _, atomic := range []string{`"atomic":true`, ""} {
		c.must(http.StatusCreated, "POST", romeBatches, batchBody("train", "a=4 b=2", atomic))
		c.must(http.StatusOK, "PATCH", rome+"/train-a", `{"metadata":{"finalizers":["example.com/hold"]}}`, "Content-Type", mergeTyp)
		c.must(http.StatusOK, "DELETE", romeBatches+"/train", "")
		kept := c.must(http.StatusOK, "GET", rome+"/train-a", "").reservation(t)
		require.Equal(t, broker.ReservationReleased, kept.Status.Phase)
		require.NotNil(t, kept.DeletionTimestamp)
		c.must(http.StatusOK, "PATCH", rome+"/train-a", `{"metadata":{"finalizers":null}}`, "Content-Type", mergeTyp)
		c.must(http.StatusNotFound, "GET", rome+"/train-a", "")
	}
}

func TestACollectionDeleteTakesSplitOnesWithTheirPieces(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 64)
	c := x.client(server.GroupRequester + "rome")
	for i := range 12 {
		c.must(http.StatusCreated, "POST", rome, reservationBody(fmt.Sprintf("wide%d", i), "rome", `"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`))
	}
	c.must(http.StatusOK, "DELETE", rome+"?fieldSelector=spec.requesterID%3Drome", "")
	list := &broker.ReservationList{}
	require.NoError(t, json.Unmarshal([]byte(c.must(http.StatusOK, "GET", rome, "").body), list))
	require.Empty(t, list.Items)
	c.must(http.StatusCreated, "POST", rome, reservationBody("wide", "rome", `"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`))
	c.must(http.StatusConflict, "DELETE", rome+"?fieldSelector=spec.requesterID%3Drome,metadata.name%3Dwide-1", "")
}

func TestADryRunAnswersAsTheLeaderWould(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.advertise("berlin", 32)
	x.advertise("paris", 4)
	c := x.client(server.GroupRequester + "rome")
	for _, atomic := range []string{"", `"atomic":true`} {
		body := batchBody("again", "a=30 b=1", atomic)
		first := c.must(http.StatusCreated, "POST", romeBatches, body).batch(t)
		for _, query := range []string{"", "?" + dryRun} {
			again := c.must(http.StatusCreated, "POST", romeBatches+query, body).batch(t)
			require.Equal(t, first.UID, again.UID, "%q %q: the same name and spec", query, atomic)
			require.Equal(t, first.Status, again.Status)
			other := c.must(http.StatusConflict, "POST", romeBatches+query, batchBody("again", "a=29 b=1", atomic))
			require.Contains(t, other.body, "exists with another spec", "%q %q", query, atomic)
			require.Contains(t, other.body, `"AlreadyExists"`)
		}
		c.must(http.StatusOK, "DELETE", romeBatches+"/again", "")
	}
	c.must(http.StatusCreated, "POST", rome, reservationBody("r-2", "rome", `"targetClusterID":"berlin"`))
	inPieces := strings.Replace(reservationBody("r", "rome", `"split":{"maxPieces":2,"minPiece":{"cpu":"1"}}`), `"cpu":"4"`, `"cpu":"30"`, 1)
	for _, query := range []string{"?" + dryRun, ""} {
		taken := c.must(http.StatusConflict, "POST", rome+query, inPieces)
		require.Contains(t, taken.body, `reservations \"r-2\" exists`, query)
	}
}
