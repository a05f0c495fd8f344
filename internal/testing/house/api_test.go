package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var updateAPI = flag.Bool("update-api", false, "write api.txt")

const apiHead = `# The API: what programs outside of the module can name. TestAPI compares it with the code;
# make api writes it. A name whose type names a type of an internal package is left out.
`

// api.txt lists the public constants, variables, functions, types, fields and methods.
func TestAPI(t *testing.T) {
	var b strings.Builder
	b.WriteString(apiHead)
	for _, p := range publicPackages(t) {
		name := strings.TrimPrefix(p.Path(), module())
		for _, line := range exported(p) {
			fmt.Fprintf(&b, "%s: %s\n", name, line)
		}
	}
	if *updateAPI {
		if err := os.WriteFile("api.txt", []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Split(string(listed), "\n"), strings.Split(b.String(), "\n")
	if slices.Equal(old, now) {
		return
	}
	var changes strings.Builder
	for _, line := range old {
		if !slices.Contains(now, line) {
			fmt.Fprintf(&changes, "\n- %s", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			fmt.Fprintf(&changes, "\n+ %s", line)
		}
	}
	t.Errorf("the API is not as api.txt says; make api accepts the change:%s", &changes)
}

// docs/api.md names each public package and no other one. What it says of their names exists.
func TestAPIPage(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| package |")
	if !found {
		t.Fatal("docs/api.md has no table of packages")
	}
	quoted := regexp.MustCompile("`([^`\n]+)`")
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
				named[name[1]] = true
			}
		}
	}
	packages := map[string]*types.Package{}
	for _, p := range publicPackages(t) {
		name := strings.TrimPrefix(p.Path(), module())
		packages[p.Name()] = p
		if !named[name] {
			t.Errorf("docs/api.md does not name %s", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("docs/api.md names %s, which others cannot import", name)
	}
	for _, quote := range quoted.FindAllStringSubmatch(string(text), -1) {
		pkg, name, _ := strings.Cut(quote[1], ".")
		if p := packages[pkg]; p != nil && name != "" && p.Scope().Lookup(name) == nil {
			t.Errorf("docs/api.md: there is no %s", quote[1])
		}
	}
}

// Go code in the README and in docs compiles, as a part of a function that has a context and
// returns an error. It may use public packages and some of the standard library.
func TestGoInDocs(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := publicPackages(t)
	for _, path := range []string{"context", "errors", "fmt"} {
		packages = append(packages, imported(t, path))
	}
	n := 0
	for _, page := range append(pages, root+"/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			n++
			checkGo(t, page, block[1], packages)
		}
	}
	if n < 3 {
		t.Errorf("only %d blocks of Go are found", n)
	}
}

// checkGo compiles the statements of a document. Their variables need not be used.
func checkGo(t *testing.T, page, statements string, packages []*types.Package) {
	t.Helper()
	var source strings.Builder
	source.WriteString("package p\nimport \"context\"\n")
	for _, p := range packages {
		if p.Name() != "context" && strings.Contains(statements, p.Name()+".") {
			fmt.Fprintf(&source, "import %q\n", p.Path())
		}
	}
	fmt.Fprintf(&source, "func _(ctx context.Context) error {\n%s\nreturn nil\n}\n", statements)
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source.String(), 0)
	if err != nil {
		t.Errorf("%s: %v in\n%s", page, err, statements)
		return
	}
	config := types.Config{
		Importer: among(packages),
		Error: func(err error) {
			if !strings.HasPrefix(err.(types.Error).Msg, "declared and not used") {
				t.Errorf("%s: %v in\n%s", page, err, statements)
			}
		},
	}
	config.Check("p", set, []*ast.File{file}, nil) // errors go to config.Error
}

// among are packages that were read already.
type among []*types.Package

func (a among) Import(path string) (*types.Package, error) {
	for _, p := range a {
		if p.Path() == path {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s is not public", path)
}

// compiled are the packages of the module and those that they import.
var compiled struct {
	once   sync.Once
	err    error
	public []string          // paths of those that programs outside of the module can import
	files  map[string]string // by path: what the compiler writes for importers
	types  types.Importer
}

// compile fills compiled. testmodels is for tests and examples of this module.
func compile(t *testing.T) {
	t.Helper()
	cmd := goTool(t, "list", "-deps", "-export", "-json=ImportPath,Name,Export,Module", "./...")
	compiled.once.Do(func() {
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			compiled.err = fmt.Errorf("%w: %s", err, &stderr)
			return
		}
		compiled.files = map[string]string{}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Name, Export string
				Module                   *struct{ Main bool }
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				compiled.err = err
				return
			}
			compiled.files[p.ImportPath] = p.Export
			if p.Module != nil && p.Module.Main && p.Name != "main" && !internal(p.ImportPath) && p.ImportPath != module()+"testmodels" {
				compiled.public = append(compiled.public, p.ImportPath)
			}
		}
		slices.Sort(compiled.public)
		compiled.types = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(compiled.files[path])
		})
	})
	if compiled.err != nil {
		t.Fatal(compiled.err)
	}
}

