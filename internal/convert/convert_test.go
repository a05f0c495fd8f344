package convert_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/rules"
	"onnxquant/spec"
)

// options quantize products and tables to 4 bits in blocks of 32. change may set other options.
func options(change func(*convert.Options)) convert.Options {
	o := convert.Options{
		Discover: discover.Options{
			Ops: []string{"MatMul", "Gemm", "Gather"}, Bits: 4, Block: 32,
			Target: target.Of(spec.Portable), Algorithm: spec.RTN, Activations: spec.WeightsOnly, Memory: work.DefaultMemory,
		},
		External: write.External{When: spec.ExternalAuto},
		Memory:   work.DefaultMemory,
	}
	if change != nil {
		change(&o)
	}
	return o
}

// planned makes a plan.
func planned(t *testing.T, x *graph.Graph, o convert.Options) *convert.Plan {
	t.Helper()
	p, err := convert.NewPlan(x, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stored returns the content of a tensor of a model file.
func stored(t *testing.T, path, name string) []byte {
	t.Helper()
	_, content := modeltest.Tensor(t, modeltest.Open(t, path), name)
	return content
}

// Each quantized or copied tensor has its place in the output, in the model file or beside it. The
// sizes are as planned.
func TestContents(t *testing.T) {
	// Blocks whose largest number is 7 have the scale 1: codes are the numbers.
	m := graphtext.Model(t, 21, "x:float[2,64] w:float[64,2]=7,-7,1,-1,0,2 b:float[2000]=0.5,3", `
		h = MatMul(x, w)
		y = Add(h, b)`, "y")
	codes := make([]byte, 64) // two in a byte, the first one low
	for i := range codes {
		codes[i] = []byte{0x97, 0xf1, 0x20}[i%3]
	}
	for _, c := range []struct {
		name  string
		when  spec.ExternalData
		limit int64 // elements that a worker holds
		files []string
	}{
		{"one file", spec.ExternalNever, 0, []string{"out.onnx"}},
		{"data beside it", spec.ExternalAlways, 0, []string{"out.onnx", "out.onnx.data"}},
		{"many tiles", spec.ExternalNever, 32, []string{"out.onnx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, modeltest.Graph(t, m), options(func(o *convert.Options) { o.External.When = c.when }))
			p.TileLimit = c.limit
			out := filepath.Join(t.TempDir(), "out.onnx")
			r, err := p.Convert(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Verified {
				t.Error("the output is not verified")
			}
			if got := r.Errors[0]; len(r.Errors) != 1 || got.N != 128 || got.MaxAbs != 0 {
				t.Errorf("errors %v, want none in 128 elements", r.Errors)
			}
			if got := modeltest.List(t, filepath.Dir(out)); !slices.Equal(got, c.files) {
				t.Errorf("files %v, want %v", got, c.files)
			}
			size := int64(0)
			for _, name := range c.files {
				info, err := os.Stat(filepath.Join(filepath.Dir(out), name))
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			if size != r.Plan.Output.Size() {
				t.Errorf("%d bytes, planned were %d", size, r.Plan.Output.Size())
			}
			if got := stored(t, out, "w_i4"); !slices.Equal(got, codes) {
				t.Errorf("codes % x, want % x", got, codes)
			}
			if got, want := stored(t, out, "b"), m.Graph.Initializer[1].RawData; !slices.Equal(got, want) {
				t.Error("the bias differs")
			}
		})
	}
}

// An output that differs from the written bytes is an error and does not get its final name.
func TestVerify(t *testing.T) {
	const read = 64 * 200 * 4 // bytes of w; what is verified counts after that
	m := graphtext.Model(t, 21, "x:float[2,64] w:float[64,200]=7,-7,1", `y = MatMul(x, w)`, "y")
	for _, c := range []struct {
		name   string
		verify bool
		spoil  func(a, b int64) bool // which size of the two files is spoilt
		files  int                   // that are left
	}{
		{"contents", true, func(a, b int64) bool { return a > b }, 0},
		{"structure", true, func(a, b int64) bool { return a < b }, 0},
		{"nothing", true, func(a, b int64) bool { return false }, 2},
		{"not verified", false, func(a, b int64) bool { return a > b }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			p := planned(t, modeltest.Graph(t, m), options(func(o *convert.Options) {
				o.External.When, o.NoVerify, o.Threads = spec.ExternalAlways, !c.verify, 1
				o.Progress = func(done, total int64) {
					if done == read {
						spoil(t, folder, c.spoil)
					}
				}
			}))
			r, err := p.Convert(t.Context(), filepath.Join(folder, "out.onnx"))
			if failed := c.files == 0; failed != errors.Is(err, write.ErrVerify) || failed != (err != nil) {
				t.Errorf("error %v", err)
			}
			if err == nil && r.Verified != c.verify {
				t.Errorf("verified: %v, want %v", r.Verified, c.verify)
			}
			if left := modeltest.List(t, folder); len(left) != c.files {
				t.Errorf("%v are left, want %d", left, c.files)
			}
		})
	}
}

// spoil changes the last byte of one of the two temporary files in a folder.
func spoil(t *testing.T, folder string, which func(size, other int64) bool) {
	var names []string
	var sizes []int64
	for _, name := range modeltest.List(t, folder) {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, ".~lock") {
			names, sizes = append(names, filepath.Join(folder, name)), append(sizes, info.Size())
		}
	}
	if len(names) != 2 {
		t.Fatalf("temporary files %v", names)
	}
	for i, name := range names {
		if !which(sizes[i], sizes[1-i]) {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] = 0x55
		if err := os.WriteFile(name, b, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A plan has exceptions for weights that would be larger, or that the target would not run. A
// conversion finds those whose values cannot be quantized, and leaves its plan as it is.
func TestExceptions(t *testing.T) {
	const large = " v:float[64,200]=7,-7,1" // for a model that is no toy
	for _, c := range []struct {
		name          string
		values, nodes string
		planned       string // reason of w to stay in float
		found         string // after the conversion
		change        func(*convert.Options)
	}{
		{"nothing special", "x:float[2,64] w:float[64,200]=7,-7,1" + large, `
			h = MatMul(x, w)
			k = MatMul(x, v)
			y = Add(h, k)`, "", "", nil},
		{"NaN", "x:float[2,64] w:float[64,200]=1,NaN,1" + large, `
			h = MatMul(x, w)
			k = MatMul(x, v)
			y = Add(h, k)`, "", "NaN", nil},
		{"infinity", "x:float[2,64] w:float[64,200]=1,Inf,1" + large, `
			h = MatMul(x, w)
			k = MatMul(x, v)
			y = Add(h, k)`, "", "infinity", nil},
		{"few elements", "x:float[2,64] w:float[1,2]=7" + large, `
			h = MatMul(x, v)
			y = MatMul(h, w)`, "would be larger", "would be larger", nil},
		{"operator that the target has no more", "x:float[2,64] w:float[64,200]=7,-7,1", `
			h = MatMul(x, w)
			y = Bernoulli(h)`, "int2 needs opset 25", "int2 needs opset 25", func(o *convert.Options) {
			o.Discover.Bits, o.Discover.Style, o.Discover.Target = 2, spec.DQ, target.Of(spec.ORT)
		}},
		{"float by name", "x:float[2,64] w:float[64,200]=1,NaN" + large, `
			h = MatMul(x, w)
			k = MatMul(x, v)
			y = Add(h, k)`, "excluded", "excluded", func(o *convert.Options) { o.Discover.Exclude = rules.NewPatterns([]string{"w"}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, modeltest.Graph(t, graphtext.Model(t, 15, c.values, c.nodes, "y")), options(c.change))
			out := filepath.Join(t.TempDir(), "out.onnx")
			r, err := p.Convert(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			checkReasons(t, "plan", p, c.planned)
			checkReasons(t, "conversion", r.Plan, c.found)
			if len(r.Errors) != len(r.Plan.Weights) {
				t.Errorf("%d errors of %d weights", len(r.Errors), len(r.Plan.Weights))
			}
			if float := slices.ContainsFunc(modeltest.Open(t, out).Graph().Values, func(v *graph.Value) bool { return v.Name == "w" && v.Tensor != nil }); float != (c.found != "") {
				t.Errorf("w is stored as floats: %v", float)
			}
		})
	}
}

// checkReasons checks that v is quantized and that w stays in float for the reason want. If want is
// "", w must be quantized, too.
func checkReasons(t *testing.T, what string, p *convert.Plan, want string) {
	t.Helper()
	for _, d := range p.Decisions {
		why := want
		if d.Value.Name != "w" {
			why = ""
		}
		if d.Quantize != (why == "") || !strings.Contains(d.Reason, why) {
			t.Errorf("%s: %s is quantized: %v, %q; want %q", what, d.Value.Name, d.Quantize, d.Reason, why)
		}
	}
}

// Scales that do not fit the requested type get another one, in the conversion but not in the plan.
func TestScaleTypes(t *testing.T) {
	p := planned(t, modeltest.Graph(t, graphtext.Model(t, 21, "x:float[2,64] w:float[64,200]=1e30,1 v:float[64,200]=1", `
		h = MatMul(x, w)
		k = MatMul(x, v)
		y = Add(h, k)`, "y")), options(func(o *convert.Options) { o.Discover.ScaleType = spec.ScaleFloat16 }))
	r, err := p.Convert(t.Context(), filepath.Join(t.TempDir(), "out.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	types := func(p *convert.Plan) (all []onnxpb.TensorProto_DataType) {
		for _, w := range p.Weights {
			all = append(all, onnxpb.TensorProto_DataType(w.Tensors.Scales.GetDataType()))
		}
		return all
	}
	const half, float = onnxpb.TensorProto_FLOAT16, onnxpb.TensorProto_FLOAT
	if got, want := types(p), []onnxpb.TensorProto_DataType{half, half}; !slices.Equal(got, want) {
		t.Errorf("planned %v, want %v", got, want)
	}
	if got, want := types(r.Plan), []onnxpb.TensorProto_DataType{float, half}; !slices.Equal(got, want) {
		t.Errorf("made %v, want %v", got, want)
	}
}

// Several plans of a model write the files that each writes alone. A failing plan leaves the others
// alone.
func TestAll(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 21, "x:float[2,64] w:float[64,200]=7,-7,1 v:float[64,200]=1,NaN", `
		h = MatMul(x, w)
		k = MatMul(x, v)
		y = Add(h, k)`, "y"))
	several := []convert.Options{
		options(nil),
		options(func(o *convert.Options) { o.Discover.Style = spec.NBits }),
		options(func(o *convert.Options) { o.Discover.Bits, o.Discover.Block = 8, spec.PerChannel }),
	}
	folder, alone := t.TempDir(), t.TempDir()
	var jobs []convert.Job
	for i, o := range several {
		jobs = append(jobs, convert.Job{Plan: planned(t, x, o), Path: filepath.Join(folder, string(rune('a'+i)))})
	}
	nowhere := convert.Job{Plan: planned(t, x, options(nil)), Path: filepath.Join(folder, "none", "d")}
	again := convert.Job{Plan: planned(t, x, options(nil)), Path: folder + "/./a"}
	done := convert.All(t.Context(), append(slices.Clone(jobs), nowhere, again))
	if err := done[3].Err; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if err := done[4].Err; err == nil || !strings.Contains(err.Error(), "another output has this name") {
		t.Errorf("the name of another output: %v", err)
	}
	for i, o := range several {
		if done[i].Err != nil {
			t.Fatal(done[i].Err)
		}
		path := filepath.Join(alone, filepath.Base(jobs[i].Path))
		if _, err := planned(t, x, o).Convert(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		got, err1 := os.ReadFile(jobs[i].Path)
		want, err2 := os.ReadFile(path)
		if err := errors.Join(err1, err2); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s differs from the file of a single conversion: %v", path, err)
		}
		if n := len(done[i].Result.Plan.Weights); n != 1 {
			t.Errorf("%s: %d weights, want w alone", path, n)
		}
	}
	if got, want := modeltest.List(t, folder), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

// A canceled context stops all conversions and leaves no file.
func TestAllStopped(t *testing.T) {
	x, folder := modeltest.Graph(t, graphtext.Model(t, 21, "x:float[2,64] w:float[64,200]=7", `y = MatMul(x, w)`, "y")), t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, d := range convert.All(ctx, []convert.Job{{Plan: planned(t, x, options(nil)), Path: filepath.Join(folder, "a")}, {Plan: planned(t, x, options(nil)), Path: filepath.Join(folder, "b")}}) {
		if !errors.Is(d.Err, context.Canceled) {
			t.Errorf("%v, want %q", d.Err, context.Canceled)
		}
	}
	if left := modeltest.List(t, folder); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// Tensors without elements get a place of 0 bytes. Models without weights have the coverage 0.
func TestNoElements(t *testing.T) {
	for _, c := range []struct {
		name, values, nodes string
		weights             int
		total, quantized    int64
	}{
		{"no tensors", "x:float[2,64]", `y = Relu(x)`, 0, 0, 0},
		{"empty weight", "x:float[2,0] w:float[0,32]=1", `y = MatMul(x, w)`, 0, 0, 0},
		{"empty beside others", "x:float[2,64] w:float[64,32]=7 e:float[0]=1 v:float[0,64]=1", `
			h = MatMul(x, w)
			k = Concat<axis=0>(e, e)
			y = Concat<axis=0>(h, v)`, 1, 8192, 8192},
		{"no columns", "x:float[2,64] w:float[64,0]=1", `y = MatMul(x, w)`, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, when := range []spec.ExternalData{spec.ExternalNever, spec.ExternalAlways} {
				x := modeltest.Graph(t, graphtext.Model(t, 21, c.values, c.nodes, "y"))
				p := planned(t, x, options(func(o *convert.Options) { o.External.When = when }))
				total, quantized := p.FloatBytes()
				if len(p.Weights) != c.weights || total != c.total || quantized != c.quantized {
					t.Errorf("%d weights, %d of %d bytes; want %d, %d of %d", len(p.Weights), quantized, total, c.weights, c.quantized, c.total)
				}
				if got, want := p.Coverage(), float64(c.weights); got != want {
					t.Errorf("coverage %g, want %g", got, want)
				}
				out := filepath.Join(t.TempDir(), "out.onnx")
				if _, err := p.Convert(t.Context(), out); err != nil {
					t.Fatal(err)
				}
				made := modeltest.Open(t, out).Graph()
				for _, v := range x.Values {
					if v.Tensor == nil || v.Name == "w" && c.weights > 0 {
						continue
					}
					i := slices.IndexFunc(made.Values, func(w *graph.Value) bool { return w.Name == v.Name })
					if i < 0 || !slices.Equal(made.Values[i].Tensor.GetDims(), v.Tensor.GetDims()) {
						t.Errorf("%s is gone, or of another shape", v.Name)
					}
				}
			}
		})
	}
}

// A plan below the least coverage is an error that names the largest tensor left in float.
func TestCoverage(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 21, "x:float[2,64] w:float[64,30]=7,-7,1 b:float[640]=1", `
		h = MatMul(x, w)
		y = Add(h, b)`, "y"))
	for least, ok := range map[float64]bool{0: true, 0.75: true, 0.76: false, 1: false} {
		p, err := convert.NewPlan(x, options(func(o *convert.Options) { o.MinCoverage = least }))
		switch {
		case ok && (err != nil || p.Coverage() != 0.75):
			t.Errorf("%g: %v", least, err)
		case !ok && (!errors.Is(err, convert.ErrCoverage) || !strings.Contains(err.Error(), `"b"`)):
			t.Errorf("%g: %v, want %q with \"b\"", least, err, convert.ErrCoverage)
		}
	}
}

// Names in the options must exist in the model. The error suggests a similar name.
func TestNames(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 21, "x:float[2,64] weight:float[64,32]=7,-7,1", `y = MatMul(x, weight)`, "y"))
	if got, want := convert.TensorNames(x), []string{"weight"}; !slices.Equal(got, want) {
		t.Errorf("tensors %v, want %v", got, want)
	}
	for pattern, want := range map[string]string{
		"weight": "", "*": "", "wei*": "",
		"wieght": `did you mean "weight"?`, "bias*": `called "bias*"`,
	} {
		for _, include := range []bool{true, false} {
			_, err := convert.NewPlan(x, options(func(o *convert.Options) {
				if include {
					o.Discover.Include = rules.NewPatterns([]string{pattern})
				} else {
					o.Discover.Exclude = rules.NewPatterns([]string{pattern})
				}
			}))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", pattern, err, want)
			}
		}
	}
}

// WriteFloat writes a model with the same contents.
func TestWriteFloat(t *testing.T) {
	m := graphtext.Model(t, 21, "x:float[2,64] w:float[64,32]=7,-7,1", `y = MatMul(x, w)`, "y")
	x, out := modeltest.Graph(t, m), filepath.Join(t.TempDir(), "out.onnx")
	if err := convert.WriteFloat(t.Context(), x.File, out, 1, work.DefaultMemory); err != nil {
		t.Fatal(err)
	}
	if got := modeltest.Read(t, out); !proto.Equal(got, m) {
		t.Errorf("got %v, want %v", got, m)
	}
}
