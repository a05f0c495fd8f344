package sensitivity_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/rules"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// writeArray writes an array of numbers, and returns their bytes.
func writeArray(t *testing.T, path string, shape ...int) (raw []byte) {
	t.Helper()
	return writeNumbers(t, path, func(i int) float64 { return math.Sin(float64(i * i)) }, shape...)
}

func writeNumbers(t *testing.T, path string, number func(i int) float64, shape ...int) (raw []byte) {
	t.Helper()
	n, text := 1, ""
	for _, d := range shape {
		n, text = n*d, text+fmt.Sprintf("%d, ", d)
	}
	for i := range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(number(i))))
	}
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (" + text + "), }\n"
	if err := os.WriteFile(path, slices.Concat([]byte("\x93NUMPY\x01\x00"), []byte{byte(len(header)), 0}, []byte(header), raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return raw
}

// array writes samples of the model "mlp", and returns its file and the samples.
func array(t *testing.T) (path string, samples []*execute.Tensor) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.npy")
	raw := writeArray(t, path, 3, 64)
	for row := range slices.Chunk(raw, 64*4) {
		samples = append(samples, &execute.Tensor{Name: "x", DType: 1, Dims: []int64{1, 64}, Data: row})
	}
	return path, samples
}

func open(t *testing.T, path, data string) *sensitivity.Sensitivity {
	t.Helper()
	s, err := sensitivity.Open(t.Context(), path, calibrate.Options{Data: []string{data}, Engine: "go"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func precision(t *testing.T, entries ...rules.PrecisionEntry) onnxq.Options {
	t.Helper()
	p, err := rules.NewPrecision(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return onnxq.Options{Precision: p}
}

// The damage is that of a model in which one weight alone is quantized.
func TestOf(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	data, samples := array(t)
	m := modeltest.Open(t, path)
	int4 := spec.Candidate{Format: spec.Int4, Block: 32}.Override()
	found, err := open(t, path, data).Of(t.Context(), m, precision(t, rules.PrecisionEntry{Pattern: "*", Override: int4}), []string{"w0", "w2", "missing"})
	if err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(found[2]) {
		t.Errorf("a weight that is not there: %v", found[2])
	}
	for i, name := range []string{"w0", "w2"} {
		folder := t.TempDir()
		quantized, decoded := filepath.Join(folder, "q.onnx"), filepath.Join(folder, "f.onnx")
		modeltest.Convert(t, path, quantized, precision(t,
			rules.PrecisionEntry{Pattern: "*", Override: spec.Candidate{Format: spec.Float}.Override()}, rules.PrecisionEntry{Pattern: name, Override: int4}))
		if _, err := restyle.Dequantize(t.Context(), quantized, decoded, restyle.Options{}); err != nil {
			t.Fatal(err)
		}
		var noise, power float64
		for _, x := range samples {
			a, err := evaluate.Go.Run(t.Context(), path, []*execute.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			b, err := evaluate.Go.Run(t.Context(), decoded, []*execute.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			y := b[0].Float64s()
			for j, v := range a[0].Float64s() {
				noise, power = noise+(y[j]-v)*(y[j]-v), power+v*v
			}
		}
		if want := noise / power; want == 0 || math.Abs(found[i]-want) > 1e-6*want {
			t.Errorf("%s: %v, want %v", name, found[i], want)
		}
	}
}

// A mix by damage is at least as good as one by errors of weights, and within the size. A weight in
// a Constant node counts as an initializer does; one that no run can replace gets an estimate.
func TestMix(t *testing.T) {
	data, _ := array(t)
	var damages []float64
	for _, where := range []string{"", "Constant", "If"} {
		built, err := testmodels.Build("mlp", 1)
		if err != nil {
			t.Fatal(err)
		}
		switch g := built.Proto.Graph; where {
		case "Constant":
			g.Node = slices.Insert(g.Node, 0, modeltest.ConstantNode("w0", g.Initializer[0]))
			g.Initializer = g.Initializer[1:]
		case "If":
			intoBranches(g)
		}
		path := modeltest.Write(t, built)
		m := modeltest.Open(t, path)
		opts := analyze.Options{MaxSize: 16000, Candidates: []spec.Candidate{{Format: spec.Int4, Block: 32}, {Format: spec.Int8, Block: spec.PerChannel}}}
		byError, err := analyze.Model(t.Context(), m, opts)
		if err != nil {
			t.Fatal(err)
		}
		opts.Damage = open(t, path, data)
		a, err := analyze.Model(t.Context(), m, opts)
		if err != nil {
			t.Fatal(err)
		}
		damage := 0.0 // of the mix by errors
		for i, w := range a.Weights {
			for _, c := range w.Choices {
				if c.Candidate == byError.Weights[i].Recommended {
					damage += *c.Damage
				}
				if c.Estimated != (where == "If" && strings.HasSuffix(w.Name, "w0") && c.Candidate.Format != spec.Float) {
					t.Errorf("%s as %s: estimated: %v", w.Name, c.Candidate, c.Estimated)
				}
			}
		}
		if a.Damage == nil || *a.Damage <= 0 || *a.Damage > damage || a.OutBytes > 16000 {
			t.Errorf("%s; by errors %v", fmt.Sprint(*a.Damage, a.OutBytes), damage)
		}
		damages = append(damages, damage)
	}
	if damages[1] != damages[0] {
		t.Errorf("with a Constant node %v, without %v", damages[1], damages[0])
	}
}

// intoBranches moves the first product of a graph into the branches of an If, with its weight.
func intoBranches(g *onnxpb.GraphProto) {
	product, weight := g.Node[0], g.Initializer[0]
	branch := func(name string) *onnxpb.AttributeProto {
		n := modeltest.Node(product.GetOpType(), name+"_y", strings.Join(product.Input, " "))
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: &onnxpb.GraphProto{
			Name: &name, Node: modeltest.Nodes{n}, Initializer: modeltest.Tensors{weight}, Output: []*onnxpb.ValueInfoProto{{Name: &n.Output[0]}},
		}}
	}
	g.Node[0] = modeltest.Node("If", product.Output[0], "yes", branch("then_branch"), branch("else_branch"))
	g.Initializer[0] = &onnxpb.TensorProto{Name: new("yes"), DataType: new(int32(onnxpb.TensorProto_BOOL)), RawData: []byte{1}}
}

// counting counts what is measured.
type counting struct {
	*sensitivity.Sensitivity
	expected, measured int
}

func (c *counting) Expect(n int) {
	c.expected += n
	c.Sensitivity.Expect(n)
}

func (c *counting) Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error) {
	c.measured += len(weights)
	return c.Sensitivity.Of(ctx, m, opts, weights)
}

// Before the first measurement it is known how many there will be, though not each weight has each
// format.
func TestExpect(t *testing.T) {
	path := modeltest.Build(t, "conv")
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 2, 4, 9, 9)
	c := &counting{Sensitivity: open(t, path, data)}
	opts := analyze.Options{Options: onnxq.Options{Ops: []string{"all"}}, Damage: c}
	if _, err := analyze.Model(t.Context(), modeltest.Open(t, path), opts); err != nil {
		t.Fatal(err)
	}
	if c.expected != c.measured || c.measured == 0 {
		t.Errorf("%d measurements were told, there were %d", c.expected, c.measured)
	}
}

// All weights together do what the converted model does; and what is recommended does no more, of data that
// it was not found by, than the mix with the least error of weights and the formats for all weights.
func TestTogether(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 40, 64)
	m, s := modeltest.Open(t, path), open(t, path, data)
	together := func(p *rules.Precision) float64 {
		t.Helper()
		d, err := s.Together(t.Context(), m, onnxq.Options{Precision: p})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for size := int64(10000); size < 30000; size += 6000 {
		a, err := analyze.Model(t.Context(), m, analyze.Options{Damage: s, MaxSize: size})
		if err != nil {
			t.Fatal(err)
		}
		byError, err := analyze.Model(t.Context(), m, analyze.Options{MaxSize: size, Candidates: a.Candidates})
		if err != nil {
			t.Fatal(err)
		}
		if got, other := together(a.Precision), together(byError.Precision); got > other || a.OutBytes > size {
			t.Errorf("%d bytes: damage %v, by errors of weights %v", a.OutBytes, got, other)
		}
	}

	p := precision(t, rules.PrecisionEntry{Pattern: "*", Override: spec.Candidate{Format: spec.Int8, Block: spec.PerChannel}.Override()})
	quantized := filepath.Join(t.TempDir(), "q.onnx")
	modeltest.Convert(t, path, quantized, p)
	var noise, power float64
	raw := writeArray(t, data, 40, 64)
	for row := range slices.Chunk(raw[len(raw)/40*16:len(raw)/40*32], 64*4) { // behind those that weigh
		x := []*execute.Tensor{{Name: "x", DType: 1, Dims: []int64{1, 64}, Data: row}}
		a, err := evaluate.Go.Run(t.Context(), path, x)
		if err != nil {
			t.Fatal(err)
		}
		b, err := evaluate.Go.Run(t.Context(), quantized, x)
		if err != nil {
			t.Fatal(err)
		}
		y := b[0].Float64s()
		for j, v := range a[0].Float64s() {
			noise, power = noise+(y[j]-v)*(y[j]-v), power+v*v
		}
	}
	if got, want := together(p.Precision), noise/power; math.Abs(got-want) > 1e-3*want {
		t.Errorf("damage %v, want %v", got, want)
	}
}

// Default candidates are those that the algorithm can calibrate.
func TestCalibratedDefaults(t *testing.T) {
	data, _ := array(t)
	damage := open(t, modeltest.Build(t, "mlp"), data)
	q2 := spec.Candidate{Format: "q2_k"}
	for a, want := range map[spec.Algorithm]bool{spec.Best: true, spec.GPTQ: true, spec.AWQ: false} {
		if got := slices.Contains(analyze.Options{Options: onnxq.Options{Algorithm: a}, Damage: damage}.Defaults(), q2); got != want {
			t.Errorf("%s: q2_k %v, want %v", a, got, want)
		}
	}
}

// Without a bound there is a frontier, and no recommendation. Candidates for calibrated codes are
// those that can be calibrated, weighed by mse.
func TestFrontier(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	data, _ := array(t)
	m := modeltest.Open(t, path)
	var analyses []*analyze.Analysis
	for _, a := range []spec.Algorithm{spec.Best, spec.GPTQ, spec.MSE} {
		opts := analyze.Options{Options: onnxq.Options{Algorithm: a}, Damage: open(t, path, data), Candidates: spec.CalibratedCandidates}
		if a != spec.MSE {
			opts.Candidates = nil
		}
		found, err := analyze.Model(t.Context(), m, opts)
		if err != nil {
			t.Fatal(err)
		}
		if found.Precision != nil || len(found.DamageFrontier) < 3 {
			t.Fatalf("%s: %+v", a, found)
		}
		for i, p := range found.DamageFrontier[1:] {
			if before := found.DamageFrontier[i]; p.OutBytes <= before.OutBytes || p.Damage >= before.Damage {
				t.Errorf("%s: %+v after %+v", a, p, before)
			}
		}
		analyses = append(analyses, found)
	}
	for _, other := range analyses[1:] {
		if !slices.Equal(other.DamageFrontier, analyses[0].DamageFrontier) {
			t.Errorf("%+v, not %+v", other.DamageFrontier, analyses[0].DamageFrontier)
		}
	}
}
