package folder

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

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
	return slices.DeleteFunc(slices.Compact(rest), func(name string) bool { return made[name] })
}

// writes returns which files the output has, as far as names say: not its external data.
func (j *Job) writes() func(name string) bool {
	names := slices.Clone(j.Source.Others)
	for _, m := range j.Preset.Sources(j.Source.Models) {
		for _, o := range j.Preset.Outputs {
			names = append(names, o.Name(m))
		}
		if j.Preset.Keep {
			names = append(append(names, m), j.Source.Data[m]...)
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
