package folder

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/preset"
)

// otherFiles lists the files that are copied. A model that cannot be opened is not: nobody could load it.
func (j *Job) otherFiles() []string {
	made := map[string]bool{}
	for _, o := range j.report.Outputs {
		made[o.Output] = true
		for _, name := range o.data {
			made[name] = true
		}
	}
	rest := slices.Clone(j.Source.Others)
	if j.Preset.Keep {
		for _, m := range j.Preset.Sources(j.Source.Models) {
			if !slices.Contains(j.broken, m) {
				rest = append(append(rest, m), j.Source.Data[m]...)
			}
		}
	}
	slices.Sort(rest)
	return slices.DeleteFunc(slices.Compact(rest), func(name string) bool { return made[j.placed(name)] })
}

// moves reports whether the models of the root go to the folder of the preset: it has none.
func (j *Job) moves() bool {
	f := j.Preset.Folder
	return f != "" && !slices.ContainsFunc(j.Source.Models, func(m string) bool { return strings.HasPrefix(m, f+"/") })
}

// placed is the name that a file of the input has in the output: models of the root, and their external
// data, may go to a folder.
func (j *Job) placed(name string) string {
	if !j.moves() {
		return name
	}
	for _, m := range j.Source.Models {
		if path.Dir(m) == "." && (m == name || slices.Contains(j.Source.Data[m], name)) {
			return j.Preset.Folder + "/" + name
		}
	}
	return name
}

// outputName is the name of an output of a model.
func (j *Job) outputName(o preset.Output, model string) string {
	return path.Join(path.Dir(j.placed(model)), path.Base(o.Name(model)))
}

// warnNeeds names the files that the result lacks.
func (j *Job) warnNeeds() {
	for _, n := range j.lacks() {
		_, err := os.Stat(j.Source.File(n.File))
		switch {
		case j.Source.alone && err == nil:
			j.Warn(fmt.Sprintf("%s is not copied for a single model: give the folder %s as IN", n.File, j.Source.Path))
		case j.Source.alone:
			j.Warn(fmt.Sprintf("%s is not written: %s", n.File, n.Why))
		default:
			j.Warn(fmt.Sprintf("%s: it has no %s: %s", j.Source.Path, n.File, n.Why))
		}
	}
}

// writes returns which files the output has, as far as names say: not its external data.
func (j *Job) writes() func(name string) bool {
	names := slices.Clone(j.Source.Others)
	for _, m := range j.Preset.Sources(j.Source.Models) {
		for _, o := range j.Preset.Outputs {
			names = append(names, j.outputName(o, m))
		}
		if j.Preset.Keep {
			for _, name := range append([]string{m}, j.Source.Data[m]...) {
				names = append(names, j.placed(name))
			}
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// configure writes to a file of the folder how many files of external data each output has.
func (j *Job) configure(temp string) error {
	c := j.Preset.Config
	if c == nil || !slices.Contains(j.Source.Others, c.File) {
		return nil
	}
	counts := map[string]int{}
	for _, o := range j.report.Outputs {
		counts[path.Base(o.Output)] = max(counts[path.Base(o.Output)], len(o.data))
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	if len(counts) == 0 {
		return nil
	}
	var kept []string // float models with external data
	for _, m := range j.Preset.Sources(j.Source.Models) {
		if j.Preset.Keep && len(j.Source.Data[m]) > 0 {
			kept = append(kept, path.Base(m))
		}
	}
	return preset.SetCounts(filepath.Join(temp, filepath.FromSlash(c.File)), c.ExternalData, counts, kept)
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
