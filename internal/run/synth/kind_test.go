package synth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/modeltest"
)

// info describes an input or output: a number is a fixed axis, a name a free one.
func info(name string, typ dtype.DType, axes ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, a := range axes {
		d := &onnxpb.TensorShapeProto_Dimension{}
		switch a := a.(type) {
		case int:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(a)}
		case string:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: a}
		}
		shape.Dim = append(shape.Dim, d)
	}
	t := int32(typ)
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: &t, Shape: shape}}}}
}

func model(t *testing.T, inputs, outputs []*onnxpb.ValueInfoProto, stored modeltest.Tensors, nodes ...*onnxpb.NodeProto) *modelfile.Model {
	t.Helper()
	m := modeltest.Model(stored, nodes)
	m.Proto.Graph.Input, m.Proto.Graph.Output = inputs, outputs
	file, err := modelfile.Open(modeltest.Write(t, m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func scalar(name string, v float32) *onnxpb.TensorProto {
	w := modeltest.Floats(name, 1)
	w.FloatData = []float32{v}
	return w
}

// What an input is follows from its type, its shape, its name, and from what the graph does with it.
func TestKinds(t *testing.T) {
	in := func(list ...*onnxpb.ValueInfoProto) []*onnxpb.ValueInfoProto { return list }
	conv := modeltest.Tensors{modeltest.Floats("k", 8, 3, 3, 3)}
	for _, c := range []struct {
		inputs, outputs []*onnxpb.ValueInfoProto
		stored          modeltest.Tensors
		nodes           []*onnxpb.NodeProto
		want            string // shapes and what is made
	}{
		{in(info("x", dtype.Float32, "n", 3, "h", "w")), in(info("y", dtype.Float32, "n", 10)), conv,
			[]*onnxpb.NodeProto{modeltest.Node("Conv", "y", "x k")}, "[1 3 224 224] image of shapes, -1 to 1"},
		{in(info("x", dtype.Float32, "n", "channels", "h", "w")), in(info("y", dtype.Float32, "n", 10)), conv,
			[]*onnxpb.NodeProto{modeltest.Node("Conv", "y", "x k")}, "[1 3 224 224] image of shapes, -1 to 1"},
		{in(info("x", dtype.Uint8, 1, 64, 64, 3)), in(info("y", dtype.Float32, "n", 10)), nil, nil, "[1 64 64 3] image of shapes, 0 to 255"},
		{in(info("x", dtype.Float32, "n", 3, 48, "w")), in(info("y", dtype.Float32, "n", "t", 97)), conv,
			[]*onnxpb.NodeProto{modeltest.Node("Conv", "y", "x k")}, "[1 3 48 320] image of a line of text, -1 to 1"},
		{in(info("x", dtype.Float32, "n", 1, 28, 28)), in(info("y", dtype.Float32, "n", 10)), nil, nil, "[1 1 28 28] image of a character, 0 to 1"},
		{in(info("input", dtype.Float32, "b", "s"), info("sr", dtype.Int64), info("state", dtype.Float32, 2, "b", 16)),
			in(info("p", dtype.Float32, "b", 1), info("stateN", dtype.Float32, 2, "b", 16)),
			modeltest.Tensors{modeltest.Floats("k", 32, 1, 64)},
			[]*onnxpb.NodeProto{modeltest.Node("Unsqueeze", "u", "input"), modeltest.Node("Conv", "p", "u k")},
			"[1 576] sound, [] 16000, [2 1 16] state: zeros, then what the model returned"},
		{in(info("frame", dtype.Float32, 1, 1, 257)), in(info("y", dtype.Float32, 1, 1, 257)), nil, nil, "[1 1 257] magnitudes of a spectrum of sound"},
		{in(info("mel", dtype.Float32, "n", 80, "t")), in(info("y", dtype.Float32, "n", "t", 30)), nil, nil, "[1 80 200] mel features of sound"},
		{in(info("ids", dtype.Int64, "b", "t"), info("attention_mask", dtype.Int64, "b", "t"), info("lengths", dtype.Int64, "b")),
			in(info("y", dtype.Float32, "b", "t", 8)), modeltest.Tensors{modeltest.Floats("table", 500, 8)},
			[]*onnxpb.NodeProto{modeltest.Node("Gather", "y", "table ids")}, "[2 64] ids below 500, [2 64] ones, [2] length"},
		{in(info("bytes", dtype.Float32, "n", 40)), in(info("y", dtype.Float32, "n", 4)), modeltest.Tensors{modeltest.Floats("table", 257, 8)},
			[]*onnxpb.NodeProto{modeltest.Node("Cast", "c", "bytes"), modeltest.Node("Gather", "y", "table c")}, "[2 40] ids below 257"},
		{in(info("obs", dtype.Float32, 1, 6)), in(info("y", dtype.Float32, 1, 4)), modeltest.Tensors{modeltest.Floats("m", 6), modeltest.Floats("s", 6)},
			[]*onnxpb.NodeProto{modeltest.Node("Sub", "a", "obs m"), modeltest.Node("Div", "b", "a s"), modeltest.Node("Relu", "y", "b")},
			"[1 6] normal distribution, with the mean and deviation that the model divides out"},
	} {
		plans, err := Plans(model(t, c.inputs, c.outputs, c.stored, c.nodes...), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		list, err := plans[0].Sample(0)
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		var got []string
		for i, made := range plans[0].Made() {
			got = append(got, fmt.Sprint(list[i].Dims, " ", made))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s, want %s", text, c.want)
		}
	}
}

// The range of an image is the one that the model's own arithmetic takes it from.
func TestRangeOfImages(t *testing.T) {
	for op, want := range map[string]float64{"Mul 0.0039": 255, "Div 255": 255, "Sub 127.5": 255, "Sub 0.48": 1, "Mul 2": 1} {
		name, number, _ := strings.Cut(op, " ")
		var v float32
		fmt.Sscan(number, &v)
		m := model(t, []*onnxpb.ValueInfoProto{info("x", dtype.Float32, 1, 3, 32, 32)}, []*onnxpb.ValueInfoProto{info("y", dtype.Float32, 1, 4)},
			modeltest.Tensors{modeltest.Floats("k", 8, 3, 3, 3), scalar("c", v)}, modeltest.Node(name, "a", "x c"), modeltest.Node("Conv", "y", "a k"))
		list, err := Inputs(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if x := list[0].Float64s(); slices.Max(x) > want || slices.Max(x) < 0.6*want {
			t.Errorf("%s: up to %g, want %g", op, slices.Max(x), want)
		}
	}
}

// A voice has pauses, and what follows a state is what the model returned.
func TestSoundInRuns(t *testing.T) {
	m := model(t, []*onnxpb.ValueInfoProto{info("audio", dtype.Float32, 1, 8000), info("state", dtype.Float32, 1, 2)},
		[]*onnxpb.ValueInfoProto{info("y", dtype.Float32, 1, 3), info("next", dtype.Float32, 1, 2)}, nil)
	plans, err := Plans(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var power []float64
	for i := range 5 {
		list, err := plans[0].Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, v := range list[0].Float64s()[4000:7000] {
			sum += v * v
		}
		power = append(power, sum)
		state, _ := execute.FromFloat64s(dtype.Float32, []int64{1, 2}, []float64{3, 4})
		answer, _ := execute.FromFloat64s(dtype.Float32, []int64{1, 3}, []float64{1, 1, 1})
		plans[0].Carry(list, []*execute.Tensor{answer, state})
		if got := list[1].Float64s(); !slices.Equal(got, []float64{3, 4}) {
			t.Errorf("the state is %v", got)
		}
		if n := plans[0].Samples([]*execute.Tensor{answer, state}); n != wantedRows {
			t.Errorf("%d samples", n)
		}
	}
	if loud, quiet := slices.Max(power), slices.Min(power); loud < 100*quiet || loud < 2 {
		t.Errorf("powers %v: want a voice and pauses", power)
	}
}
