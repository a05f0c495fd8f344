package samples

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/media"
)

// files are the images, or the recordings, of a folder. Each image is a sample, and so is each piece of sound.
type files struct {
	model *model
	paths []string
	input int
	rate  int // input that takes the sampling rate, or -1
	image *media.Images
	sound *media.Sounds
}

// newFiles finds the input for the files of a folder, all images or all sound.
func newFiles(m *model, paths []string, sound bool) (*files, error) {
	folder := filepath.Dir(paths[0])
	config, err := media.FindConfig(folder, m.folder, filepath.Dir(m.folder))
	if err != nil {
		return nil, err
	}
	f := &files{model: m, paths: paths, input: -1, rate: -1}
	var refused error
	for i, info := range m.inputs {
		in := media.Input{Name: info.GetName(), DType: typeOf(info)}
		for _, d := range info.GetType().GetTensorType().GetShape().GetDim() {
			n, _ := execute.FixedSize(d)
			in.Shape = append(in.Shape, n)
		}
		if sound && isRate(in) {
			f.rate = i
			continue
		}
		if f.input >= 0 || isState(in) {
			continue
		}
		if sound {
			f.sound, err = media.NewSounds(in, config)
		} else {
			f.image, err = media.NewImages(in, config)
		}
		if err == nil {
			f.input = i
		} else if refused == nil || f.input < 0 && strings.Contains(err.Error(), media.ConfigName) {
			refused = err
		}
	}
	if f.input < 0 {
		return nil, fmt.Errorf("%s: %w", folder, refused)
	}
	return f, nil
}

func isRate(in media.Input) bool {
	name := strings.ToLower(in.Name)
	return in.DType.Integer() && len(in.Shape) < 2 && (name == "sr" || strings.Contains(name, "rate"))
}

// isState reports whether an input is a state, which is zero when sound begins.
func isState(in media.Input) bool {
	return in.DType.Float() && containsAny(strings.ToLower(in.Name), "state", "hidden", "cache")
}

// count implements source.
func (f *files) count(limit int) (n int, err error) {
	if f.image != nil {
		return min(len(f.paths), limit), nil
	}
	err = f.each(func([]*execute.Tensor) error {
		if n++; n == limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

// each implements source.
func (f *files) each(yield func([]*execute.Tensor) error) error {
	for _, path := range f.paths {
		if f.image != nil {
			t, err := f.image.Decode(path)
			if err == nil {
				err = yield(f.inputs(t))
			}
			if err != nil {
				return err
			}
			continue
		}
		err := f.sound.Each(path, func(piece *execute.Tensor, rate int) error {
			inputs, err := f.besides(piece, int64(rate))
			if err != nil {
				return err
			}
			return yield(inputs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// besides returns the inputs with a piece of sound: its rate, and states of zeros.
func (f *files) besides(piece *execute.Tensor, rate int64) ([]*execute.Tensor, error) {
	inputs := f.inputs(piece)
	for i, info := range f.model.inputs {
		var err error
		switch in := (media.Input{Name: info.GetName(), DType: typeOf(info)}); {
		case i == f.input:
		case i == f.rate:
			err = f.tell(inputs, i, rate)
		case isState(in):
			err = f.tell(inputs, i, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

func (f *files) inputs(t *execute.Tensor) []*execute.Tensor {
	inputs := make([]*execute.Tensor, len(f.model.inputs))
	inputs[f.input] = t
	return inputs
}

// tell fills an input with a number. Free sizes are 1.
func (f *files) tell(inputs []*execute.Tensor, i int, number int64) error {
	t, err := f.model.filled(f.model.inputs[i], 1, 1, func(int64) int64 { return number })
	if err == nil {
		t.Name = f.model.inputs[i].GetName()
		inputs[i] = t
	}
	return err
}
