package equalize_test

import (
	"testing"

	"onnxquant/internal/balance"
	"onnxquant/internal/equalize"
	"onnxquant/internal/graph"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
)

// A channel with outliers gets a factor that makes it as the others are; channels that are alike get none, nor do
// activations without codes.
func TestChoose(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 13, "x:float[2,4] k:float[4,4]=1,-0.5,0.25,-0.75,0.7 m:float[4,4]=0.5,-1,0.9,0.3,-0.7", "a = MatMul(x, k)\nr = Relu(a)\ny = MatMul(r, m)", "y"))
	regions := balance.Regions(x)
	if len(regions) != 1 {
		t.Fatal(len(regions))
	}
	for _, c := range []struct {
		name    string
		highest float32
		steps   float64
		some    bool
	}{{"outlier", 64, 255, true}, {"alike", 1, 255, false}, {"no codes", 64, 0, false}} {
		var acts []equalize.Activation
		for i, v := range regions[0].Values {
			a := equalize.Activation{Value: v.Value, Low: make([]float32, 4), High: []float32{1, c.highest, 1, 1}, Square: []float64{0.2, 0.2 * float64(c.highest*c.highest), 0.2, 0.2}}
			if i > 0 {
				a.Steps = c.steps
			}
			acts = append(acts, a)
		}
		weight := equalize.Weight{Steps: 127, Run: 1, Count: 4}
		got, err := equalize.Choose(t.Context(), equalize.Model{Graph: x, Weight: func(*graph.Value) equalize.Weight { return weight }}, regions[0], acts)
		if err != nil {
			t.Fatal(err)
		}
		if (got.Exponents != nil) != c.some {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.some && (got.Exponents[1] < got.Exponents[0]+2*balance.PerOctave || got.Left > 0.5) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
