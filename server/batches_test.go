package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/server"
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
