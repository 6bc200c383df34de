package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/agent"
	"github.com/bourse-dev/bourse/cmd/internal/settings"
)

const configurationDoc = "../../docs/configuration.md"

// TestConfigurationIsDocumented keeps docs/configuration.md equal to the tables of flags.
// BOURSE_WRITE_DOCS=1 (make generate) writes it anew.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	var want bytes.Buffer
	want.WriteString("# Settings\n\nEvery setting is a flag, a key of the file named by `--config` (YAML), and an environment variable; a flag\n" +
		"wins over the environment, which wins over the file. All faults are reported at once, before anything starts.\n" +
		"`make generate` writes this page from the program's own tables.\n\n## bourse server\n\n" +
		"Of the Go runtime, `GOMAXPROCS` and `GOMEMLIMIT` are left as they are where they are set.\n\n")
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	newServerSettings(flags)
	require.NoError(t, settings.Markdown(&want, flags))
	want.WriteString("\n## bourse agent\n\nThe cluster id is also taken from `CLUSTER_ID`.\n\n")
	flags = pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config := agent.Default()
	agentFlags(flags, &config)
	logs := logFlags{}
	logs.flags(flags)
	require.NoError(t, settings.Markdown(&want, flags))

	if os.Getenv("BOURSE_WRITE_DOCS") != "" {
		require.NoError(t, os.WriteFile(configurationDoc, want.Bytes(), 0o644))
	}
	have, err := os.ReadFile(configurationDoc)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(have), "run make generate")
}
