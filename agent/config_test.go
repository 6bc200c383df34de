package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestAConfigReportsAllItsFaultsAtOnce(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), Config{
		ClusterID:      "Rome_1",
		HeartbeatEvery: time.Hour,
		PublishWithin:  2 * time.Second,
		Endpoint:       "rome.example",
		Region:         "a region",
		Costs:          map[string]string{"cpu": "cheap"},
	})
	for _, part := range []string{
		`cluster id "Rome_1"`, "broker kubeconfig: missing", "heartbeat interval 1h0m0s", "publish delay 2s",
		"spec.endpoint", "rome.example", "spec.region", "spec.cost.cpu", "cheap", "logger: missing", "clock: missing",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestTheDefaultConfigNeedsOnlyABroker(t *testing.T) {
	t.Parallel()
	config := Default()
	require.ErrorContains(t, config.Validate(), "broker kubeconfig: missing")
	config.Broker = &rest.Config{Host: "https://127.0.0.1:1"}
	require.NoError(t, config.Validate())
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	_, logger := newLog()
	config := Default()
	config.Logger = logger
	config.ClusterID = "rome"
	config.BrokerKubeconfig = filepath.Join(t.TempDir(), "missing")
	config.MemberKubeconfig = config.BrokerKubeconfig
	require.ErrorContains(t, Run(t.Context(), config), "member cluster's kubeconfig "+config.MemberKubeconfig)

	config.Broker = &rest.Config{Host: "https://127.0.0.1:1"}
	config.MemberKubeconfig = filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(config.MemberKubeconfig, []byte("not: [a kubeconfig"), 0o600))
	require.ErrorContains(t, Run(t.Context(), config), config.MemberKubeconfig)
}
