package layerfit

import (
	"math"
	"testing"

	"onnxquant/internal/quantize"
)

// Outputs that overflow are not compared: a record holds no infinity and no NaN.
func TestOverflowIsNotCompared(t *testing.T) {
	s, _, err := openStore(t.TempDir()+"/state", "key", false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(false)
	layers := []Layer{layer(32, 8, "x")}
	c := newCalibration(layers, nil, Options{})
	c.Result = newResult(1, s)
	e := sums{found: math.Inf(1), mse: math.Inf(1), signal: math.Inf(1), calibrated: true}
	if err := c.keepBetter(t.Context(), 0, new(quantize.Found), e, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.note(c.record(1)); err != nil || c.each[0].Layers != 0 || c.Found[0] == nil {
		t.Errorf("%v, errors %+v, found %v", err, c.each[0], c.Found[0])
	}
}

// Outputs of other lengths are not taken for equal ones.
func TestDifference(t *testing.T) {
	if d := difference([]float32{1, 2}, []float32{1, 4}); d != 4 {
		t.Errorf("difference %v", d)
	}
	if d := difference([]float32{1, 2}, []float32{1}); d == d {
		t.Errorf("difference %v of other lengths", d)
	}
}
