package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Each package that others may import has an example that go test compiles and runs.
func TestPackageExamples(t *testing.T) {
	packages := map[string]bool{} // folder of a library → it has an example
	walk(t, func(name string, d fs.DirEntry) error {
		folder := path.Dir(name)
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "internal/") || strings.Contains(name, "/internal/") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments)
		if err != nil || file.Name.Name == "main" {
			return err
		}
		if strings.HasSuffix(name, "_test.go") {
			packages[folder] = packages[folder] || hasExample(file)
		} else {
			packages[folder] = packages[folder] || false
		}
		return nil
	})
	if len(packages) < 20 {
		t.Fatalf("only %d packages found", len(packages))
	}
	for folder, has := range packages {
		if !has {
			t.Errorf("%s has no example with output", folder)
		}
	}
}

// hasExample reports whether a file has an example with output.
func hasExample(file *ast.File) bool {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Example") {
			continue
		}
		for _, c := range file.Comments {
			if f.Pos() < c.Pos() && c.End() < f.End() && strings.HasPrefix(c.Text(), "Output:") {
				return true
			}
		}
	}
	return false
}

// forModule has the public packages whose types hold internal ones: their fields connect packages
// of this module.
var forModule = map[string]bool{"onnxq/inspect": true, "onnxq/restyle": true, "testmodels": true}

// A public type has no field of an internal type, and is no other name of one.
func TestPublicTypes(t *testing.T) {
	eachFile(t, func(name string, file *ast.File) {
		if strings.HasPrefix(name, "internal/") || forModule[path.Dir(name)] || file.Name.Name == "main" {
			return
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				if s := s.(*ast.TypeSpec); s.Name.IsExported() {
					checkPublic(t, name, file, s)
				}
			}
		}
	})
}

func checkPublic(t *testing.T, name string, file *ast.File, s *ast.TypeSpec) {
	types := []ast.Expr{s.Type}
	if st, ok := s.Type.(*ast.StructType); ok {
		types = nil
		for _, f := range st.Fields.List {
			if len(f.Names) > 0 && f.Names[0].IsExported() { // what is embedded gives methods
				types = append(types, f.Type)
			}
		}
	}
	for _, typ := range types {
		ast.Inspect(typ, func(n ast.Node) bool {
			if e, ok := n.(*ast.SelectorExpr); ok {
				if key := typeKey(file, path.Dir(name), e); strings.HasPrefix(key, "internal/") {
					t.Errorf("%s: %s has a %s", name, s.Name.Name, key)
				}
			}
			return true
		})
	}
}
