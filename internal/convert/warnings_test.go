package convert_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/rules"
	"onnxquant/spec"
)

// If nothing is quantized, a warning says why.
func TestNothingIsQuantized(t *testing.T) {
	const product, values = `y = MatMul(x, w)`, "x:float w:float[64,32]=1,-2,3"
	graphOf := func(values, nodes, outputs string) *graph.Graph {
		return modeltest.Graph(t, graphtext.Model(t, 17, values, nodes, outputs))
	}
	converted := func(x *graph.Graph) *graph.Graph {
		out := filepath.Join(t.TempDir(), "out.onnx")
		products := options(func(o *convert.Options) { o.Discover.Ops = []string{"MatMul"} })
		if _, err := planned(t, x, products).Convert(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		return modeltest.Open(t, out).Graph()
	}
	// Outputs of the graph cannot be quantized.
	obstructed := graphOf(values+" v:float[32,8]=1", "h = MatMul(x, w)\ny = MatMul(h, v)", "y w v")
	for _, c := range []struct {
		name   string
		x      *graph.Graph
		change func(*convert.Options)
		want   string
	}{
		{"none", graphOf("x:float", `y = Relu(x)`, "y"), nil, "no weight was selected"},
		{"excluded", graphOf(values, product, "y"), func(o *convert.Options) { o.Discover.Exclude = rules.NewPatterns([]string{"w"}) }, "--include and --exclude leave no weight: they keep 1 weight in float"},
		{"operator", graphOf(values, product, "y"), func(o *convert.Options) { o.Discover.Ops = []string{"Conv"} }, "no weight was selected; --ops all selects those of more operators"},
		{"done", converted(graphOf(values, product, "y")), nil, "all weights are quantized already"},
		{"some done", converted(graphOf(values+" i:int64[2] t:float[64,32]=1", "x2 = Gather(t, i)\n"+product, "y x2")),
			func(o *convert.Options) { o.Discover.Ops = []string{"MatMul"} }, "no weight was selected, and some are quantized already"},
		{"obstructed", obstructed, nil, `of 2 weights selected none can be quantized; the largest, "w": graph output`},
		{"one", obstructed, func(o *convert.Options) { o.Discover.Include = rules.NewPatterns([]string{"v"}) }, `"v" was selected but cannot be quantized: graph output`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, c.x, options(c.change))
			if why := p.WhyNothing(); !strings.HasPrefix(c.want, why) || why == "" {
				t.Errorf("%q, want %q", why, c.want)
			}
			if want := "nothing is quantized: " + c.want; !slices.Contains(p.Warnings, want) {
				t.Errorf("warnings %q, want %q", p.Warnings, want)
			}
		})
	}
}

// In a body, accuracy_level 4 asked for by a flag may make ONNX Runtime compute zeros of float16 scales.
func TestLevelInBodies(t *testing.T) {
	branches := func(then *onnxpb.NodeProto) *graph.Graph {
		return modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, []*onnxpb.NodeProto{
			modeltest.Node("Cast", "c", "i", modeltest.IntAttr("to", 9)),
			modeltest.Node("If", "y", "c", modeltest.GraphAttr("then_branch", nil, then), modeltest.GraphAttr("else_branch", nil, modeltest.Node("Abs", "e", "x"))),
		}))).Graph()
	}
	for _, c := range []struct {
		name  string
		level spec.AccuracyLevel
		half  bool
		warns bool
	}{
		{"asked for", spec.AccuracyInt8, true, true},
		{"default", spec.AccuracyDefault, true, false},
		{"level 1", spec.AccuracyFloat32, true, false},
		{"float32", spec.AccuracyInt8, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, branches(modeltest.Node("MatMul", "t", "x w")), options(func(o *convert.Options) {
				o.Discover.Style, o.Discover.AccuracyLevel = spec.NBits, c.level
				if c.half {
					o.Half = &half.Options{To: dtype.Float16}
				}
			}))
			if len(p.Weights) != 1 {
				t.Fatalf("%d weights", len(p.Weights))
			}
			warned := slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "--accuracy-level 1 is right") })
			if warned != c.warns {
				t.Errorf("warnings %q", p.Warnings)
			}
		})
	}
}
