// Command modulepath gives the module another path: in go.mod, in imports, and in what the README
// says of it. go install HOST/OWNER/NAME/cmd/...@latest needs a path that names a host.
//
//	make module MODULE=example.org/owner/onnxquant
package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 || !regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._-]+)+$`).MatchString(os.Args[2]) {
		log.Fatal("modulepath: want a folder and a path such as example.org/owner/onnxquant")
	}
	if err := rewrite(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("modulepath: ", err)
	}
}

func rewrite(root, to string) error {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	from := strings.Fields(string(mod))[1]
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "build" || name == "dist" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		switch name := d.Name(); {
		case name == "go.mod":
			return edit(path, func(text string) (string, error) {
				return regexp.MustCompile(`(?m)^(module |\s+|replace |require )`+regexp.QuoteMeta(from)+`(/| |$)`).ReplaceAllString(text, "${1}"+to+"$2"), nil
			})
		case strings.HasSuffix(name, ".go"):
			return edit(path, func(text string) (string, error) { return imports(text, from, to) })
		case strings.HasSuffix(name, ".md"):
			return edit(path, func(text string) (string, error) { return document(text, from, to), nil })
		}
		return nil
	})
}

func edit(path string, f func(text string) (string, error)) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := f(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if text == string(old) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// imports renames the imports of a Go file.
func imports(text, from, to string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return "", err
	}
	for i := len(file.Imports) - 1; i >= 0; i-- { // from the last on, so that positions stay right
		spec := file.Imports[i].Path
		path, err := strconv.Unquote(spec.Value)
		if err != nil {
			return "", err
		}
		if rest, ok := strings.CutPrefix(path, from+"/"); ok {
			at := int(spec.Pos()) - 1
			text = text[:at] + strconv.Quote(to+"/"+rest) + text[at+len(spec.Value):]
		}
	}
	return text, nil
}

// document renames imports in examples, and says how to get a module that has a path.
func document(text, from, to string) string {
	clone := regexp.MustCompile(`The module\shas no public path[.:] [Ii]mport it from a clone[.:]\n\n    go mod edit -replace ` + regexp.QuoteMeta(from) + `=\S+ && go mod tidy\n`)
	text = clone.ReplaceAllLiteralString(text, "Get the module with:\n\n    go get "+to+"@latest\n")
	return regexp.MustCompile(`(?m)^(\s*(?:import )?)"`+regexp.QuoteMeta(from)+`/`).ReplaceAllString(text, "${1}\""+to+"/")
}
