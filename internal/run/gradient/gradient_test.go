package gradient

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/graphtext"
)

// deep is a residual network with tied weights and masks; its last node makes the output y.
func deep(last string) (values, nodes string) {
	values = "x:float[1,5,4] w0:float[4,4]=1 w9:float[4,3]=1 g:float[4]=1,1.2,0.8,1.1 half:float=0.5"
	lines := []string{"s = Shape(x)", "z = ConstantOfShape(s)", "h0 = Add(x, z)"}
	for i := range 4 {
		values += fmt.Sprintf(" wa%d:float[4,8]=1 wb%d:float[8,4]=1", i, i)
		lines = append(lines,
			fmt.Sprintf("n%d = LayerNormalization(h%d, g)", i, i),
			fmt.Sprintf("a%d = MatMul(n%d, wa%d)", i, i, i),
			fmt.Sprintf("r%d = Tanh(a%d)", i, i),
			fmt.Sprintf("b%d = MatMul(r%d, wb%d)", i, i, i),
			fmt.Sprintf("t%d = MatMul(b%d, w0)", i, i),
			fmt.Sprintf("m%d = Mul(t%d, half)", i, i),
			fmt.Sprintf("h%d = Add(h%d, m%d)", i+1, i, i))
	}
	return values, strings.Join(append(lines, "l = MatMul(h4, w9)", last), "\n")
}

func samplesOf(n int) (all []Sample) {
	for i := range n {
		x := make([]float32, 20)
		for k := range x {
			x[k] = float32(math.Sin(float64(3*k + 7*i)))
		}
		t := execute.Made(dtype.Float32, []int64{1, 5, 4}, x)
		t.Name = "x"
		all = append(all, Sample{i, []*execute.Tensor{t}})
	}
	return all
}

// The gradients of each loss agree with finite differences, and do not depend on where the graph is cut.
func TestStages(t *testing.T) {
	for _, test := range []struct {
		last, loss string
	}{
		{"y = Identity(l)", "squared error"},
		{"logits = Identity(l)", "KL divergence"},
		{"y = Softmax(l)", "KL divergence"},
		{"y = LogSoftmax(l)", "KL divergence"},
	} {
		values, nodes := deep(test.last)
		output, _, _ := strings.Cut(test.last, " ")
		samples := samplesOf(3)
		var first *givenWeights
		for _, length := range []int{100, 7, 4, 1} {
			m, w := opened(t, graphtext.Model(t, 17, values, nodes, output), -1, 1)
			for from := 0; from < len(m.nodes); from += length {
				m.stages = append(m.stages, m.stage(from, min(from+length, len(m.nodes))))
			}
			m.finish()
			if first == nil {
				checkGradients(t, m, w, samples)
				first = w
				continue
			}
			if _, err := m.Step(samples, w, true); err != nil {
				t.Fatal(err)
			}
			for i, g := range w.g {
				for k, v := range g {
					if d := v - first.g[i][k]; d > 1e-6 || d < -1e-6 {
						t.Fatalf("%s, stages of %d nodes: gradient %d of tensor %d is %g, want %g", test.last, length, k, i, v, first.g[i][k])
					}
				}
			}
			if m.Loss() != test.loss {
				t.Errorf("%s: %s", test.last, m.Loss())
			}
		}
	}
}

// The outputs of the model itself are kept for each number, and computed again where there is no room for them.
func TestKept(t *testing.T) {
	values, nodes := deep("y = Identity(l)")
	var losses [2]float64
	for i, room := range []int{keptOutputs, 0} {
		m, w := opened(t, graphtext.Model(t, 17, values, nodes, "y"), -1, 1)
		m.room = room
		for range 2 {
			loss, err := m.Step(samplesOf(2), w, false)
			if err != nil {
				t.Fatal(err)
			}
			losses[i] += loss
		}
		if want := 2 - 2*i; len(m.float) != want || losses[i] != losses[0] {
			t.Errorf("room for %d bytes: outputs of %d samples, want %d; losses %v", room, len(m.float), want, losses)
		}
		for _, kept := range m.float {
			for name, y := range kept {
				kept[name] = execute.Made(y.DType, y.Dims, make([]float32, y.Len()))
			}
		}
		if loss, err := m.Step(samplesOf(2), w, false); err != nil || (2*loss != losses[i]) != (room > 0) {
			t.Errorf("room for %d bytes: %v, loss %g with zeros in place of what is kept, %g before", room, err, loss, losses[i]/2)
		}
	}
}

// Layers become stages: what is kept of a sample is small beside all values.
func TestCut(t *testing.T) {
	values, nodes := deep("y = Identity(l)")
	m, w := opened(t, graphtext.Model(t, 17, values, nodes, "y"), -1, 1)
	if _, err := m.Step(samplesOf(1), w, true); err != nil {
		t.Fatal(err)
	}
	if len(m.stages) < 3 {
		t.Errorf("%d stages", len(m.stages))
	}
	for _, g := range m.stages[:len(m.stages)-1] {
		if len(g.exit) > 2 {
			t.Errorf("the stage of nodes %d to %d hands on %q", g.from, g.to, g.exit)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, test := range []struct{ nodes, want string }{
		{"y = Det(w)", "the gradient of operator Det"},
		{"i = ArgMax(w)\ny = Cast<to=1>(i)", "no floating-point output depends on the weights"},
	} {
		proto := graphtext.Model(t, 17, "w:float[3,3]=1", test.nodes, "y")
		path := write(t, proto)
		m, err := Open(t.Context(), path, []string{"w"})
		if err == nil {
			_, err = m.Step([]Sample{{}}, &givenWeights{[][]float32{make([]float32, 9)}, make([][]float32, 1)}, true)
			m.Close()
		}
		if !errors.Is(err, execute.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.nodes, err)
		}
	}
}

// Outputs of a sample may be empty: they add nothing.
func TestEmpty(t *testing.T) {
	for k := range probabilities + 1 {
		if l := difference(k, nil, nil, 0, nil); l != 0 {
			t.Errorf("kind %d: loss %g", k, l)
		}
	}
	proto := graphtext.Model(t, 17, "x:float[1,2] w:float[2,3]=1", "y = MatMul(x, w)", "y")
	proto.Graph.Input[0].Type.GetTensorType().Shape = nil
	m, w := opened(t, proto, -1, 1)
	var samples []Sample
	for i := range int64(2) {
		x := execute.Made(dtype.Float32, []int64{1 - i, 2}, make([]float32, 2*(1-i)))
		x.Name = "x"
		samples = append(samples, Sample{int(i), []*execute.Tensor{x}})
	}
	if _, err := m.Step(samples, w, true); err != nil || w.g[0] == nil {
		t.Errorf("%v, gradient %v", err, w.g[0])
	}
}

// A rule that breaks is a defect, not a model without gradients.
func TestBrokenRule(t *testing.T) {
	before := rules["Neg"]
	defer func() {
		rules["Neg"] = before
		if recover() == nil {
			t.Error("the panic of a rule is hidden")
		}
	}()
	rules["Neg"] = func(*node) error { panic("broken") }
	m, w := opened(t, graphtext.Model(t, 17, "w:float[2]=1", "y = Neg(w)", "y"), -1, 1)
	m.Step([]Sample{{}}, w, true)
}
