package store_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoFunctionOfUpstreamsSuiteIsForgotten: every one is run or named in notApplicable.
func TestNoFunctionOfUpstreamsSuiteIsForgotten(t *testing.T) {
	t.Parallel()
	upstream, err := build.Import("k8s.io/apiserver/pkg/storage/testing", ".", build.FindOnly)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(upstream.Dir, "*_tests.go"))
	require.NoError(t, err)
	ours := map[string]bool{}
	ast.Inspect(parse(t, "suite_test.go"), func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok {
			ours[call.Sel.Name] = true
		}
		return true
	})
	runs := regexp.MustCompile(`^Run(Test|OptionalTest|Watch|SendInitialEvents)`)
	found := 0
	for _, file := range files {
		for _, d := range parse(t, file).Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !runs.MatchString(f.Name.Name) {
				continue
			}
			found++
			_, excused := notApplicable[f.Name.Name]
			require.NotEqual(t, ours[f.Name.Name], excused, "%s must be run or excused, not both", f.Name.Name)
		}
	}
	require.Greater(t, found, 50, "of upstream's functions in %s", upstream.Dir)
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	return parsed
}
