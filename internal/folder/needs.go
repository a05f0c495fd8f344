package folder

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"onnxquant/internal/preset"
)

// lacks lists what Preset.Needs and the input does not have.
func (j *Job) lacks() (all []preset.Need) {
	for _, n := range j.Preset.Needs {
		switch {
		case n.With != "" && !j.Source.has(n.With), n.If != "" && j.Source.config("config.json")[n.If] != true:
		case n.Named:
			for _, name := range namesOfFiles(j.Source.config(n.File)) {
				if !j.Source.has(path.Base(name)) {
					named := n
					named.File = name
					all = append(all, named)
				}
			}
		case !j.Source.has(n.File):
			all = append(all, n)
		}
	}
	return all
}

// has reports whether a file of this name is in the folder or below it.
func (s *Folder) has(name string) bool {
	is := func(other string) bool { return path.Base(other) == name }
	return slices.ContainsFunc(s.Others, is) || slices.ContainsFunc(s.Models, is)
}

// config reads a JSON object. It is nil if there is none.
func (s *Folder) config(name string) (object map[string]any) {
	const most = 16 << 20 // bytes
	if !slices.Contains(s.Others, name) {
		return nil
	}
	f, err := os.Open(s.File(name))
	if err != nil {
		return nil
	}
	defer f.Close()
	if json.NewDecoder(io.LimitReader(f, most)).Decode(&object) != nil {
		return nil
	}
	return object
}

// namesOfFiles lists the strings under the key filename, in any depth, in order.
func namesOfFiles(value any) (names []string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if name, ok := inner.(string); ok && key == "filename" && name != "" {
				names = append(names, name)
			}
			names = append(names, namesOfFiles(inner)...)
		}
	case []any:
		for _, inner := range v {
			names = append(names, namesOfFiles(inner)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkNeeds fails if a folder lacks a file without which the result cannot be opened. A single model is
// converted anyway: it may be meant for a folder that is there.
func (j *Job) checkNeeds() error {
	for _, n := range j.lacks() {
		if n.Required && !j.Source.alone {
			return fmt.Errorf("%s: it has no %s: %s; to convert a model alone, give its .onnx file as IN", j.Source.Path, n.File, n.Why)
		}
	}
	return nil
}
