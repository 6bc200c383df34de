package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/store"
)

// What an agent says goes into events too: no text makes one larger than it may be.
func TestAnEventsTextIsBounded(t *testing.T) {
	t.Parallel()
	h := store.Happening{Name: "shop", Message: strings.Repeat("ü", 10_000), At: 1_700_000_000_000, Of: corev1.ObjectReference{Namespace: "rome"}}
	var e corev1.Event
	require.NoError(t, json.Unmarshal(store.EventWrite(&h).Body, &e))
	require.LessOrEqual(t, len(e.Message), broker.MaxConditionMessageBytes)
	require.True(t, strings.HasSuffix(e.Message, "ü..."))
}
