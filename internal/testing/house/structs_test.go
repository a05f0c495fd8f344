package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Structs embed no deeper than one level: a reader of t.x finds x in t, or in what t embeds.
func TestEmbedding(t *testing.T) {
	embeds := map[string][]string{} // struct → embedded types, both as package.Name
	eachFile(t, func(name string, file *ast.File) {
		pkg := path.Dir(name)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			key := pkg + "." + spec.Name.Name
			embeds[key] = nil
			for _, f := range s.Fields.List {
				if len(f.Names) == 0 {
					embeds[key] = append(embeds[key], typeKey(file, pkg, f.Type))
				}
			}
			return true
		})
	})
	for outer, inner := range embeds {
		for _, i := range inner {
			for _, deeper := range embeds[i] {
				if _, ok := embeds[deeper]; ok {
					t.Errorf("%s embeds %s, which embeds %s", outer, i, deeper)
				}
			}
		}
	}
}

// Pointers into the structure of a model are keys of maps only where structures are read or
// written as a whole. Others have values, functions and numbers of package graph.
func TestPointerKeys(t *testing.T) {
	may := map[string]bool{"internal/graph": true, "internal/modelfile": true, "internal/opset": true, "internal/run/execute/evaluate": true}
	eachFile(t, func(name string, file *ast.File) {
		if may[path.Dir(name)] {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			m, ok := n.(*ast.MapType)
			if !ok {
				return true
			}
			if p, ok := m.Key.(*ast.StarExpr); ok && strings.HasPrefix(typeKey(file, path.Dir(name), p), "internal/onnxpb.") {
				t.Errorf("%s has a map whose keys are %s", name, typeKey(file, path.Dir(name), p))
			}
			return true
		})
	})
}

// eachFile parses the Go files of the module that are no tests and not generated.
func eachFile(t *testing.T, visit func(name string, file *ast.File)) {
	t.Helper()
	walk(t, func(name string, d fs.DirEntry) error {
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		if err == nil {
			visit(name, file)
		}
		return err
	})
}

// typeKey names a type of the module as package.Name, the package by its folder.
func typeKey(file *ast.File, pkg string, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return typeKey(file, pkg, x.X)
	case *ast.IndexExpr:
		return typeKey(file, pkg, x.X)
	case *ast.Ident:
		return pkg + "." + x.Name
	case *ast.SelectorExpr:
		name := x.X.(*ast.Ident).Name
		for _, i := range file.Imports {
			if p, _ := strconv.Unquote(i.Path.Value); path.Base(p) == name {
				return strings.TrimPrefix(p, module()) + "." + x.Sel.Name
			}
		}
	}
	return ""
}
