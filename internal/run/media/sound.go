package media

import (
	"fmt"
	"math"

	"onnxquant/internal/regularfile"
	"onnxquant/internal/run/execute"
)

// Sounds decodes recordings for an input, in pieces.
type Sounds struct {
	input  Input
	config *Config
	length int // of a piece, fixed by the model, or 0
}

// longest is the length of a piece in seconds, where the model takes any.
const longest = 30

// NewSounds returns a decoder, or an error that tells why the input takes no sound.
func NewSounds(in Input, c *Config) (*Sounds, error) {
	s := in.Shape
	switch {
	case !in.DType.Float() || len(s) < 1 || len(s) > 3, len(s) > 1 && !s.batchOfOne(), len(s) == 3 && s[1] > 1:
		return nil, fmt.Errorf("input %q takes no sound: want floats of shape [T], [N,T] or [N,1,T]", in.Name)
	}
	if _, err := execute.Elements(in.DType, []int64{s[len(s)-1]}); err != nil {
		return nil, err
	}
	return &Sounds{in, c, int(s[len(s)-1])}, nil
}

// Each yields the pieces of a file in turn, and the sampling rate in Hz. The rest of a file, shorter than the pieces that the
// model takes, is left out, unless it is the whole file: then zeros follow.
func (s *Sounds) Each(path string, yield func(piece *execute.Tensor, rate int) error) error {
	f, _, err := regularfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := newWave(f)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case s.config.SamplingRate > 0 && w.rate != s.config.SamplingRate:
		return fmt.Errorf("%s: %d Hz, but the model takes %d: ffmpeg -ar %d makes them", path, w.rate, s.config.SamplingRate, s.config.SamplingRate)
	}
	length := s.length
	if length == 0 {
		length = longest * w.rate
	}
	for first := true; ; first = false {
		piece, err := w.read(length)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		whole := len(piece) == length
		if len(piece) == 0 || !whole && s.length > 0 && !first {
			return nil
		}
		if s.length > 0 && !whole {
			piece = append(piece, make([]float64, length-len(piece))...)
		}
		t, err := s.tensor(piece)
		if err == nil {
			err = yield(t, w.rate)
		}
		if err != nil || !whole {
			return err
		}
	}
}

func (s *Sounds) tensor(x []float64) (*execute.Tensor, error) {
	if is(s.config.DoNormalize, false) {
		normalize(x)
	}
	dims := make([]int64, len(s.input.Shape))
	for i := range dims {
		dims[i] = 1
	}
	dims[len(dims)-1] = int64(len(x))
	t, err := execute.FromFloat64s(s.input.DType, dims, x)
	if err == nil {
		t.Name = s.input.Name
	}
	return t, err
}

// normalize gives a piece the mean 0 and the deviation 1.
func normalize(x []float64) {
	mean, square := 0., 0.
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	for i, v := range x {
		x[i] = (v - mean) / math.Sqrt(square+1e-7)
	}
}
