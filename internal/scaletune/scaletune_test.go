package scaletune_test

import (
	"errors"
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/quantize"
	"onnxquant/internal/scaletune"
)

// stored is a part of a file in memory.
type stored []byte

func (s stored) ReadAt(b []byte, off int64) (int, error)  { return copy(b, s[off:]), nil }
func (s stored) WriteAt(b []byte, off int64) (int, error) { return copy(s[off:], b), nil }

// model wants its weight to have other elements. On held-out samples these are shifted.
type model struct {
	want  []float32
	worse bool // no other weights are better on held-out samples
	steps int
	err   error
}

func (m *model) difference(w scaletune.Weights, gradient bool) (float64, error) {
	x, g, sum := make([]float32, len(m.want)), make([]float32, len(m.want)), 0.0
	if err := w.Elements(0, x); err != nil {
		return 0, err
	}
	for i, v := range x {
		d := v - m.want[i]
		sum, g[i] = sum+float64(d*d), 2*d
	}
	if gradient {
		return sum, w.Gradient(0, g)
	}
	return sum, nil
}

func (m *model) Next(_ int, w scaletune.Weights) (float64, error) {
	if m.steps++; m.err != nil {
		return 0, m.err
	}
	return m.difference(w, true)
}

func (m *model) HeldOut(w scaletune.Weights) (float64, error) {
	if m.worse {
		return float64(m.steps), nil
	}
	return m.difference(w, false)
}

func (m *model) Loss() string { return "squared error" }
func (m *model) Close()       {}

// layerOf returns a weight of codes 1, 2, 3, … with scales of 1, and its elements if scales were some others.
func layerOf(outer, k, inner, block int64, scale dtype.DType) (scaletune.Layer, []float32) {
	codec := int4.Codec{Bits: 4, Signed: true, Type: dtype.Float32, Scale: scale}
	w := &quantize.Weight{DType: dtype.Float32, Outer: outer, K: k, Inner: inner, Block: block, Codec: codec}
	n := outer * w.Blocks() * inner
	f := &quantize.Found{Codes: make(stored, w.Elements()), Scales: make(stored, 4*n), Zeros: make(stored, n)}
	want := make([]float32, w.Elements())
	scales := make([]float32, n)
	for i := range scales {
		scales[i] = 1
	}
	raw := make([]byte, 4*n)
	dtype.Float32.Encode(raw, scales)
	f.Scales.WriteAt(raw, 0)
	for i := range want {
		code := byte(i%7 + 1)
		f.Codes.WriteAt([]byte{code}, int64(i))
		at := int64(i)
		b := at/(k*inner)*w.Blocks()*inner + at/inner%k/block*inner + at%inner
		want[i] = float32(code) * (1 + 0.02*float32(math.Sin(float64(b))))
	}
	return scaletune.Layer{Weight: w, Found: f}, want
}

func TestRun(t *testing.T) {
	for _, test := range []struct{ outer, k, inner, block int64 }{{1, 10, 6, 4}, {6, 10, 1, 4}, {2, 8, 3, 8}} {
		for _, scale := range []dtype.DType{dtype.Float32, dtype.Float16} {
			l, want := layerOf(test.outer, test.k, test.inner, test.block, scale)
			m := &model{want: want}
			r, err := scaletune.Run(t.Context(), m, []scaletune.Layer{l}, scaletune.Options{Steps: 100})
			if err != nil {
				t.Fatal(err)
			}
			if r.After > r.Before/1000 || r.Steps == 0 || r.Scales != int64(len(l.Found.Zeros.(stored))) {
				t.Errorf("%v, scales of %v: %+v", test, scale, r)
			}
			raw := make([]byte, len(want)*4)
			x := make([]float32, len(want))
			if _, err := l.Weight.Decoded(r.Found[0]).ReadAt(raw, 0); err != nil {
				t.Fatal(err)
			}
			dtype.Float32.Decode(x, raw)
			for i, v := range x {
				if math.Abs(float64(v-want[i])) > 0.01 {
					t.Fatalf("%v: element %d is %g, want %g", test, i, v, want[i])
				}
			}
		}
	}
}

// Where nothing is better on held-out samples, the scales stay, and tuning ends early.
func TestNoGain(t *testing.T) {
	l, want := layerOf(1, 8, 4, 4, dtype.Float32)
	m := &model{want: want, worse: true}
	r, err := scaletune.Run(t.Context(), m, []scaletune.Layer{l}, scaletune.Options{Steps: 200})
	if err != nil {
		t.Fatal(err)
	}
	if r.Steps != 0 || r.Found[0] != l.Found || m.steps > 150 {
		t.Errorf("%+v after %d steps", r, m.steps)
	}
	m.err = errors.New("broken")
	if _, err := scaletune.Run(t.Context(), m, []scaletune.Layer{l}, scaletune.Options{Steps: 10}); !errors.Is(err, m.err) {
		t.Errorf("error %v", err)
	}
}
