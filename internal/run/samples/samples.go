// Package samples reads data, such as a calibration set: a stream of inputs to run a model on.
//
// [Open] gets a model and the paths of data, and returns [Samples], which yield one sample after
// another. The caller owns each sample. Data are
//
//   - .npz files, whose arrays have the names of the model's inputs,
//   - .npy and .pb files (a TensorProto), each named after an input, perhaps with a number
//     at the end; all of them together are one source,
//   - .jsonl files with a list of token ids on each line, for models that read ids,
//   - images and sound (.png, .jpg, .webp, …, .wav), for an input that takes them: package media,
//   - folders of such files.
//
// The first axis of an array counts the samples. If the model fixes the size n of an input's first
// axis, n rows are a sample. If an array has one axis more than the input, each row is a whole input.
// An input with one sample has the same value in all samples.
//
// Arrays that are named after no input go to the inputs without an array: in order, if there are as
// many, or all to the only one. Arrays named after outputs are ignored.
//
// Inputs of a language model that follow from the ids need no data: masks, positions, lengths, an empty
// past.
package samples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/media"
)

// Default is the number of samples that are used by default.
const Default = 128

// Samples are the inputs of a model's runs. They can be read any number of times, and stay in
// their files meanwhile.
type Samples struct {
	model   *model
	whole   bool // see OpenWhole
	sources []source
	n       int
}

// source is a file, or some files, with complete samples.
type source interface {
	// count returns the number of samples. It may stop counting at limit.
	count(limit int) (int, error)
	// each yields the samples in turn: inputs by the order of the model, nil where missing.
	each(yield func([]*execute.Tensor) error) error
	// file is the file of a sample.
	file(number int) string
	// several reports whether there are more files.
	several() bool
}

// Open finds the first n samples of the files and folders for a model; all samples if n is 0.
func Open(m *modelfile.Model, paths []string, n int) (*Samples, error) {
	return open(&Samples{model: newModel(m)}, paths, n)
}

// OpenWhole is Open for comparing models: arrays that all fit the model's inputs as they are make one
// sample, perhaps a batch. Samples may be empty or have NaN.
func OpenWhole(m *modelfile.Model, paths []string, n int) (*Samples, error) {
	return open(&Samples{model: newModel(m), whole: true}, paths, n)
}

func open(s *Samples, paths []string, n int) (*Samples, error) {
	if len(s.model.inputs) == 0 {
		return nil, errors.New("the model has no inputs that data could be for")
	}
	var loose []string
	for _, path := range paths {
		found, err := s.open(path)
		if err != nil {
			return nil, err
		}
		loose = append(loose, found...)
	}
	if err := s.addLoose(loose); err != nil {
		return nil, err
	}
	left := n
	if n == 0 {
		left = maxSamples
	}
	for _, source := range s.sources {
		k, err := source.count(left)
		if err != nil {
			return nil, err
		}
		s.n, left = s.n+min(k, left), left-min(k, left)
	}
	if s.n == 0 {
		return nil, fmt.Errorf("%s: no samples", strings.Join(paths, ", "))
	}
	return s, s.check()
}

const maxSamples = 1 << 30

// check reads the first sample, so that errors in all samples come early.
func (s *Samples) check() error {
	for _, err := range s.All() {
		return err
	}
	return nil
}

// open adds the sources of a file or folder, and returns the files with an input each.
func (s *Samples) open(path string) (loose []string, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such file or folder of data", path)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		before := len(s.sources)
		if err = s.openFolder(path); err == nil && len(s.sources) == before {
			err = fmt.Errorf("%s: the folder has no .npz, .npy, .pb or .jsonl files, images or .wav files", path)
		}
		return nil, err
	}
	switch {
	case media.IsImage(path), media.IsSound(path):
		return nil, s.addFiles([]string{path})
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npz":
		return nil, s.addArrays([]string{path})
	case ".jsonl":
		t, err := newTokens(s.model, path)
		if err == nil {
			s.sources = append(s.sources, t)
		}
		return nil, err
	case ".npy", ".pb":
		return []string{path}, nil
	}
	if strings.EqualFold(filepath.Ext(path), ".txt") {
		return nil, fmt.Errorf("%s: text must be token ids already: a .jsonl file with a list of ids on each line, as the model's tokenizer makes them", path)
	}
	return nil, fmt.Errorf("%s: not a folder, nor a file that ends in .npz, .npy, .pb or .jsonl, an image or a .wav file", path)
}

