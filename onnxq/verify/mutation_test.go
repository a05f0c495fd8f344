package verify_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/written"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// A mutation changes one thing of what a converted model computes.
type mutation struct {
	what  string
	apply func()
	undo  func()
}

// mutations lists single changes of a model: operators, attributes, inputs and constants.
func mutations(m *onnxpb.ModelProto) (list []mutation) {
	initializers := map[string]*onnxpb.TensorProto{}
	var made []string
	graph.WalkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			initializers[t.GetName()] = t
		}
	})
	add := func(what string, apply, undo func()) { list = append(list, mutation{what, apply, undo}) }
	graph.WalkNodes(m, func(n *onnxpb.NodeProto) {
		op, where := n.GetOpType(), graph.Describe(n)
		if other := otherOperator(op); other != op {
			add(where+" -> "+other, func() { n.OpType = &other }, func() { n.OpType = &op })
		}
		for _, a := range n.Attribute {
			if a.GetName() == "accuracy_level" {
				continue // how MatMulNBits computes, not what it multiplies
			}
			old := proto.Clone(a).(*onnxpb.AttributeProto)
			if changeAttribute(a) {
				changed := proto.Clone(a).(*onnxpb.AttributeProto)
				restore := func(to *onnxpb.AttributeProto) func() {
					return func() { proto.Reset(a); proto.Merge(a, to) }
				}
				restore(old)()
				add(where+": attribute "+a.GetName(), restore(changed), restore(old))
			}
		}
		for i, name := range n.Input {
			other := anotherValue(name, initializers, made)
			if other != "" {
				add(fmt.Sprintf("%s: input %d %s -> %s", where, i, name, other), func() { n.Input[i] = other }, func() { n.Input[i] = name })
			}
		}
		if len(n.Input) > 1 && n.Input[0] != n.Input[1] && !slices.Contains([]string{"Add", "Mul", "Max", "Min"}, op) {
			swap := func() { n.Input[0], n.Input[1] = n.Input[1], n.Input[0] }
			add(where+": inputs swapped", swap, swap)
		}
		if op != "If" && op != "Constant" && op != "DequantizeLinear" && len(n.Output) == 1 {
			made = append(made, n.Output[0])
		}
	})
	for name, t := range initializers {
		for kind, change := range map[string]func(v float32) float32{
			"changed": func(v float32) float32 { return v + v/2 + 0.125 },
			"negated": func(v float32) float32 { return -v },
			"zeroed":  func(v float32) float32 { return 0 },
		} {
			if kind == "changed" && strings.Contains(name, "_scale") {
				continue // an error of the weight, which may be small
			}
			if raw := changedContent(t, change, kind); raw != nil {
				old := t.RawData
				add("constant "+name+" "+kind, func() { t.RawData = raw }, func() { t.RawData = old })
			}
		}
	}
	slices.SortStableFunc(list, func(a, b mutation) int { return strings.Compare(a.what, b.what) })
	return list
}

// otherOperator returns an operator that takes the same inputs.
func otherOperator(op string) string {
	for _, list := range []string{
		"Relu Tanh Sigmoid Neg Abs Exp Sqrt Erf Softplus", "Add Sub Mul Div", "ReduceMax ReduceMin ReduceMean ReduceSum ReduceProd",
		"Softmax LogSoftmax", "MaxPool AveragePool", "Flatten Softmax", "Squeeze Unsqueeze", "Transpose Relu", "MatMul Add", "Clip Max", "Dropout Relu",
		"Reshape Expand", "Identity Neg", "GlobalAveragePool GlobalMaxPool", "Cast Shape", "Slice Concat",
	} {
		ops := strings.Fields(list)
		if i := slices.Index(ops, op); i >= 0 {
			return ops[(i+1)%len(ops)]
		}
	}
	return "Identity"
}

// changeAttribute changes the value of an attribute. It reports whether it could.
func changeAttribute(a *onnxpb.AttributeProto) bool {
	switch a.GetType() {
	case onnxpb.AttributeProto_INT:
		a.I = new(1 - a.GetI())
	case onnxpb.AttributeProto_FLOAT:
		a.F = new(a.GetF() + 0.5)
	case onnxpb.AttributeProto_INTS:
		if len(a.Ints) == 0 {
			return false
		}
		a.Ints[0]++
	case onnxpb.AttributeProto_STRING:
		a.S = append(a.S, 'x')
	default:
		return false
	}
	return true
}

