package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/folder"
	"onnxquant/internal/preset"
)

// rest lists the files that are copied. A model that cannot be opened is not: nobody could load it.
func (j *folderJob) rest() []string {
	made := map[string]bool{}
	for _, o := range j.Outputs {
		made[o.Output] = true
		for _, name := range o.data {
			made[name] = true
		}
	}
	rest := slices.Clone(j.source.Others)
	if j.preset.Keep {
		for _, m := range j.preset.Sources(j.source.Models) {
			if !slices.Contains(j.broken, m) {
				rest = append(append(rest, m), j.source.Data[m]...)
			}
		}
	}
	slices.Sort(rest)
	return slices.DeleteFunc(slices.Compact(rest), func(name string) bool { return made[name] })
}

// writes returns which files the output has, as far as names say: not its external data.
func (j *folderJob) writes() func(name string) bool {
	names := slices.Clone(j.source.Others)
	for _, m := range j.preset.Sources(j.source.Models) {
		for _, o := range j.preset.Outputs {
			names = append(names, o.Name(m))
		}
		if j.preset.Keep {
			names = append(append(names, m), j.source.Data[m]...)
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// configure writes to a file of the folder how many files of external data each output has.
func (j *folderJob) configure(temp string) error {
	c := j.preset.Config
	if c == nil || !slices.Contains(j.source.Others, c.File) {
		return nil
	}
	counts := map[string]int{}
	for _, o := range j.Outputs {
		counts[path.Base(o.Output)] = max(counts[path.Base(o.Output)], len(o.data))
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	if len(counts) == 0 {
		return nil
	}
	var kept []string // float models with external data
	for _, m := range j.preset.Sources(j.source.Models) {
		if j.preset.Keep && len(j.source.Data[m]) > 0 {
			kept = append(kept, path.Base(m))
		}
	}
	return preset.SetCounts(filepath.Join(temp, filepath.FromSlash(c.File)), c.ExternalData, counts, kept)
}

// scan lists a folder, or a model as if it were alone in one.
func scan(in string) (*folder.Folder, error) {
	if info, err := os.Stat(in); err == nil && !info.IsDir() {
		return &folder.Folder{Path: filepath.Dir(in), Models: []string{filepath.Base(in)}}, nil
	}
	return folder.Scan(in)
}

// inside reports whether out is the folder in, or in it.
func inside(out, in string) bool {
	info, err := os.Stat(in)
	if err != nil || !info.IsDir() {
		return false
	}
	dir, err := filepath.Abs(out)
	for ; err == nil; dir = filepath.Dir(dir) {
		if there, err := os.Stat(dir); err == nil && os.SameFile(there, info) {
			return true
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return false
}

// wantFolder refuses the name of a model as that of a folder, unless there is such a folder.
func wantFolder(out string) error {
	if info, err := os.Stat(out); !strings.EqualFold(filepath.Ext(out), ".onnx") || err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("%s: OUT of a folder, and of --preset, is a folder, and this is the name of a model; name a folder, such as %s", printable(out), printable(strings.TrimSuffix(out, filepath.Ext(out))))
}
