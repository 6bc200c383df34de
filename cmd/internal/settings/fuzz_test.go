package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse/cmd/internal/settings"
)

// FuzzLoad: no configuration file makes a start panic; what is accepted sets known options only.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("node-id: n1\njoin: [a:1, b:2]\nlabel: {a: b}\nwait: 5s\nexpect: 3\n"))
	f.Add([]byte("unknown: 1"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("- 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "server.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
		flags.String("node-id", "", "")
		flags.StringSlice("join", nil, "")
		flags.StringToString("label", nil, "")
		flags.Duration("wait", 0, "")
		flags.Int("expect", 0, "")
		_ = settings.Load(flags, path, func(string) (string, bool) { return "", false })
	})
}