// anotherValue returns another value of the same type: a constant, or what a node before made.
func anotherValue(name string, initializers map[string]*onnxpb.TensorProto, made []string) string {
	if t := initializers[name]; t != nil {
		for _, other := range slices.Sorted(maps.Keys(initializers)) {
			o := initializers[other]
			if other != name && o.GetDataType() == t.GetDataType() && slices.Equal(o.Dims, t.Dims) && !bytes.Equal(o.RawData, t.RawData) {
				return other
			}
		}
		return ""
	}
	for _, other := range slices.Backward(made) {
		if other != name {
			return other
		}
	}
	return ""
}

// changedContent returns the content of a tensor with its first element changed. It is nil
// for types other than float32 and int64, and where the content stays the same.
func changedContent(t *onnxpb.TensorProto, change func(float32) float32, kind string) []byte {
	raw := bytes.Clone(t.RawData)
	switch typ := dtype.DType(t.GetDataType()); {
	case typ == dtype.Float32 && len(raw) >= 4:
		v := change(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		binary.LittleEndian.PutUint32(raw, math.Float32bits(v))
	case typ == dtype.Int64 && len(raw) >= 8 && kind == "changed":
		binary.LittleEndian.PutUint64(raw, binary.LittleEndian.Uint64(raw)+1)
	}
	if bytes.Equal(raw, t.RawData) {
		return nil
	}
	return raw
}

// raisedModels are models of old opsets, whose operators are rewritten for a higher one.
func raisedModels() map[string]*testmodels.Model {
	ints := modeltest.IntsAttr
	at := func(opset int64, tensors modeltest.Tensors, nodes ...*onnxpb.NodeProto) *testmodels.Model {
		m := modeltest.Model(append(tensors, weight("w", 64, 32), weight("b", 32)), append(modeltest.Nodes{
			modeltest.Node("MatMul", "m", "x w"), modeltest.Node("Add", "a", "m b"),
		}, nodes...))
		m.Proto.OpsetImport[0].Version = &opset
		return m
	}
	function := modeltest.Function("f", "v", "o", modeltest.ConstantNode("c", weight("c", 32, 32)), modeltest.Node("MatMul", "p", "v c"),
		modeltest.Node("ReduceMax", "q", "p", ints("axes", 1)), modeltest.Node("Sub", "o", "p q"))
	inFunction := at(17, nil, modeltest.Node("local.f", "y", "a"))
	inFunction.Proto.Functions = []*onnxpb.FunctionProto{function}
	return map[string]*testmodels.Model{
		"function": inFunction,
		"reduce": at(13, nil, modeltest.Node("ReduceMax", "r", "a", ints("axes", 1)), modeltest.Node("Sub", "s", "a r"),
			modeltest.Node("ReduceMean", "n", "s", ints("axes", -1)), modeltest.Node("Div", "y", "s n")),
		"softmax": at(11, nil, modeltest.Node("Softmax", "s", "a", modeltest.IntAttr("axis", 1)), modeltest.Node("Mul", "y", "s a")),
		"squeeze": at(12, nil, modeltest.Node("Unsqueeze", "u", "a", ints("axes", 0)), modeltest.Node("Tanh", "t", "u"),
			modeltest.Node("Squeeze", "s", "t", ints("axes", 0)), modeltest.Node("ReduceSum", "y", "s", ints("axes", 1), modeltest.IntAttr("keepdims", 0))),
		"clip": at(10, nil, modeltest.Node("Clip", "c", "a", floatAttr("min", -1), floatAttr("max", 2)),
			modeltest.Node("Pad", "y", "c", ints("pads", 0, 1, 0, 1), floatAttr("value", 0.5))),
		"slice": at(9, nil, modeltest.Node("Slice", "s", "a", ints("axes", 1), ints("starts", 0), ints("ends", 8)),
			modeltest.Node("Dropout", "d", "s", floatAttr("ratio", 0.25)), modeltest.Node("Relu", "y", "d")),
		"branches": at(13, modeltest.Tensors{{Name: new("c"), DataType: new(int32(dtype.Bool)), RawData: []byte{1}}},
			modeltest.Node("If", "y", "c",
				modeltest.GraphAttr("then_branch", nil, modeltest.Node("ReduceMax", "t", "a", ints("axes", 1))),
				modeltest.GraphAttr("else_branch", nil, modeltest.Node("ReduceMean", "e", "m", ints("axes", 1))))),
	}
}

// weight makes a tensor of different numbers.
func weight(name string, shape ...int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Float32)), Dims: shape}
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	for i := range n {
		t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(float32(math.Sin(float64(i*i+1)))))
	}
	return t
}

