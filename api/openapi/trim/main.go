// Command trim cuts a generated OpenAPI file down to what is served: every definition outside
// k8s.io/api stays, of k8s.io/api only the named roots ("core/v1.Namespace") and what they refer
// to. Untrimmed, the schemas of Pod and its hundreds of parts would be linked into the binary and
// published to kubectl explain.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: trim FILE ROOT...")
		os.Exit(2)
	}
	if err := trim(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "trim:", err)
		os.Exit(1)
	}
}

func trim(path string, roots []string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	g := readGraph(file)
	for _, root := range roots {
		if err := g.keepRoot(root); err != nil {
			return err
		}
	}
	for model := range g.functions {
		if !strings.HasPrefix(g.imports[packageOf(model)], "k8s.io/api/") {
			g.keep(model)
		}
	}
	g.cut(file)
	var out bytes.Buffer
	if err := format.Node(&out, files, file); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// graph is the file's definitions. A model is written as the file does: "corev1.Namespace".
type graph struct {
	imports   map[string]string        // local name -> path
	table     *ast.CompositeLit        // model -> function, as GetOpenAPIDefinitions returns it
	functions map[string]*ast.FuncDecl // by model
	kept      map[string]bool
}

func readGraph(file *ast.File) *graph {
	g := &graph{imports: map[string]string{}, functions: map[string]*ast.FuncDecl{}, kept: map[string]bool{}}
	for _, spec := range file.Imports {
		if spec.Name != nil {
			g.imports[spec.Name.Name] = strings.Trim(spec.Path.Value, `"`)
		}
	}
	byName := map[string]*ast.FuncDecl{}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			byName[f.Name.Name] = f
		}
	}
	ast.Inspect(byName["GetOpenAPIDefinitions"], func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && g.table == nil {
			g.table = lit
		}
		return g.table == nil
	})
	for _, element := range g.table.Elts {
		pair := element.(*ast.KeyValueExpr)
		g.functions[models(pair.Key)[0]] = byName[pair.Value.(*ast.CallExpr).Fun.(*ast.Ident).Name]
	}
	return g
}

// models are the T of every T{}.OpenAPIModelName() below the node.
func models(n ast.Node) []string {
	var found []string
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok || call.Sel.Name != "OpenAPIModelName" {
			return true
		}
		if lit, ok := call.X.(*ast.CompositeLit); ok {
			if t, ok := lit.Type.(*ast.SelectorExpr); ok {
				found = append(found, t.X.(*ast.Ident).Name+"."+t.Sel.Name)
			}
		}
		return true
	})
	return found
}

func (g *graph) keepRoot(root string) error {
	pkg, name, _ := strings.Cut(root, ".")
	for local, path := range g.imports {
		if path == "k8s.io/api/"+pkg {
			if model := local + "." + name; g.functions[model] != nil {
				g.keep(model)
				return nil
			}
		}
	}
	return fmt.Errorf("root %s is not in the file", root)
}

func (g *graph) keep(model string) {
	f := g.functions[model]
	if f == nil || g.kept[model] {
		return
	}
	g.kept[model] = true
	for _, dependency := range models(f.Body) {
		g.keep(dependency)
	}
}

// cut removes what is not kept: the table's lines, the functions, and imports that nothing needs any more.
func (g *graph) cut(file *ast.File) {
	dropped := map[ast.Decl]bool{}
	var lines []ast.Expr
	for _, element := range g.table.Elts {
		model := models(element.(*ast.KeyValueExpr).Key)[0]
		if g.kept[model] {
			lines = append(lines, element)
		} else {
			dropped[g.functions[model]] = true
		}
	}
	g.table.Elts = lines
	var decls []ast.Decl
	used := map[string]bool{}
	for _, decl := range file.Decls {
		if dropped[decl] {
			continue
		}
		decls = append(decls, decl)
		ast.Inspect(decl, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := s.X.(*ast.Ident); ok {
					used[id.Name] = true
				}
			}
			return true
		})
	}
	file.Decls = decls
	imports := file.Decls[0].(*ast.GenDecl)
	var specs []ast.Spec
	for _, spec := range imports.Specs {
		if name := spec.(*ast.ImportSpec).Name; name == nil || used[name.Name] {
			specs = append(specs, spec)
		}
	}
	imports.Specs = specs
	var comments []*ast.CommentGroup
	for _, c := range file.Comments {
		if c.End() < file.Package {
			comments = append(comments, c)
		}
	}
	file.Comments = comments
}

func packageOf(model string) string {
	local, _, _ := strings.Cut(model, ".")
	return local
}
