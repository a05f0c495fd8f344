package actpairs_test

import (
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/graph"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
)

// widths lists the types of tensors that have 16 bits or a second pair. Names in parentheses are outputs of nodes that read the second one.
func widths(x *graph.Graph, p *actpairs.Plan) string {
	var all []string
	short := func(t *actpairs.Tensor) string { return strings.ToLower(t.Codes.Type.String()) }
	for _, t := range p.Tensors {
		if !t.Wide && t.Read == nil {
			continue
		}
		text := t.Value.Name + " " + short(t)
		if t.Read != nil {
			text += " " + short(t.Read)
			for _, u := range t.Value.Uses {
				if p.ReadBy(t, x.Number(u.Node)) != t {
					text += " (" + u.Node.Output[0] + ")"
				}
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// Nodes that read or make a chosen activation compute with 16 bits. Values between the widths have two pairs.
func TestWide(t *testing.T) {
	const conv = " w:float[4,4,1,1]=1,-2,3 b:float[4]=1"
	for _, c := range []struct{ name, wide, values, nodes, want string }{
		{"none", "q", "x:float[2,4]", `h = Sigmoid(x); y = Sigmoid(h)`, ""},
		{"between two nodes", "h", "x:float[2,4]", `h = Sigmoid(x); k = Sigmoid(h); y = Sigmoid(k)`, "x uint8 uint16 (h), h uint16, k uint16 uint8 (y)"},
		{"an output of the model", "y", "x:float[2,4]", `h = Sigmoid(x); y = Sigmoid(h)`, "h uint8 uint16 (y), y uint16"},
		{"readers of both widths", "k", "x:float[2,4]", `h = Sigmoid(x); k = Sigmoid(h); z = Sigmoid(h); y = Add(k, z)`,
			"h uint8 uint16 (k), k uint16, z uint8 uint16 (y), y uint16"},
		{"a shared scale", "h", "x:float[2,4]", `h = Sigmoid(x); k = Transpose(h); y = Sigmoid(k)`, "x uint8 uint16 (h), h uint16, k uint16, y uint16"},
		{"behind a second pair", "h", "x:float[2,4]", `h = Sigmoid(x); k = Sigmoid(h); r = Transpose(k); y = Sigmoid(r)`,
			"x uint8 uint16 (h), h uint16, k uint16 uint8 (r)"},
		{"a constant", "h", "x:float[2,4] c:float[4]=1", `h = Add(x, c); y = Sigmoid(h)`, "x uint8 uint16 (h), c uint16, h uint16, y uint16"},
		{"a constant of both widths", "h", "x:float[2,4] c:float[4]=1", `h = Add(x, c); k = Sigmoid(h); y = Add(k, c)`,
			"x uint8 uint16 (h), c uint8 uint16 (h), h uint16, k uint16 uint8 (y)"},
		{"a table", "h", "i:int64[2] t:float[4,4]=1", `k = Gather(t, i); h = Sigmoid(k); y = Sigmoid(h)`, "k uint8 uint16 (h), h uint16, y uint16"},
		{"weights have 8 bits", "h", "x:float[1,4,2,2]" + conv, `h = Conv(x, w, b); y = Sigmoid(h)`, "x uint8 uint16 (h), h uint16, y uint16"},
		{"a removed Relu", "k", "x:float[1,4,2,2]" + conv, `h = Conv(x, w, b); k = Relu(h); y = Sigmoid(k)`, "x uint8 uint16 (h), k uint16, y uint16"},
		{"SiLU behind a Conv", "h", "x:float[1,4,2,2]" + conv, `h = Conv(x, w); k = Sigmoid(h); y = Mul(h, k)`,
			"x uint8 uint16 (h), h uint16 uint16 (y), k uint16, y uint16"},
	} {
		x := modeltest.Graph(t, graphtext.Model(t, 21, c.values, strings.ReplaceAll(c.nodes, "; ", "\n"), "y"))
		o := options(ranges(t, "x=-1,1 h=-1,1 k=0,1 r=0,1 z=0,1 y=0,1"))
		o.Wide = func(v *graph.Value) bool { return v.Name == c.wide }
		o.Placement = target.Placement{EveryOp: true, FixedScales: true, SplitSiLU: true}
		p, err := actpairs.Find(x, o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := widths(x, p); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Where all activations have 16 bits, a Mul with a Sigmoid behind a Conv reads a pair with another scale, too. Other targets need none.
func TestSplitSiLU(t *testing.T) {
	values := "x:float[1,4,2,2] w:float[4,4,1,1]=1,-2,3"
	for nodes, want := range map[string]string{
		"h = Conv(x, w)\nk = Sigmoid(h)\ny = Mul(h, k)":              "h uint16 uint16 (y)",
		"h = Conv(x, w)\nk = Sigmoid(h)\ny = Mul(k, h)":              "h uint16 uint16 (y)",
		"h = Conv(x, w)\nk = Tanh(h)\ny = Mul(h, k)":                 "",
		"h = Conv(x, w)\nr = Relu(h)\nk = Sigmoid(r)\ny = Mul(r, k)": "r uint16 uint16 (y)", // codes clip as the Relu, which goes
	} {
		x := modeltest.Graph(t, graphtext.Model(t, 21, values, nodes, "y"))
		for _, split := range []bool{true, false} {
			o := options(ranges(t, "x=-1,1 h=-1,1 k=0,1 r=0,1 y=0,1"))
			o.Activations.Type = dtype.Uint16
			o.Placement = target.Placement{EveryOp: true, FixedScales: true, SplitSiLU: split}
			p, err := actpairs.Find(x, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := widths(x, p); split && got != want || !split && got != "" {
				t.Errorf("%q, %v: %q, want %q", nodes, split, got, want)
			}
			for _, pair := range p.Tensors {
				if second := pair.Read; second != nil && second.Own.Scale <= pair.Own.Scale {
					t.Errorf("%q: scales %g and %g", nodes, pair.Own.Scale, second.Own.Scale)
				}
			}
		}
	}
}

// Codes of 8 bits are exact in 16 bits, and biases have the scale of what their node reads.
func TestWideScales(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 21, "x:float[1,4,2,2] w:float[4,4,1,1]=1,-2,3 b:float[4]=1", "h = Conv(x, w, b)\ny = Sigmoid(h)", "y"))
	for _, typ := range []dtype.DType{dtype.Uint8, dtype.Int8} {
		o := options(ranges(t, "x=-1,3 h=-1,1 y=0,1"))
		o.Activations.Type = typ
		o.Wide = func(v *graph.Value) bool { return v.Name == "h" }
		p, err := actpairs.Find(x, o)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == "x" })
		narrow, wide := p.Tensors[i], p.Tensors[i].Read
		params, err := wide.Params()
		if err != nil || !wide.Derived() || params[0].Scale != narrow.Own.Scale/256 || params[0].Zero != narrow.Own.Zero*256 || narrow.Own.Zero == 0 && typ == dtype.Uint8 {
			t.Errorf("%+v and %+v, %v", narrow.Own, params, err)
		}
		if len(p.Biases) != 1 || p.Biases[0].X != wide {
			t.Errorf("biases: %+v", p.Biases)
		}
	}
}
