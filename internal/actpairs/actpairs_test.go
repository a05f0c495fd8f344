package actpairs_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/rules"
)

// ranges parses texts like "x=-1,2 h=0,3". A third number is the typical magnitude.
func ranges(t *testing.T, text string) *rules.Ranges {
	t.Helper()
	var entries []string
	for field := range strings.FieldsSeq(text) {
		name, numbers, _ := strings.Cut(field, "=")
		n := strings.Split(numbers, ",")
		entry := fmt.Sprintf(`%q: {"min": %s, "max": %s`, name, n[0], n[1])
		if len(n) > 2 {
			entry += `, "typical": ` + n[2]
		}
		entries = append(entries, entry+"}")
	}
	r, err := rules.ParseRanges([]byte(`{"version": 1, "tensors": {` + strings.Join(entries, ", ") + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// options returns the options of the tests: uint8 activations, symmetric int8 weights, all nodes.
func options(r *rules.Ranges) actpairs.Options {
	return actpairs.Options{
		Ranges: r, Activations: actpairs.Codes{Type: dtype.Uint8}, Weights: actpairs.Codes{Type: dtype.Int8, Symmetric: true},
		Selects: func(*onnxpb.NodeProto) bool { return true }, Keeps: func(*graph.Value) bool { return false },
	}
}

// describe lists what a plan quantizes.
func describe(p *actpairs.Plan) string {
	var all []string
	for _, t := range p.Tensors {
		text := t.Value.Name
		if t.Stored != nil {
			text += " " + strings.ToLower(t.Codes.Type.String())
			if t.Axis >= 0 {
				text += fmt.Sprint(" axis ", t.Axis)
			}
		}
		if t.Like != nil {
			text += " like " + t.Like.Value.Name
		}
		if t.Made != t.Value {
			text += " from " + t.Made.Name
		}
		all = append(all, text)
	}
	for _, b := range p.Biases {
		text := "bias " + b.Value.Name
		if b.Channels() {
			text += " by channel"
		}
		all = append(all, text)
	}
	for _, n := range p.Removed {
		all = append(all, "no "+n.GetOpType()+" "+n.Output[0])
	}
	for _, v := range p.Coarse {
		all = append(all, "coarse "+v.Name)
	}
	return strings.Join(all, ", ")
}

// find makes a plan for a graph with the output y. change changes the options, or is nil.
func find(t *testing.T, opset int64, known, values, nodes string, change func(*actpairs.Options)) *actpairs.Plan {
	t.Helper()
	o := options(ranges(t, known))
	if change != nil {
		change(&o)
	}
	p, err := actpairs.Find(modeltest.Graph(t, graphtext.Model(t, opset, values, nodes, "y")), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Pairs are placed as ONNX Runtime's quantize_static, or the placement of a target, places them.
func TestFind(t *testing.T) {
	const (
		some = "x=-1,1 h=-1,1 k=-1,1 y=-1,1" // ranges of all that computes
		w    = " w:float[4,4]=1,-2,3"
		conv = " w:float[4,2,3,3]=1,-2,3 b:float[4]=1"
	)
	for _, c := range []struct {
		name, ranges, values, nodes, want string
		change                            func(o *actpairs.Options)
	}{
		{"MatMul", some, "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, w int8, y", nil},
		{"stored factor in front", some, "x:float[4,2]" + w, `y = MatMul(w, x)`, "w int8, x, y", nil},
		{"MatMul by channel", some, "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, w int8 axis 1, y", perChannel},
		{"stack of matrices by channel", some, "x:float[2,3,4] w:float[2,4,4]=1", `y = MatMul(x, w)`, "x, w int8, y", perChannel},
		{"MatMul, channels of convolutions only", some, "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, w int8, y", func(o *actpairs.Options) {
			perChannel(o)
			o.Placement.ConvChannels = true
		}},
		{"Gemm", some, "x:float[2,4] b:float[4]=1" + w, `y = Gemm(x, w, b)`, "x, y, w int8, bias b", nil},
		{"Gemm by channel", some, "x:float[2,4] b:float[4]=1" + w, `y = Gemm(x, w, b)`, "x, y, w int8 axis 1, bias b by channel", perChannel},
		{"transposed Gemm by channel", some, "x:float[2,4] b:float[4]=1" + w, `y = Gemm<transB=1>(x, w, b)`, "x, y, w int8 axis 0, bias b by channel", perChannel},
		{"Gemm with beta", some, "x:float[2,4] b:float[4]=1" + w, `y = Gemm<beta=0.5>(x, w, b)`, "x, y, w int8", nil},
		{"bias of another length", some, "x:float[2,4] b:float[1]=1" + w, `y = Gemm(x, w, b)`, "x, y, w int8 axis 1", perChannel},
		{"one bias for all channels", some, "x:float[2,4] b:float[1]=1" + w, `y = Gemm(x, w, b)`, "x, y, w int8, bias b", nil},
		{"Gemm, biases in float", some, "x:float[2,4] b:float[4]=1" + w, `y = Gemm(x, w, b)`, "x, y, w int8", func(o *actpairs.Options) { o.Placement.FloatBias = true }},
		{"bias that moves", some, "x:float[2,4] b:float[4]=1" + w, `
			h = Gemm(x, w, b)
			k = Transpose(b)
			y = Sqrt(k)`, "x, h, w int8, k, bias b", nil},
		{"bias in float that moves", some, "x:float[2,4] b:float[4]=1" + w, `
			h = Gemm(x, w, b)
			k = Transpose(b)
			y = Sqrt(k)`, "x, h, w int8", func(o *actpairs.Options) { o.Placement.FloatBias = true }},
		{"computed bias", some + " b=0,1", "x:float[2,4] b:float[4]" + w, `y = Gemm(x, w, b)`, "x, y, w int8", nil},
		{"Conv", some, "x:float[1,2,8,8]" + conv, `y = Conv(x, w, b)`, "x, y, w int8, bias b", nil},
		{"Conv by channel", some, "x:float[1,2,8,8]" + conv, `y = Conv(x, w, b)`, "x, y, w int8 axis 0, bias b by channel", perChannel},
		{"ConvTranspose by channel", some, "x:float[1,4,8,8] w:float[4,2,3,3]=1", `y = ConvTranspose(x, w)`, "x, y, w int8 axis 1", perChannel},
		{"ConvTranspose in groups", some, "x:float[1,4,8,8] w:float[4,2,3,3]=1", `y = ConvTranspose<group=2>(x, w)`, "x, y, w int8", perChannel},
		{"weight of two axes", some, "x:float[4,4]" + w, `
			h = MatMul(x, w)
			y = Gemm<transB=1>(h, w)`, "x, w int8, h, y", perChannel},

		{"Relu goes", "x=-1,1 h=-1,1 y=0,1", "x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Relu(h)`, "x, w int8, y from h, no Relu y", nil},
		{"Relu of symmetric codes stays", "x=-1,1 h=-1,1 y=0,1", "x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Relu(h)`, "x, w int8, h, y", func(o *actpairs.Options) { o.Activations = actpairs.Codes{Type: dtype.Int8, Symmetric: true} }},
		{"Relu that a target keeps", "x=-1,1 h=-1,1 y=0,1", "x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Relu(h)`, "x, w int8, h, y", func(o *actpairs.Options) { o.Placement.KeepClips = true }},
		{"Relu of a value with another reader", "x=-1,1 h=-1,1 k=0,1 y=-1,1", "x:float[2,4]" + w, `
			h = MatMul(x, w)
			k = Relu(h)
			y = Add(h, k)`, "x, w int8, h, k, y", nil},
		{"Clip that codes do not replace", "x=-1,1 h=-9,9 y=0,7", "x:float[2,4] lo:float[]=0 hi:float[]=6" + w, `
			h = MatMul(x, w)
			y = Clip(h, lo, hi)`, "x, w int8, h, y", nil},
		{"Clip goes", "x=-1,1 h=-9,9 y=0,6", "x:float[2,4] lo:float[]=0 hi:float[]=6" + w, `
			h = MatMul(x, w)
			y = Clip(h, lo, hi)`, "x, w int8, y from h, no Clip y", nil},
		{"Relu of a float", "x=-1,1 h=-1,1", "x:float[2,4]", `
			h = Sqrt(x)
			y = Relu(h)`, "", nil},
		{"two clips", "x=-1,1 h=-9,9 k=0,6 y=0,6", "x:float[2,4] lo:float[]=0 hi:float[]=6" + w, `
			h = MatMul(x, w)
			k = Relu(h)
			y = Clip(k, lo, hi)`, "x, w int8, y from h, no Relu k, no Clip y", nil},

		{"Transpose has the scale of its input", some, "x:float[2,4]" + w, `
			h = MatMul(x, w)
			k = Transpose(h)
			y = MatMul(k, w)`, "x, w int8, h, k like h, y", nil},
		{"Transpose of a float", some, "x:float[2,4]", `y = Transpose(x)`, "", nil},
		{"MaxPool", some, "x:float[1,2,8,8]" + conv, `
			h = Conv(x, w, b)
			y = MaxPool<kernel_shape=[2,2]>(h)`, "x, h, w int8, y like h, bias b", nil},
		{"Gather from a stored table", some, "i:int64[3]" + w, `y = Gather(w, i)`, "w uint8, y like w", nil},
		{"table that a product reads too", some, "i:int64[4]" + w, `
			h = Gather(w, i)
			y = MatMul(h, w)`, "w int8, h like w, y", perChannel},
		{"Split", some, "x:float[2,4]", `h, k = Split(x)
			y = Add(h, k)`, "x, h like x, k like x, y", nil},
		{"Pad with zeros", some, "x:float[2,4] pads:int64[4]=1", `y = Pad(x, pads)`, "x, y like x", nil},
		{"Pad with ones", some, "x:float[2,4] pads:int64[4]=1 one:float[]=1", `y = Pad(x, pads, one)`, "x, one uint8, y", nil},
		{"Where of one quantized side", some, "c:bool[2,4] k:float[2,4] x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Where(c, h, k)`, "x, w int8, h", nil},
		{"Where of two", some, "c:bool[2,4] x:float[2,4]" + w, `
			h = MatMul(x, w)
			k = Add(x, x)
			y = Where(c, h, k)`, "x, w int8, h, k, y", nil},
		{"Add with a stored value", some, "x:float[2,4] b:float[4]=1", `y = Add(x, b)`, "x, b uint8, y", nil},
		{"Softmax", "h=-9,9 y=0.1,0.2", "h:float[2,4]", `y = Softmax(h)`, "h, y", nil},

		{"unselected node", some, "x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Add(h, x)`, "h, x, y", func(o *actpairs.Options) {
			o.Selects = func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "Add" }
		}},
		{"kept weight", some, "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, y", func(o *actpairs.Options) { o.Keeps = func(v *graph.Value) bool { return v.Name == "w" } }},
		{"operator without a rule", some, "x:float[2,4]", `y = Sqrt(x)`, "", nil},
		{"every operator", some, "x:float[2,4]", `y = Sqrt(x)`, "x, y", func(o *actpairs.Options) { o.Placement.EveryOp = true }},
		{"integers", some, "x:int64[2,4]", `y = Add(x, x)`, "", nil},

		{"fused: inputs alone", some, "x:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Relu(h)`, "x, w int8", fused},
		{"fused: the other side of an Add", some, "x:float[2,4] k:float[2,4]" + w, `
			h = MatMul(x, w)
			y = Add(h, k)`, "x, w int8, k", fused},
		{"fused: Add of a product with two readers", some, "x:float[2,4]" + w, `
			h = MatMul(x, w)
			k = Relu(h)
			y = Add(h, k)`, "x, w int8", fused},
		{"fused: a pool", some, "x:float[1,1,4,4]", `y = MaxPool<kernel_shape = [2, 2]>(x)`, "x", fused},
		{"fused: MaxPool in float", some, "x:float[1,1,4,4]", `y = MaxPool<kernel_shape = [2, 2]>(x)`, "", func(o *actpairs.Options) {
			fused(o)
			o.Placement.FloatMaxPool = true
		}},
		{"fused: before a Reshape", some, "x:float[2,4] shape:int64[1]=8" + w, `
			h = MatMul(x, w)
			k = Relu(h)
			y = Reshape(k, shape)`, "x, w int8 axis 1, k", func(o *actpairs.Options) {
			fused(o)
			perChannel(o)
			o.Placement.BeforeReshape = true
		}},
		{"fused: before a Reshape, one scale", some, "x:float[2,4] shape:int64[1]=8" + w, `
			h = MatMul(x, w)
			k = Relu(h)
			y = Reshape(k, shape)`, "x, w int8", func(o *actpairs.Options) {
			fused(o)
			o.Placement.BeforeReshape = true
		}},

		{"small values beside a mask", "x=-10000,1,0.5 y=-1,1", "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, w int8, y, coarse x", nil},
		{"small values, fine codes", "x=-100,1,0.5 y=-1,1", "x:float[2,4]" + w, `y = MatMul(x, w)`, "x, w int8, y", nil},
		{"scores beside a mask", "x=-1000,1 k=-1,1 h=-1000,1", "x:float[2,4] k:float[2,4]", `
			h = Add(x, k)
			y = Softmax(h)`, "x, k, h, y, coarse x, coarse h", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := describe(find(t, 13, c.ranges, c.values, c.nodes, c.change)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func perChannel(o *actpairs.Options) { o.PerChannel = true }

func fused(o *actpairs.Options) { o.Placement = target.Placement{Fused: true} }

// An operator is quantized from the opset on at which it takes codes. A model without
// QuantizeLinear is treated as one of opset 11.
func TestFindByOpset(t *testing.T) {
	const pool = `
		h = Add(x, x)
		y = MaxPool<kernel_shape=[2,2]>(h)`
	const pad = `y = Pad<pads=[0,0,1,1], value=0.5>(x)`
	for _, c := range []struct {
		opset       int64
		nodes, want string
		least       int64 // opset of the plan
	}{
		{11, pool, "x, h", 11},
		{12, pool, "x, h, y like h", 11},
		{10, pad, "x, y", 11},
		{7, "y = Add(x, x)", "x, y", 11},
	} {
		p := find(t, c.opset, "x=-1,1 h=-1,1 y=-1,1", "x:float[1,1,8,8]", c.nodes, nil)
		if got := describe(p); got != c.want || p.Opset() != c.least {
			t.Errorf("opset %d: %s, which needs opset %d; want %s and %d", c.opset, got, p.Opset(), c.want, c.least)
		}
	}
	const values, product = "x:float[2,4] w:float[4,4]=1", "y = MatMul(x, w)"
	if p := find(t, 11, "x=-1,1 y=-1,1", values, product, perChannel); p.Opset() != 13 {
		t.Errorf("scales for channels need opset %d, want 13", p.Opset())
	}
	if p := find(t, 11, "x=-1,1 y=-1,1", values, product, wide); p.Opset() != 21 {
		t.Errorf("codes of 16 bits need opset %d, want 21", p.Opset())
	}
}

// wide asks for weights of 16 bits.
func wide(o *actpairs.Options) {
	o.Weights = actpairs.Codes{Type: dtype.Int16, Symmetric: true}
}

func TestParams(t *testing.T) {
	add := "y = Add(x, x)"
	for _, c := range []struct {
		name, ranges, nodes, of string
		codes                   actpairs.Codes
		change                  func(*actpairs.Options)
		scale                   float64
		zero                    int32
	}{
		{"uint8", "x=-1,1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8}, nil, 2.0 / 255, 128},
		{"positive range includes 0", "x=0.5,2 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8}, nil, 2.0 / 255, 0},
		{"negative range includes 0", "x=-3,-1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8}, nil, 3.0 / 255, 255},
		{"int8", "x=-3,-1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Int8}, nil, 3.0 / 255, 127},
		{"symmetric int8", "x=-1,0.5 y=0,1", add, "x", actpairs.Codes{Type: dtype.Int8, Symmetric: true}, nil, 2.0 / 254, 0},
		{"symmetric uint8", "x=-1,3 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8, Symmetric: true}, nil, 6.0 / 255, 128},
		{"reduced uint8", "x=-1,1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8, Reduced: true}, nil, 2.0 / 127, 64},
		{"reduced int8", "x=-1,1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Int8, Reduced: true}, nil, 2.0 / 128, 0},
		{"FP8", "x=-1,3 y=0,1", add, "x", actpairs.Codes{Type: dtype.Float8E4M3FN, Symmetric: true}, nil, 3.0 / 448, 0},
		{"uint16", "x=-1,1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint16}, nil, 2.0 / 65535, 32768},
		{"least range", "x=0,0.1 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8, MinRange: 0.5}, nil, 0.5 / 255, 0},
		{"constant 0", "x=0,0 y=0,1", add, "x", actpairs.Codes{Type: dtype.Uint8}, nil, 1, 0},
		{"Softmax gives 0 to 1", "x=-9,9 y=0.2,0.3", "y = Softmax(x)", "y", actpairs.Codes{Type: dtype.Uint8}, nil, 1.0 / 255, 0},
		{"a Relu alone reads it", "x=-9,9 h=-9,9 y=0,6", "h = Add(x, x)\ny = Relu(h)", "h", actpairs.Codes{Type: dtype.Uint8}, keepClips, 6.0 / 255, 0},
		{"Sigmoid, any range", "x=-9,9 y=0,0.25", "y = Sigmoid(x)", "y", actpairs.Codes{Type: dtype.Uint16}, nil, 0.25 / 65535, 0},
		{"Sigmoid, fixed scale", "x=-9,9 y=0.2,0.3", "y = Sigmoid(x)", "y", actpairs.Codes{Type: dtype.Uint16}, fixedScales, 1.0 / 65536, 0},
		{"fixed scales of 8 bits", "x=-9,9 y=0,0.25", "y = Sigmoid(x)", "y", actpairs.Codes{Type: dtype.Uint8}, fixedScales, 0.25 / 255, 0},
		{"moved elements have the scale", "x=-1,1 h=-2,2 y=0,9", "h = Add(x, x)\ny = Transpose(h)", "y", actpairs.Codes{Type: dtype.Uint8}, nil, 4.0 / 255, 128},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := find(t, 13, c.ranges, "x:float[2,4]", c.nodes, func(o *actpairs.Options) {
				o.Activations = c.codes
				if c.change != nil {
					c.change(o)
				}
			})
			i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == c.of })
			if i < 0 {
				t.Fatalf("%s is not quantized: %s", c.of, describe(p))
			}
			got, err := p.Tensors[i].Params()
			if err != nil {
				t.Fatal(err)
			}
			if want := (actpairs.Params{Scale: float32(c.scale), Zero: c.zero}); len(got) != 1 || got[0] != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func keepClips(o *actpairs.Options)   { o.Placement.KeepClips = true }
func fixedScales(o *actpairs.Options) { o.Placement.FixedScales = true }

// The scales of stored tensors follow from their contents: one scale, or one per channel.
func TestStoredParams(t *testing.T) {
	const values = "x:float[2,2] w:float[2,3]=-127,1,254,0,2,-508"
	for _, c := range []struct {
		name, nodes string
		change      func(*actpairs.Options)
		want        []actpairs.Params
	}{
		{"tensor", "y = MatMul(x, w)", nil, []actpairs.Params{{Scale: 4}}},
		{"columns", "y = MatMul(x, w)", perChannel, []actpairs.Params{{Scale: 1}, {Scale: 2.0 / 127}, {Scale: 4}}},
		{"rows", "y = Gemm<transB=1>(x, w)", perChannel, []actpairs.Params{{Scale: 2}, {Scale: 4}}},
		{"rows of 16 bits", "y = Gemm<transB=1>(x, w)", func(o *actpairs.Options) { perChannel(o); wide(o) }, []actpairs.Params{{Scale: 254.0 / 32767}, {Scale: 508.0 / 32767}}},
		{"no weight", "y = Add(w, x)", nil, []actpairs.Params{{Scale: 762.0 / 255, Zero: 170}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := find(t, 21, "x=-1,1 y=-1,1", values, c.nodes, c.change)
			i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == "w" })
			got, err := p.Tensors[i].Params()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			var scales, zeros []byte
			for _, w := range c.want {
				scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(w.Scale))
				zeros = p.Tensors[i].Codes.Append(zeros, w.Zero)
			}
			if got := read(t, p.Tensors[i].Stored.ScaleBytes(), len(scales)); !slices.Equal(got, scales) {
				t.Errorf("scales % x, want % x", got, scales)
			}
			if got := read(t, p.Tensors[i].ZeroBytes(), len(zeros)); !slices.Equal(got, zeros) {
				t.Errorf("zero points % x, want % x", got, zeros)
			}
		})
	}
}

// read reads n bytes, after which there are no more.
func read(t *testing.T, r io.ReaderAt, n int) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(r, 0, int64(n)))
	if err != nil || len(b) != n {
		t.Fatalf("%d bytes: %v; want %d", len(b), err, n)
	}
	return b
}

// 16-bit codes are computed when they are read, from any element on.
func TestCodes16(t *testing.T) {
	p := find(t, 21, "x=-1,1 y=-1,1", "x:float[2,2] w:float[2,3]=-32767,1,32767,-65534,6,2", "y = Gemm<transB=1>(x, w)", func(o *actpairs.Options) {
		perChannel(o)
		wide(o)
	})
	i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == "w" })
	var want []byte
	for _, code := range []int16{-32767, 1, 32767, -32767, 3, 1} {
		want = binary.LittleEndian.AppendUint16(want, uint16(code))
	}
	codes := p.Tensors[i].Codes16()
	if got := read(t, codes, len(want)); !slices.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
	part := make([]byte, 4)
	if _, err := codes.ReadAt(part, 6); err != nil || !slices.Equal(part, want[6:10]) {
		t.Errorf("from the fourth code on: % x, %v; want % x", part, err, want[6:10])
	}
}

// The scale of a bias is that of the activation times that of the weight. The weight's scale grows
// if the codes would not fit into 32 bits.
func TestBias(t *testing.T) {
	for _, c := range []struct {
		name, values string
		change       func(*actpairs.Options)
		scales       []float32 // nil: not compared
		codes        []int32   // nil: they decode to the bias
		bias         []float64
	}{
		{"one scale", "w:float[2,3]=-127,1,2 b:float[3]=2.5,-3.5,7", nil, []float32{1}, []int32{2, -4, 7}, nil},
		{"channels", "w:float[2,3]=-127,254,508 b:float[3]=8,8,8", perChannel, []float32{1, 2, 4}, []int32{8, 4, 2}, nil},
		{"large bias", "w:float[2,3]=1e-9,1e-9,1e-9 b:float[3]=100,-100,1", nil, nil, nil, []float64{100, -100, 1}},
		{"large bias of a channel", "w:float[2,3]=1e-9,127,127 b:float[3]=100,-100,1", perChannel, nil, nil, []float64{100, -100, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := find(t, 13, "x=0,255 y=-1,1", "x:float[2,2] "+c.values, "y = Gemm(x, w, b)", c.change)
			if len(p.Biases) != 1 || p.Bias(p.Biases[0].Value) != p.Biases[0] || p.Of(p.Biases[0].Value) != nil {
				t.Fatalf("biases %v", p.Biases)
			}
			b := p.Biases[0]
			n := 1
			if b.Channels() {
				n = 3
			}
			raw := read(t, b.ScaleBytes(), 4*n)
			var scales []float32
			for ; len(raw) > 0; raw = raw[4:] {
				scales = append(scales, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
			var codes []int32
			for raw = read(t, b.CodeBytes(), 12); len(raw) > 0; raw = raw[4:] {
				codes = append(codes, int32(binary.LittleEndian.Uint32(raw)))
			}
			if c.scales != nil && !slices.Equal(scales, c.scales) {
				t.Errorf("scales %v, want %v", scales, c.scales)
			}
			if c.codes != nil && !slices.Equal(codes, c.codes) {
				t.Errorf("codes %v, want %v", codes, c.codes)
			}
			for i, want := range c.bias {
				scale := float64(scales[i%len(scales)])
				if got := float64(codes[i]) * scale; math.Abs(got-want) > scale {
					t.Errorf("element %d: %d · %g = %g, want %g", i, codes[i], scale, got, want)
				}
			}
		})
	}
}

// Scales from outside replace those of a weight, and a shift is part of the codes of a bias.
func TestFixed(t *testing.T) {
	p := find(t, 13, "x=0,255 y=-1,1", "x:float[2,2] w:float[2,2]=1,2,3,4 b:float[2]=5,6", "y = Gemm(x, w, b)", perChannel)
	b := p.Biases[0]
	w := b.W
	if w.Fixed() || w.Scales() != 2 {
		t.Fatalf("%s: fixed %v, %d scales", w.Value.Name, w.Fixed(), w.Scales())
	}
	for _, c := range []struct {
		scales []float32
		fits   bool
	}{{[]float32{0.5, 0.25}, true}, {[]float32{0.5, 1e-12}, false}} {
		if fits, err := w.Fits(c.scales); err != nil || fits != c.fits {
			t.Errorf("scales %v: fit %v, %v", c.scales, fits, err)
		}
	}
	w.Fix([]float32{0.5, 0.25})
	b.Shift = []float32{1, -2}
	params, err := w.Params()
	if err != nil || len(params) != 2 || params[0] != (actpairs.Params{Scale: 0.5}) || params[1] != (actpairs.Params{Scale: 0.25}) || !w.Fixed() {
		t.Errorf("%v, %v", params, err)
	}
	raw := read(t, b.CodeBytes(), 8)
	for i, want := range []int32{12, 16} { // the scale of x is 1
		if got := int32(binary.LittleEndian.Uint32(raw[4*i:])); got != want {
			t.Errorf("bias %d: %d, want %d", i, got, want)
		}
	}
	if moved, err := b.Shifted([]float32{10, 20}); err != nil || !slices.Equal(moved, []float32{16, 24}) {
		t.Errorf("%v, %v", moved, err)
	}
}

// Stored values with NaN or infinity are reported once they have been read.
func TestBroken(t *testing.T) {
	p := find(t, 13, "x=0,255 y=-1,1", "x:float[2,2] w:float[2,2]=1,NaN b:float[2]=Inf", "y = Gemm(x, w, b)", nil)
	if broken := p.Broken(); broken != nil {
		t.Errorf("%d are broken before they are read", len(broken))
	}
	read(t, p.Biases[0].CodeBytes(), 8)
	var names []string
	for _, v := range p.Broken() {
		names = append(names, v.Name)
	}
	if want := []string{"w", "b"}; !slices.Equal(names, want) {
		t.Errorf("%v are broken, want %v", names, want)
	}
}

// A missing range is an error that names the activation and a node that makes or reads it.
func TestNoRange(t *testing.T) {
	for _, c := range []struct{ ranges, want string }{
		{"x=-1,1", `of "y" (Add node "y")`},
		{"y=-1,1", `of "x" (Add node "y")`},
	} {
		x := modeltest.Graph(t, graphtext.Model(t, 13, "x:float[2,4]", "y = Add(x, x)", "y"))
		_, err := actpairs.Find(x, options(ranges(t, c.ranges)))
		if !errors.Is(err, actpairs.ErrRange) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q with %q", c.ranges, err, actpairs.ErrRange, c.want)
		}
	}
}

// Ranges must have names of the model. If they have a hash, it must be that of the model file.
func TestCheckRanges(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 13, "x:float[2,4]", "y = Add(x, x)", "y"))
	sum, err := x.File.SHA256()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, ranges, sha256 string
		ok                   bool
	}{
		{"of the model", "x=-1,1 y=0,1", sum, true},
		{"of any model", "x=-1,1", "", true},
		{"of another file", "x=-1,1", strings.Repeat("0", 64), false},
		{"of another model", "z=-1,1", "", false},
	} {
		r := ranges(t, c.ranges)
		r.Model.SHA256 = c.sha256
		if err := actpairs.CheckRanges(x, r); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The least difference between values is the scale, for floats of 8 bits the least number above 0.
func TestStep(t *testing.T) {
	for typ, want := range map[dtype.DType]float64{dtype.Uint8: 2, dtype.Int16: 2, dtype.Float8E4M3FN: 2.0 / 512} {
		if got := (actpairs.Codes{Type: typ}).Step(2); got != want {
			t.Errorf("%v: %g, want %g", typ, got, want)
		}
	}
}

// With FullTables, weights of which sums have codes are reduced, and tables that are looked up alone are not.
func TestFullTables(t *testing.T) {
	const values = "x:float[2,4] i:int64[2] t:float[4,4]=1,-2 w:float[4,4]=1,-2"
	for _, c := range []struct {
		name, nodes, value string
		full, want         bool // want: reduced
	}{
		{"a table", "h = Gather(t, i)\nk = Add(h, x)\ny = MatMul(k, w)", "t", true, false},
		{"its product", "h = Gather(t, i)\nk = Add(h, x)\ny = MatMul(k, w)", "w", true, true},
		{"a table, with reduced tables", "h = Gather(t, i)\nk = Add(h, x)\ny = MatMul(k, w)", "t", false, true},
		{"a table that is multiplied, too", "h = Gather(t, i)\nk = Add(h, x)\nl = Transpose(t)\ny = MatMul(k, l)", "t", true, true},
		{"rows that are multiplied", "h = Gather(t, i)\nk = Add(x, x)\ny = MatMul(h, w)", "t", true, true},
	} {
		o := options(ranges(t, "x=-1,1 h=-1,1 k=-1,1 l=-1,1 y=-1,1"))
		o.Weights.Reduced, o.FullTables = true, c.full
		p, err := actpairs.Find(modeltest.Graph(t, graphtext.Model(t, 13, values, c.nodes, "y")), o)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == c.value })
		if i < 0 || p.Tensors[i].Codes.Reduced != c.want {
			t.Errorf("%s: %s", c.name, describe(p))
		}
	}
}
