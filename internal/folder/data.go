package folder

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// DataFor chooses data for a model of the folder, among files and folders. What has the name of a model, inside of a folder of data
// or by itself, is for that model alone: encoder and encoder.npz are for encoder.onnx. A model without such data takes the others
// together, or else each that it takes alone. takes says why data do not fit; its error about all of them is returned if none fit.
func (f *Folder) DataFor(model string, paths []string, takes func(paths []string) error) ([]string, error) {
	own, rest := f.dataOf(model, paths)
	if len(own) > 0 {
		return own, takes(own)
	}
	if len(rest) == 0 { // all are for other models
		rest = paths
	}
	err := takes(rest)
	if err == nil || len(rest) == 1 {
		return rest, err
	}
	alone := slices.DeleteFunc(slices.Clone(rest), func(path string) bool { return takes([]string{path}) != nil })
	if len(alone) == 0 || takes(alone) != nil {
		return nil, err
	}
	return alone, nil
}

// dataOf returns the data that have the name of a model, and those that have the name of none.
func (f *Folder) dataOf(model string, paths []string) (own, rest []string) {
	add := func(data string) (named bool) {
		if isNamed(data, model) {
			own = append(own, data)
		}
		return slices.ContainsFunc(f.Models, func(m string) bool { return isNamed(data, m) })
	}
	for _, data := range paths {
		entries, _ := os.ReadDir(data)
		var others []string
		named := add(data)
		for _, e := range entries {
			if inner := filepath.Join(data, e.Name()); !named && !add(inner) {
				others = append(others, inner)
			}
		}
		switch {
		case named:
		case len(others) < len(entries):
			rest = append(rest, others...)
		default:
			rest = append(rest, data)
		}
	}
	return own, rest
}

// isNamed reports whether data have the name of a model, without the ends of both.
func isNamed(data, model string) bool {
	base := filepath.Base(data)
	stem := strings.TrimSuffix(path.Base(model), path.Ext(model))
	return base == stem || strings.TrimSuffix(base, filepath.Ext(base)) == stem
}
