package settings

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type options struct {
	id    string
	join  []string
	every time.Duration
	cost  map[string]string
}

func table() (*pflag.FlagSet, *options) {
	o := &options{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.StringVar(&o.id, "node-id", "", "the id")
	flags.StringSliceVar(&o.join, "join", nil, "peers")
	flags.DurationVar(&o.every, "every", time.Second, "interval")
	flags.StringToStringVar(&o.cost, "cost", nil, "prices")
	return flags, o
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func noEnv(string) (string, bool) { return "", false }

func TestAFlagBeatsTheEnvironmentBeatsTheFile(t *testing.T) {
	t.Parallel()
	flags, o := table()
	require.NoError(t, flags.Parse([]string{"--node-id", "from-flag"}))
	path := write(t, "node-id: from-file\nevery: 5s\njoin: [a:1, b:2]\ncost: {cpu: \"0.5\"}\n")
	env := func(name string) (string, bool) { return "7s", name == "BOURSE_EVERY" }

	require.NoError(t, Load(flags, path, env))

	require.Equal(t, "from-flag", o.id)
	require.Equal(t, 7*time.Second, o.every)
	require.Equal(t, []string{"a:1", "b:2"}, o.join)
	require.Equal(t, map[string]string{"cpu": "0.5"}, o.cost)
}

func TestAllFaultsOfAFileAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	flags, _ := table()
	path := write(t, "every: soon\nnodeid: n1\n")

	err := Load(flags, path, noEnv)

	require.ErrorContains(t, err, `every`)
	require.ErrorContains(t, err, `"soon"`)
	require.ErrorContains(t, err, `unknown key "nodeid"`)
}

func TestAMissingFileIsAnError(t *testing.T) {
	t.Parallel()
	flags, _ := table()
	require.ErrorIs(t, Load(flags, filepath.Join(t.TempDir(), "none.yaml"), noEnv), os.ErrNotExist)
}