// openFolder adds the sources of a folder and of its subfolders. Each folder has samples of its own.
func (s *Samples) openFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var loose, images, sounds []string
	before := len(s.sources)
	for _, e := range entries {
		inner := filepath.Join(path, e.Name())
		var found []string
		switch known := slices.Contains([]string{".npz", ".npy", ".pb", ".jsonl"}, strings.ToLower(filepath.Ext(inner))); {
		case e.IsDir():
			err = s.openFolder(inner)
		case media.IsImage(inner):
			images = append(images, inner)
		case media.IsSound(inner):
			sounds = append(sounds, inner)
		case known: // not models, texts, …
			found, err = s.open(inner)
		}
		if err != nil {
			return err
		}
		loose = append(loose, found...)
	}
	if len(s.sources) > before || len(loose) > 0 {
		return s.addLoose(loose) // pictures beside arrays are for people
	}
	return errors.Join(s.addFiles(images), s.addFiles(sounds))
}

// addFiles adds images or sound.
func (s *Samples) addFiles(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	f, err := newFiles(s.model, paths, media.IsSound(paths[0]))
	if err == nil {
		s.sources = append(s.sources, f)
	}
	return err
}

func (s *Samples) addLoose(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	return s.addArrays(paths)
}

func (s *Samples) addArrays(paths []string) error {
	a, err := newArrays(s.model, paths, s.whole)
	if err == nil {
		s.sources = append(s.sources, a)
	}
	return err
}

// Len returns the number of samples.
func (s *Samples) Len() int { return s.n }

// First returns the first n samples.
func (s *Samples) First(n int) *Samples {
	first := *s
	first.n = min(s.n, n)
	return &first
}

var errEnough = errors.New("enough samples")

// All yields the inputs of each sample, or an error, which is the last.
func (s *Samples) All() iter.Seq2[[]*execute.Tensor, error] {
	return func(yield func([]*execute.Tensor, error) bool) {
		left := s.n
		err := s.each(func(inputs []*execute.Tensor) error {
			if !yield(inputs, nil) {
				return errEnough
			}
			if left--; left == 0 {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(nil, err)
		}
	}
}

func (s *Samples) each(do func([]*execute.Tensor) error) error {
	number := 0
	for _, source := range s.sources {
		err := source.each(func(inputs []*execute.Tensor) error {
			if err := s.model.complete(inputs, 0); err != nil {
				return err
			}
			if err := s.model.checkIDs(inputs, s.whole); err != nil {
				return fmt.Errorf("%s: %w", s.Name(number), err)
			}
			if err := s.model.useful(inputs); err != nil && !s.whole {
				return fmt.Errorf("%s: %w; leave the sample out", s.Name(number), err)
			}
			number++
			return do(inputs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Failed describes an error of a model that ran on a sample. That with more token ids than the model
// takes is an error of some operator. An interruption is no error of the model.
func (s *Samples) Failed(ctx context.Context, number int, inputs []*execute.Tensor, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if s.model.ids >= 0 {
		if dims := inputs[s.model.ids].Dims; len(dims) > 0 {
			return fmt.Errorf("%s, of %d token ids: %w; if the model takes fewer at a time, cut the samples", s.Name(number), dims[len(dims)-1], err)
		}
	}
	return fmt.Errorf("%s: %w", s.Name(number), err)
}

// useful returns an error if nothing can be observed in a run with these inputs.
func (m *model) useful(inputs []*execute.Tensor) error {
	if i := m.lacking(inputs); i >= 0 {
		return fmt.Errorf("input %s has no elements", describe(m.inputs[i]))
	}
	for _, in := range inputs {
		switch bad := notFinite(in); {
		case bad.nan:
			return fmt.Errorf("input %q has NaN", in.Name)
		case bad.above:
			return fmt.Errorf("input %q has infinity", in.Name)
		}
	}
	return nil
}

// describe writes an input with its type and shape.
func describe(info *onnxpb.ValueInfoProto) string {
	typ := info.GetType().GetTensorType()
	if typ == nil {
		return fmt.Sprintf("%q, which is not a tensor", info.GetName())
	}
	dims := []string{}
	for _, d := range typ.GetShape().GetDim() {
		text := "?"
		if n, ok := execute.FixedSize(d); ok {
			text = fmt.Sprint(n)
		} else if d.GetDimParam() != "" {
			text = d.GetDimParam()
		}
		dims = append(dims, text)
	}
	shape := "[" + strings.Join(dims, ", ") + "]"
	if typ.GetShape() == nil {
		shape = "of any shape"
	}
	return fmt.Sprintf("%q, %v %s", info.GetName(), dtype.DType(typ.GetElemType()), shape)
}