func floatAttr(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}

// Whatever single thing is changed in a converted model, verify reports it without running
// the models. What is missed are small changes of scales, which are errors of weights.
func TestMutations(t *testing.T) {
	models := raisedModels()
	for _, kind := range []string{"mlp", "gemm", "conv", "opset11"} {
		m, err := testmodels.Build(kind, 1)
		if err != nil {
			t.Fatal(err)
		}
		models[kind] = m
	}
	settings := []onnxq.Options{{Block: 32}, {Bits: 2, Block: 16, ZeroPoint: true}, {Block: 32, Style: spec.NBits}, {Format: spec.NVFP4}, {Bits: 8, Block: spec.PerChannel}}
	var tried, missed atomic.Int64
	t.Run("models", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(models)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of the time is spent waiting for the disk
				in := modeltest.Write(t, models[name])
				for k := range 2 {
					opts := settings[(i+k)%len(settings)]
					opts.Ops = reach.KnownOps
					n, found := mutate(t, in, opts)
					tried.Add(n)
					missed.Add(n - found)
				}
			})
		}
	})
	t.Logf("%d mutations, %d not found", tried.Load(), missed.Load())
	if tried.Load() < 500 || missed.Load()*100 > tried.Load() {
		t.Errorf("%d of %d mutations were not found", missed.Load(), tried.Load())
	}
}

// Two weights that change places, and lower versions, are found too.
func TestExchangedWeights(t *testing.T) {
	positive := func(name string, by float32) *onnxpb.TensorProto {
		w := modeltest.Floats(name, 32, 32)
		for i := range w.FloatData {
			w.FloatData[i] = 1 + by*w.FloatData[i]
		}
		return w
	}
	in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{positive("v", 0.01), positive("w", 0.02)},
		modeltest.Nodes{modeltest.Node("MatMul", "h", "x v"), modeltest.Node("MatMul", "y", "h w")}))
	out := filepath.Join(t.TempDir(), "out.onnx")
	for what, change := range map[string]func(m *onnxpb.ModelProto){
		"": func(m *onnxpb.ModelProto) {},
		`"w" is in the place of "v"`: func(m *onnxpb.ModelProto) {
			a, b := m.Graph.Node[2], m.Graph.Node[3]
			a.Input[1], b.Input[1] = b.Input[1], a.Input[1]
		},
		`"w" is in the place of both "v" and "w"`: func(m *onnxpb.ModelProto) { m.Graph.Node[2].Input[1] = m.Graph.Node[3].Input[1] },
		"IR version 8 -> 7":                       func(m *onnxpb.ModelProto) { m.IrVersion = new(int64(7)) },
		"opset 17 -> 16":                          func(m *onnxpb.ModelProto) { m.OpsetImport[0].Version = new(int64(16)) },
	} {
		m := &onnxpb.ModelProto{}
		if err := proto.Unmarshal(modeltest.Convert(t, in, out, onnxq.Options{Bits: 8, Block: spec.PerChannel}), m); err != nil {
			t.Fatal(err)
		}
		change(m)
		changed := modeltest.Write(t, &testmodels.Model{Proto: m})
		r, err := verify.Models(t.Context(), in, changed, verify.Options{Engine: verify.None})
		if err != nil {
			t.Fatal(err)
		}
		if r.Passed != (what == "") || what != "" && !slices.Contains(r.Failures, what) {
			t.Errorf("%q, want %s", r.Failures, what)
		}
	}
}

