package layerfit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// The names of models that run, for Options.Write: with the codes found so far, and without codes.
const (
	interimModel = "interim"
	Float        = "float"
)

// keptSuffix is the end of the folder's name, behind that of the file with the codes.
const keptSuffix = ".kept"

// frontier is how far the models have run on the samples. The values that cross a cut before a group of
// layers are kept in a folder; the part of a model for the next group goes on from them. So each node is run
// about twice in all, however many groups there are.
type frontier struct {
	folder string
	best   bool // the codes of a group change the inputs of the groups behind it
	cuts   []cut
	off    bool // every part begins at the inputs
}

// cut is the cut before a group.
type cut struct {
	values []string // that cross it
	ok     bool
}

// useful reports whether a part of a model can begin at the cut.
func (c cut) useful() bool { return c.ok && len(c.values) > 0 }

// models lists the models that run for a group.
func (c *calibration) models() []string {
	if c.sequential() {
		return []string{interimModel, Float}
	}
	return []string{interimModel}
}

// newFrontier returns the frontier before the first group.
func (c *calibration) newFrontier(groups [][]*inputs) *frontier {
	f := &frontier{folder: c.State + keptSuffix, best: c.sequential(), cuts: make([]cut, len(groups))}
	var behind []int
	for i, group := range slices.Backward(groups) {
		for _, in := range group {
			behind = append(behind, in.layers...)
		}
		if c.Cut != nil && i > 0 {
			f.cuts[i].values, f.cuts[i].ok = c.Cut(behind)
		}
	}
	return f
}

// ends are the cuts between which a model runs for a group, by the groups behind them. Codes of a group are known
// when its part has run: the interim model keeps the values before this group, the float model those before the
// next one.
func (f *frontier) ends(group int, model string) (from, to int) {
	if f.best && model == interimModel {
		return group - 1, group
	}
	return group, group + 1
}

// part says from where a model goes on for a group, and what it keeps.
func (f *frontier) part(group int, model string) (p Part, err error) {
	if f.off {
		return Part{}, nil
	}
	from, to := f.ends(group, model)
	if from > 0 && f.cuts[from].useful() {
		p.From = f.at(from, model)
		if _, err := os.Stat(p.From); errors.Is(err, fs.ErrNotExist) {
			p.From = "" // the part before was not kept
		}
	}
	if to < len(f.cuts) && f.cuts[to].useful() {
		p.Keep, p.To = f.cuts[to].values, f.at(to, model)
		if err := errors.Join(os.RemoveAll(p.To), os.MkdirAll(p.To, 0o700)); err != nil {
			return p, fmt.Errorf("%w: %w", ErrNotKept, err)
		}
	}
	return p, nil
}

// at is the folder with the values of a model that cross the cut before a group.
func (f *frontier) at(group int, model string) string {
	return filepath.Join(f.folder, model+"-"+strconv.Itoa(group))
}

// forget removes what no group behind this one needs.
func (f *frontier) forget(group int) {
	if group == len(f.cuts)-1 {
		f.remove()
		return
	}
	for _, model := range []string{interimModel, Float} {
		from, _ := f.ends(group, model)
		os.RemoveAll(f.at(from, model))
	}
}

// giveUp lets every part begin at the inputs.
func (f *frontier) giveUp() {
	f.off = true
	f.remove()
}

func (f *frontier) remove() { os.RemoveAll(f.folder) }
