// Package bourse_test holds the rules between the rooms of the house.
package bourse_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/bourse-dev/bourse/"

// below says which rooms each room may import: arrows point down only, in two chains,
// cmd -> server -> reservation, advertisement, blueprint -> cluster -> store -> fsm -> allocation -> api
// and cmd -> agent -> allocation -> api.
// Beside them all lies internal, which any room may import.
var below = map[string][]string{
	"internal":      {}, // the bugs that `make mutants` builds in: constants, without a tag worth nothing
	"api":           {},
	"allocation":    {"api"},
	"fsm":           {"allocation", "api"},
	"store":         {"fsm", "allocation", "api"},
	"cluster":       {"store", "fsm", "allocation", "api"},
	"reservation":   {"cluster", "store", "fsm", "allocation", "api"},
	"advertisement": {"cluster", "store", "fsm", "allocation", "api"},
	"blueprint":     {"cluster", "store", "fsm", "allocation", "api"},
	"server":        {"reservation", "advertisement", "blueprint", "cluster", "store", "fsm", "allocation", "api"},
	"agent":         {"allocation", "api"},
	"cmd":           {"server", "reservation", "advertisement", "blueprint", "cluster", "store", "fsm", "agent", "allocation", "api"},
	"test":          {"cmd", "server", "reservation", "advertisement", "blueprint", "cluster", "store", "fsm", "agent", "allocation", "api"},
}

// ban keeps some packages out of some rooms. A path bans everything beneath it too.
type ban struct {
	rooms []string
	paths []string
	why   string
}

var (
	pure  = []string{"fsm", "allocation"}
	rooms = []string{"reservation", "advertisement", "blueprint"}
)

var bans = []ban{
	{pure, []string{"time"}, "time enters with an entry: replicas that read their own clocks diverge"},
	{pure, []string{"math/rand", "crypto/rand"}, "the same state and entry must give the same state on every node"},
	{pure, []string{"net", "os"}, "a decision that depends on a machine differs between machines"},
	{pure, []string{"context"}, "Apply runs to its end; half an entry is another state"},
	{pure, []string{"log", "github.com/hashicorp/go-hclog", "k8s.io/klog"}, "Apply runs on every node and again at every start: who calls it logs"},
	{pure, []string{"github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb", "github.com/hashicorp/memberlist"}, "the state machine must run without a group: in tests, tools and simulators"},
	{pure, []string{"k8s.io/apiserver", "k8s.io/client-go"}, "rows are bytes here; what they mean to Kubernetes is store's business"},
	{rooms, []string{"net", "os", "context"}, "a room is stepped; what blocks or waits belongs to the term loop"},
	{rooms, []string{"math/rand", "crypto/rand"}, "a simulator must be able to step the same room to the same end"},
	{rooms, []string{"github.com/hashicorp/raft", "github.com/hashicorp/memberlist", "k8s.io/apiserver", "k8s.io/client-go"}, "rooms see the state and say what to propose, nothing else"},
	{[]string{"cluster", "reservation", "advertisement", "blueprint", "server", "agent", "cmd"}, []string{"go.etcd.io/bbolt"}, "what lies on disk is known in store only"},
	{[]string{"store", "cluster", "reservation", "advertisement", "blueprint", "server", "agent", "cmd"}, []string{"github.com/hashicorp/raft-boltdb"}, "it keeps no record of the log's tail: an older tree would pass for the newest"},
	{[]string{"api", "allocation", "fsm", "store", "cluster", "reservation", "advertisement", "blueprint", "server", "agent"}, []string{"github.com/spf13/cobra"}, "command lines are cmd's"},
	{[]string{"agent"}, []string{"github.com/hashicorp/raft", "github.com/hashicorp/memberlist", "k8s.io/apiserver"}, "an agent only dials out, as any client of the API"},
}

type listedPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointDownOnly(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		room := roomOf(p.ImportPath)
		if room == "" {
			continue
		}
		seen[room] = true
		allowed, known := below[room]
		require.True(t, known, "%s: room %q has no place in the house; give it one in imports_test.go and DESIGN.md", p.ImportPath, room)
		for _, path := range p.Imports {
			if to := roomOf(path); to != "" && to != room && to != "internal" && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: arrows point down only, and %s may import %v", p.ImportPath, path, room, allowed)
			}
			for _, b := range bans {
				if banned(b, room, path) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, b.why)
				}
			}
		}
	}
	for _, room := range []string{"api", "allocation", "fsm", "store", "cluster", "reservation", "advertisement", "blueprint", "server", "agent", "cmd"} {
		require.True(t, seen[room], "no package of room %q was looked at", room)
	}
}

func banned(b ban, room, path string) bool {
	return slices.Contains(b.rooms, room) && slices.ContainsFunc(b.paths, func(ban string) bool {
		return path == ban || strings.HasPrefix(path, ban+"/")
	})
}

// roomOf is the first directory of a package of this module; empty for all others.
func roomOf(path string) string {
	rest, ours := strings.CutPrefix(path, module)
	if !ours {
		return ""
	}
	room, _, _ := strings.Cut(rest, "/")
	return room
}

// listPackages reads the imports of every Go file that is no test, whatever its build tags.
// (Not by go list: the test cache doesn't see what a child process reads, and a cached pass
// would hide a new import.)
func listPackages(t *testing.T) (list []listedPackage) {
	byDir := map[string]*listedPackage{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipped(path, entry.Name())
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if byDir[dir] == nil {
			byDir[dir] = &listedPackage{ImportPath: module + dir}
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			byDir[dir].Imports = append(byDir[dir].Imports, path)
		}
		return nil
	}))
	for _, p := range byDir {
		list = append(list, *p)
	}
	return list
}

// skipped leaves out what go does, and modules of their own.
func skipped(path, name string) error {
	if path == "." {
		return nil
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func TestTheRulesCatchWhatTheyForbid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		room, path string
		want       bool
	}{
		{"fsm", "time", true},
		{"fsm", "net/http", true},
		{"fsm", "github.com/hashicorp/raft", true},
		{"allocation", "math/rand/v2", true},
		{"store", "time", false},
		{"fsm", "encoding/binary", false},
		{"cluster", "github.com/spf13/cobra", true},
		{"store", "github.com/hashicorp/raft-boltdb/v2", true},
		{"store", "go.etcd.io/bbolt", false},
	} {
		hit := slices.ContainsFunc(bans, func(b ban) bool { return banned(b, c.room, c.path) })
		require.Equal(t, c.want, hit, "%s imports %s", c.room, c.path)
	}
}