// Scales of another weight are found: the error that they make looks like that of rounding to few
// bits. It is so for weights of few values, too, whose elements are the nearest ones with any scale.
func TestForeignScales(t *testing.T) {
	columns := func(name string, element func(x float64) float64, factors ...float64) *onnxpb.TensorProto {
		w := modeltest.Floats(name, 64, 64)
		for i := range w.FloatData {
			w.FloatData[i] = float32(element(math.Sin(float64(i*i+1))) * factors[i%64%len(factors)])
		}
		return w
	}
	for kind, element := range map[string]func(x float64) float64{
		"sine":    func(x float64) float64 { return x },
		"ternary": func(x float64) float64 { return math.Round(x) },
		"tails":   func(x float64) float64 { return x * x * x },
	} {
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{columns("v", element, 1, 1.5), columns("w", element, 1.4, 1, 1.2)},
			modeltest.Nodes{modeltest.Node("MatMul", "h", "x v"), modeltest.Node("MatMul", "y", "h w")}))
		for _, opts := range []onnxq.Options{
			{Bits: 8, Block: spec.PerChannel}, {Bits: 4, Block: spec.PerChannel}, {Bits: 4, Block: 16}, {Bits: 4, Block: 16, ZeroPoint: true},
			{Format: spec.FP4, Block: 16}, {Format: spec.NF4, Block: 32}, {Format: spec.FP4, Block: spec.PerChannel},
		} {
			m := &onnxpb.ModelProto{}
			if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), opts), m); err != nil {
				t.Fatal(err)
			}
			for _, swapped := range []bool{false, true} {
				if swapped {
					scales := map[string]*onnxpb.TensorProto{}
					for _, t := range m.Graph.Initializer {
						scales[t.GetName()] = t
					}
					v, w := scales["v_scale"], scales["w_scale"]
					v.RawData, w.RawData = w.RawData, v.RawData
				}
				r, err := verify.Models(t.Context(), in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
				if err != nil {
					t.Fatal(err)
				}
				if said := strings.Contains(fmt.Sprint(r.Failures), "do not fit its codes"); said != swapped {
					t.Errorf("%s, %s, %d bits, blocks of %d, swapped %t: %q", kind, opts.Format, opts.Bits, opts.Block, swapped, r.Failures)
				}
			}
		}
	}
}

// Codes that are the nearest with their scales pass, however far these are from the best ones: fp4 has nothing
// between 2/3 and 1, and the mins of q4_1 and q2_k take 0 from what is left of a weight.
func TestSoundRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for what, c := range map[string]struct {
		formats []spec.Format
		element func(i int) float64
	}{
		"ramp":   {[]spec.Format{spec.FP4, spec.NF4}, func(i int) float64 { return float64(i)/(1<<15) - 1 }},
		"two":    {[]spec.Format{spec.FP4, spec.NVFP4}, func(i int) float64 { return float64(1-2*r.IntN(2)) + 0.05*r.NormFloat64() }},
		"sparse": {[]spec.Format{"q4_1", "q2_k"}, func(i int) float64 { return r.NormFloat64() * float64(max(r.IntN(10)-8, 0)) }},
		"spikes": {[]spec.Format{"q4_1", "q2_k"}, func(i int) float64 { // two of a superblock, which get its other blocks coarse scales
			if i%64 == 0 && i/64%256 < 2 {
				return float64(1 - 2*(i/64%2))
			}
			return 0.01 * r.NormFloat64()
		}},
		"tails": {[]spec.Format{spec.FP4, "q2_k"}, func(i int) float64 { return r.NormFloat64() / math.Sqrt(r.ExpFloat64()) }},
	} {
		w := modeltest.Floats("w", 1024, 64)
		for i := range w.FloatData {
			w.FloatData[i] = float32(c.element(i))
		}
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
		for _, f := range c.formats {
			for _, a := range []spec.Algorithm{spec.RTN, spec.MSE} {
				o := quantized(t, in, "", onnxq.Options{Format: f, Algorithm: a})
				if !o.passes(t) {
					t.Errorf("%s: %s by %s does not pass", what, f, a)
				}
				if i := slices.IndexFunc(o.model.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == "w_scale" }); f == "q2_k" && what != "spikes" {
					scales := o.model.Graph.Initializer[i].RawData
					if scales[1] ^= 0x80; o.passes(t) { // float16
						t.Errorf("%s: %s by %s passes with a negated scale", what, f, a)
					}
					if scales[0], scales[1] = 0, 0; o.passes(t) {
						t.Errorf("%s: %s by %s passes with a scale of zero", what, f, a)
					}
				}
			}
		}
	}
}