// publicPackages returns the packages that programs outside of the module can import, by path.
func publicPackages(t *testing.T) []*types.Package {
	t.Helper()
	compile(t)
	var packages []*types.Package
	for _, path := range compiled.public {
		packages = append(packages, imported(t, path))
	}
	return packages
}

// imported returns a package by its path.
func imported(t *testing.T, path string) *types.Package {
	t.Helper()
	compile(t)
	p, err := compiled.types.Import(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// internal reports whether a package of this module is out of reach of others.
func internal(path string) bool {
	return strings.HasPrefix(path, module()) && slices.Contains(strings.Split(path, "/"), "internal")
}

// exported describes the exported names of a package, a line each.
func exported(p *types.Package) []string {
	lines := map[string]bool{} // a set: fields and methods may be reached in two ways
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() || hidden(o.Type()) {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			lines[fmt.Sprintf("const %s %s = %s", name, typeText(o.Type(), p), o.Val().ExactString())] = true
		case *types.Var:
			lines[fmt.Sprintf("var %s %s", name, typeText(o.Type(), p))] = true
		case *types.Func:
			lines[fmt.Sprintf("func %s%s", name, strings.TrimPrefix(typeText(o.Type(), p), "func"))] = true
		case *types.TypeName:
			lines[fmt.Sprintf("type %s %s", name, kind(o.Type(), p))] = true
			if s, ok := o.Type().Underlying().(*types.Struct); ok {
				fields(s, p, name, lines)
			}
			methods(o.Type(), p, name, lines)
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

// kind describes what a type is made of. Fields and methods have lines of their own.
func kind(typ types.Type, p *types.Package) string {
	if alias, ok := typ.(*types.Alias); ok {
		return "= " + typeText(alias.Rhs(), p)
	}
	switch u := typ.Underlying().(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		for m := range u.Methods() {
			if !m.Exported() {
				return "interface, with methods that are not exported"
			}
		}
		return "interface"
	}
	return typeText(typ.Underlying(), p)
}

// fields describes the fields of a struct, and the fields that embedded structs bring along.
func fields(s *types.Struct, p *types.Package, name string, lines map[string]bool) {
	for f := range s.Fields() {
		if f.Exported() && !hidden(f.Type()) {
			lines[fmt.Sprintf("field %s.%s %s", name, f.Name(), typeText(f.Type(), p))] = true
		}
		typ := f.Type()
		if pointer, ok := typ.(*types.Pointer); ok {
			typ = pointer.Elem()
		}
		if embedded, ok := typ.Underlying().(*types.Struct); ok && f.Embedded() {
			fields(embedded, p, name, lines)
		}
	}
}

// methods describes the methods of a type and of pointers to it.
func methods(typ types.Type, p *types.Package, name string, lines map[string]bool) {
	value := types.NewMethodSet(typ)
	set := value
	if !types.IsInterface(typ) {
		set = types.NewMethodSet(types.NewPointer(typ))
	}
	for m := range set.Methods() {
		f := m.Obj()
		if !f.Exported() || hidden(f.Type()) {
			continue
		}
		receiver := name
		if value.Lookup(p, f.Name()) == nil {
			receiver = "*" + name
		}
		lines[fmt.Sprintf("method (%s) %s%s", receiver, f.Name(), strings.TrimPrefix(typeText(f.Type(), p), "func"))] = true
	}
}

// typeText writes a type as package p would, but for the names of parameters, which callers do
// not need.
func typeText(typ types.Type, p *types.Package) string {
	return types.TypeString(unnamed(typ), short(p))
}

// unnamed returns a type without the names of parameters, if it is one of functions.
func unnamed(typ types.Type) types.Type {
	f, ok := typ.(*types.Signature)
	if !ok || f.TypeParams().Len() > 0 { // type parameters belong to one signature
		return typ
	}
	tuple := func(of *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range of.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", unnamed(v.Type())))
		}
		return types.NewTuple(vars...)
	}
	return types.NewSignatureType(nil, nil, nil, tuple(f.Params()), tuple(f.Results()), f.Variadic())
}

// short names packages but for p, whose names stand alone.
func short(p *types.Package) types.Qualifier {
	return func(other *types.Package) string {
		if other == p {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module())
	}
}

// hidden reports whether the type of a name names an internal package.
func hidden(typ types.Type) bool {
	found := false
	types.TypeString(typ, func(p *types.Package) string {
		found = found || internal(p.Path())
		return ""
	})
	return found
}
