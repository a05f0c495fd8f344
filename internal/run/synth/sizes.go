package synth

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/nearest"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// sizes are sizes of free axes, by what they are.
type sizes struct {
	batch, past, sequence int64
	height, width         int64 // of images
	wave, frames          int64 // of sound
}

// usual are sizes to try for any model: some take only one sample at a time, some no empty past, some only
// long inputs or short ones.
var usual = []sizes{
	{batch: 2, sequence: 64}, {batch: 1, sequence: 64}, {batch: 1, past: 1, sequence: 64},
	{batch: 2, sequence: 8}, {batch: 1, sequence: 8}, {batch: 1, past: 1, sequence: 8}, {batch: 1, sequence: 512},
}

// Sides of images, in pixels, and lengths of sound, in samples and frames.
var (
	sidesOfText   = [][2]int64{{48, 320}, {32, 320}, {32, 100}, {64, 256}}
	sidesOfScenes = [][2]int64{{224, 224}, {320, 320}, {64, 64}, {640, 640}, {512, 512}, {32, 32}, {8, 8}}
	waves         = []int64{16000, 512, 576, 1600, 64000}
	wavesOfStream = []int64{576, 512, 1600, 16000}
	frames        = []int64{200, 96, 64, 3000, 16}
)

// largeModel is a model for which short inputs are tried first, in bytes.
const largeModel = 1 << 30

// sizesToTry lists the sizes to try, the best first.
func (g *graph) sizesToTry(subjects []*subject, single bool) (list []sizes) {
	of := func(k kind) *subject {
		if i := slices.IndexFunc(subjects, func(s *subject) bool { return s.kind == k }); i >= 0 {
			return subjects[i]
		}
		return nil
	}
	first := sizes{batch: 1, sequence: 64, height: 64, width: 64, wave: 16000, frames: 200}
	switch pictured, heard, mapped := of(image), of(waveform), of(features); {
	case pictured != nil:
		for _, s := range g.sides(pictured) {
			first.height, first.width = s[0], s[1]
			list = append(list, first)
		}
	case heard != nil:
		lengths := waves
		if of(memory) != nil {
			lengths = wavesOfStream
		}
		for _, first.wave = range lengths {
			list = append(list, first)
		}
	case mapped != nil || of(spectrum) != nil:
		for _, first.frames = range frames {
			list = append(list, first)
		}
	}
	rest := slices.Clone(usual)
	if g.file.Size() > largeModel {
		rest = append([]sizes{{batch: 1, sequence: 16}}, rest...)
	}
	if single {
		slices.SortStableFunc(rest, func(a, b sizes) int { return int(a.batch - b.batch) })
	}
	for _, s := range rest {
		s.height, s.width, s.wave, s.frames = s.sequence, s.sequence, s.sequence, s.sequence
		list = append(list, s)
	}
	return list
}

var twoNumbers = regexp.MustCompile(`^\[?\(?(\d+), *(\d+)`)

// sides lists sides of images to try. The model may say them in its metadata, or have one of them fixed.
func (g *graph) sides(s *subject) [][2]int64 {
	list := sidesOfScenes
	if s.content == textLine {
		list = slices.Concat(sidesOfText, sidesOfScenes)
	}
	if n := twoNumbers.FindStringSubmatch(g.metadata("imgsz")); n != nil {
		h, _ := strconv.ParseInt(n[1], 10, 16)
		w, _ := strconv.ParseInt(n[2], 10, 16)
		list = append([][2]int64{{h, w}}, list...)
	}
	at := spatial(s)
	h, tall := execute.FixedSize(s.axes[at[0]])
	w, wide := execute.FixedSize(s.axes[at[1]])
	if tall != wide && s.content != textLine {
		list = append([][2]int64{{max(h, w), max(h, w)}}, list...)
	}
	return list
}

// spatial returns the axes of the height and width of an image.
func spatial(s *subject) [2]int {
	if n := len(s.axes); s.axis == n-1 {
		return [2]int{n - 3, n - 2}
	} else {
		return [2]int{n - 2, n - 1}
	}
}

// fitter gives axes their sizes. Axes of one name have one size.
type fitter struct {
	sizes
	named map[string]int64
}

func newFitter(s sizes, given map[string]int64) *fitter {
	return &fitter{s, maps.Clone(given)}
}

func (f *fitter) dims(s *subject) []int64 {
	dims := []int64{}
	for i, d := range s.axes {
		n, fixed := execute.FixedSize(d)
		if !fixed {
			n = f.free(s, i, d.GetDimParam())
			if f.named == nil {
				f.named = map[string]int64{}
			}
			f.named[d.GetDimParam()] = n
		}
		dims = append(dims, n)
	}
	return dims
}

// free returns the size of a free axis of an input.
func (f *fitter) free(s *subject, axis int, name string) int64 {
	if n, ok := f.named[name]; ok && name != "" {
		return n
	}
	last := axis == len(s.axes)-1
	switch s.kind {
	case image:
		switch at := spatial(s); axis {
		case at[0]:
			return f.height
		case at[1]:
			return f.width
		}
		return f.batch
	case waveform:
		if last {
			return f.wave
		}
		return 1
	case features, spectrum:
		if axis > 0 && axis != s.axis {
			return f.frames
		}
		return f.batch
	}
	return f.size(name, axis == 0)
}

// size returns the size of an axis by its name, perhaps the first of an input.
func (f *fitter) size(name string, first bool) int64 {
	if n, ok := f.named[name]; ok && name != "" {
		return n
	}
	if parts := strings.Split(name, "+"); len(parts) > 1 && len(parts) < 4 {
		sum := int64(0)
		for _, part := range parts {
			part = strings.TrimSpace(part)
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil {
				n = uint64(f.size(part, false))
			}
			sum += int64(n)
		}
		return sum
	}
	switch {
	case strings.Contains(name, "total"):
		return f.past + f.sequence
	case strings.Contains(name, "past"):
		return f.past
	case first:
		return f.batch
	}
	return f.sequence
}

// checkDimensions returns an error if no input has a symbolic dimension of a given name.
func checkDimensions(given map[string]int64, infos []*onnxpb.ValueInfoProto) error {
	var names []string
	for _, info := range infos {
		for _, dim := range info.GetType().GetTensorType().GetShape().GetDim() {
			names = append(names, dim.GetDimParam())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != "" && slices.Contains(names, name) {
			continue
		}
		message := fmt.Sprintf("no input has a dimension called %q", name)
		if near, ok := nearest.Name(name, names); ok {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		return errors.New(message)
	}
	return nil
}