// A number of a normalization that is another by a factor is no factor of the weights behind it.
func TestForeignFactors(t *testing.T) {
	in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{weight("g", 32), weight("w", 32, 64), weight("v", 48, 32)}, modeltest.Nodes{
		modeltest.Node("LayerNormalization", "n", "x g"), modeltest.Node("MatMul", "y", "n w"), modeltest.Node("Gemm", "z", "n v", modeltest.IntAttr("transB", 1)),
	}))
	step := &spec.Step{Tool: "onnxquant", Command: "convert", Options: "--bits 4"} // without data, so without factors
	for _, factor := range []float32{1, 0.5, 0.75, 1.03125, 1.25, 2} {
		for _, opts := range []onnxq.Options{{Bits: 4, Block: 16}, {Bits: 8, Block: spec.PerChannel}, {Bits: 4, Block: 16, Provenance: step}} {
			if factor == 1.03125 && opts.Provenance == nil {
				continue // less than codes change a channel
			}
			m := &onnxpb.ModelProto{}
			if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), opts), m); err != nil {
				t.Fatal(err)
			}
			written.Remove(m)
			for _, g := range m.Graph.Initializer {
				if g.GetName() == "g" {
					was := math.Float32frombits(binary.LittleEndian.Uint32(g.RawData[4*7:]))
					binary.LittleEndian.PutUint32(g.RawData[4*7:], math.Float32bits(was/factor))
				}
			}
			r, err := verify.Models(t.Context(), in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
			if err != nil {
				t.Fatal(err)
			}
			want := "channel 7 is not scaled to match"
			if opts.Provenance != nil {
				want = `"g": it is not quantized, but its values differ`
			}
			if said := strings.Contains(fmt.Sprint(r.Failures), want); said != (factor != 1) {
				t.Errorf("%d bits, factor %g: %q", opts.Bits, factor, r.Failures)
			}
		}
	}
}

// The floats that a model quantizes itself, and those that it stores in half, are those of the float
// model: one that is off by its last bit is found.
func TestStoredFloats(t *testing.T) {
	in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{weight("w", 64, 32)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
	qdq := filepath.Join(t.TempDir(), "qdq.onnx")
	modeltest.Convert(t, in, qdq, onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ})
	for _, c := range []struct {
		in      string
		opts    onnxq.Options
		rounded int
		want    string
	}{
		{in, onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ}, 0, "the float values before quantization differ"},
		{in, onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ, FloatType: spec.Float16}, 0, "the float values before quantization differ"},
		{qdq, onnxq.Options{FloatType: spec.BFloat16, Format: spec.Float}, 0, "the float values before quantization differ"},
		{in, onnxq.Options{FloatType: spec.Float16, Format: spec.Float}, 1, "it is not quantized, but its values differ"},
		{in, onnxq.Options{FloatType: spec.BFloat16, Format: spec.Float}, 1, "it is not quantized, but its values differ"},
	} {
		m := &onnxpb.ModelProto{}
		if err := proto.Unmarshal(modeltest.Convert(t, c.in, filepath.Join(t.TempDir(), "out.onnx"), c.opts), m); err != nil {
			t.Fatal(err)
		}
		verified := func() *verify.Report {
			r, err := verify.Models(t.Context(), c.in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := verified(); !r.Passed || r.Rounded != c.rounded {
			t.Errorf("%+v: %d are rounded, %q", c.opts, r.Rounded, r.Failures)
		}
		for _, w := range m.Graph.Initializer {
			if w.GetName() == "w" {
				w.RawData[0] ^= 1
			}
		}
		if r := verified(); !strings.Contains(fmt.Sprint(r.Failures), c.want) {
			t.Errorf("%+v: %q, want %q", c.opts, r.Failures, c.want)
		}
	}
}

// mutate converts a model and counts its mutations, and those that verify reports.
func mutate(t *testing.T, in string, opts onnxq.Options) (tried, found int64) {
	folder := t.TempDir()
	out, changed := filepath.Join(folder, "out.onnx"), filepath.Join(folder, "changed.onnx")
	raw := modeltest.Convert(t, in, out, opts)
	passed := func(out string) bool {
		r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.None})
		return err == nil && r.Passed
	}
	if !passed(out) {
		t.Fatalf("%+v: it does not pass", opts)
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	for _, mutation := range mutations(m) {
		mutation.apply()
		err := (&testmodels.Model{Proto: m}).Write(changed)
		mutation.undo()
		if err != nil {
			t.Fatal(err)
		}
		tried++
		if !passed(changed) {
			found++
		} else {
			t.Logf("format %q, %d bits, style %q: not found: %s", opts.Format, opts.Bits, opts.Style, mutation.what)
		}
	}
	return tried, found
}

// The default limits pass what onnxquant writes, and find codes that stand for something else.
func TestDefaultLimits(t *testing.T) {
	small, ones, outlier := modeltest.Floats("w", 512, 64), modeltest.Floats("w", 64, 32), weight("w", 64, 32)
	binary.LittleEndian.PutUint32(outlier.RawData, math.Float32bits(1000))
	for i := range small.FloatData {
		small.FloatData[i] = float32(math.Sin(float64(i*i + 1)))
		switch row := i / 64; {
		case row == 0:
			small.FloatData[i] = -20
		case row/32 == 3:
			small.FloatData[i] /= 50
		}
	}
	for i := range ones.FloatData {
		ones.FloatData[i] = 0.88 + float32(i%3)/100
	}
	unsigned := func(m *onnxpb.ModelProto) {
		q := m.Graph.Node[0]
		q.Attribute = slices.DeleteFunc(q.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetName() == "output_dtype" })
	}
	level := func(m *onnxpb.ModelProto) {
		for _, table := range m.Graph.Initializer {
			if slices.Equal(table.Dims, []int64{16}) {
				binary.LittleEndian.PutUint32(table.RawData, math.Float32bits(-1.25))
			}
		}
	}
	stored := func(m *onnxpb.ModelProto, part string) *onnxpb.TensorProto {
		i := slices.IndexFunc(m.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return strings.HasPrefix(t.GetName(), "w_"+part) })
		return m.Graph.Initializer[i]
	}
	other := func(m *onnxpb.ModelProto) {
		codes := stored(m, "i8").RawData
		codes[5] = byte(-int8(codes[5]))
	}
	halved := func(m *onnxpb.ModelProto) {
		raw := stored(m, "scale").RawData
		for i := 0; i < len(raw); i += 4 {
			binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))/2))
		}
	}
	for _, c := range []struct {
		what   string
		w      *onnxpb.TensorProto
		opts   onnxq.Options
		change func(m *onnxpb.ModelProto)
		want   string // in the only failure
	}{
		{"a block of small elements in a superblock", small, onnxq.Options{Format: "q5_k"}, nil, ""},
		{"elements that powers of two fit badly", ones, onnxq.Options{Format: spec.MXFP4}, nil, ""},
		{"an intact table", weight("w", 64, 32), onnxq.Options{Format: spec.NF4}, nil, ""},
		{"a changed table", weight("w", 64, 32), onnxq.Options{Format: spec.NF4}, level, "its table equals that of nf4 except for 1 values"},
		{"codes without a sign", weight("w", 64, 32), onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ}, unsigned, "is below 15 dB"},
		{"another code", weight("w", 64, 32), onnxq.Options{Bits: 8, Block: spec.PerChannel}, other, "the code of an element is not its own"},
		{"scales by half", weight("w", 64, 32), onnxq.Options{Bits: 4, Block: 32, Style: spec.QDQ}, halved, "its scales are too small"},
		{"an element much larger than all others", outlier, onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ}, nil, ""},
		{"the same, and codes without a sign", outlier, onnxq.Options{Bits: 8, Block: 32, Style: spec.QDQ}, unsigned, "no decoded element is negative"},
	} {
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{c.w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
		m := &onnxpb.ModelProto{}
		if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), c.opts), m); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(m)
		}
		r, err := verify.Models(t.Context(), in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Failures, "; "); r.Passed != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Activations that the first model has as codes, too, keep their scales.
func TestOtherScalesOfActivations(t *testing.T) {
	scalar := func(name string, x float32) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Float32)), FloatData: []float32{x}}
	}
	codes := modeltest.Zeros("w", dtype.Int8, 32, 32)
	for i := range codes.RawData {
		codes.RawData[i] = byte(7 * i)
	}
	write := func(xScale, yScale float32) string {
		return modeltest.Write(t, modeltest.Model(
			modeltest.Tensors{scalar("sx", xScale), scalar("sw", 0.1), scalar("sy", yScale), modeltest.Zeros("z", dtype.Int8), codes},
			modeltest.Nodes{
				modeltest.Node("QuantizeLinear", "xq", "x sx z"),
				modeltest.Node("QLinearMatMul", "yq", "xq sx z w sw z sy z"),
				modeltest.Node("DequantizeLinear", "y", "yq sy z"),
			}))
	}
	in := write(0.5, 2)
	for _, c := range []struct {
		out  string
		want string
	}{
		{write(0.5, 2), ""},
		{write(0.6, 2), `the codes of "x" have the scale 0.6, had 0.5`},
		{write(0.5, 3), `the codes of "y" have the scale 3, had 2`},
	} {
		r, err := verify.Models(t.Context(), in, c.out, verify.Options{Engine: verify.None})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Failures, "; "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
