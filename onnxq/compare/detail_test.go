package compare_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// detailed converts the model at in and describes its weights in detail.
func detailed(t *testing.T, in string, opts onnxq.Options) []compare.WeightMatch {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, opts)
	return described(t, in, out)
}

// described describes the weights of the model at out in detail.
func described(t *testing.T, in, out string) []compare.WeightMatch {
	t.Helper()
	folded := filepath.Join(t.TempDir(), "folded.onnx")
	report, err := restyle.Dequantize(context.Background(), out, folded, restyle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := compare.MatchDecoded(context.Background(), compare.Decoded{Model: modeltest.Open(t, in)},
		compare.Decoded{Model: modeltest.Open(t, folded), Folded: report, Coded: modeltest.Open(t, out)}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m.Weights
}

// The codes and bins of INT4 in blocks are those that a plain loop counts, also where the codes
// are stored transposed and as uint8.
func TestDetailOfBlocks(t *testing.T) {
	const block = 32
	in := modeltest.Build(t, "mlp")
	model := modeltest.Open(t, in)
	for _, style := range []spec.Style{spec.DQ, spec.NBits} {
		offset := map[spec.Style]float64{spec.NBits: 8}[style]
		for _, w := range detailed(t, in, onnxq.Options{Block: block, Style: style}) {
			values := make([]float32, w.Shape[0]*w.Shape[1])
			if err := modeltest.Numbers(t, model, w.Name).ReadAll(&lazy.Arena{}, values, 0); err != nil {
				t.Fatal(err)
			}
			rows, cols := int(w.Shape[0]), int(w.Shape[1])
			codes, bins := map[float64]int64{}, make([]int64, len(w.Detail.Bins))
			for col := range cols {
				for first := 0; first < rows; first += block {
					peak := float32(0)
					for row := first; row < min(first+block, rows); row++ {
						peak = max(peak, float32(math.Abs(float64(values[row*cols+col]))))
					}
					for row := first; row < min(first+block, rows); row++ {
						v := float64(values[row*cols+col] / (peak / 7))
						codes[math.RoundToEven(v)+offset]++
						bins[int(math.Floor((v+offset-w.Detail.From)/(w.Detail.To-w.Detail.From)*float64(len(bins))))]++
					}
				}
			}
			if len(codes) != len(w.Detail.Codes) {
				t.Errorf("%s %s: %d codes, want %d", style, w.Name, len(w.Detail.Codes), len(codes))
			}
			for _, c := range w.Detail.Codes {
				if codes[c.Value] != c.Count {
					t.Errorf("%s %s: code %v occurs %d times, want %d", style, w.Name, c.Value, c.Count, codes[c.Value])
				}
			}
			for i, n := range w.Detail.Bins {
				if off := n - bins[i]; off*off > 100 { // values beside the edge of a bin
					t.Errorf("%s %s: %d values in bin %d, want %d", style, w.Name, n, i, bins[i])
				}
			}
		}
	}
}

// Every form has a histogram of all its values, and errors by place that add up to the error of
// the weight.
func TestDetail(t *testing.T) {
	for _, test := range []struct {
		opts  onnxq.Options
		codes bool
	}{
		{onnxq.Options{Bits: 8, Block: spec.PerChannel}, true},
		{onnxq.Options{Block: 16, ZeroPoint: true, Style: spec.NBits}, true},
		{onnxq.Options{Block: 32, Style: spec.QDQ}, true},
		{onnxq.Options{Format: spec.NF4, Target: spec.ORT}, true},
		{onnxq.Options{Format: "fp8-e4m3"}, true},
		{onnxq.Options{Format: "nvfp4"}, true},
		{onnxq.Options{Format: "q4_k"}, false},
	} {
		weights := detailed(t, modeltest.Build(t, "gemm"), test.opts)
		if len(weights) == 0 {
			t.Errorf("%+v: no weights", test.opts)
		}
		for _, w := range weights {
			d := w.Detail
			size := int64(1)
			for _, n := range w.Shape {
				size *= n
			}
			sum, coded := int64(0), int64(0)
			for _, n := range d.Bins {
				sum += n
			}
			for _, c := range d.Codes {
				coded += c.Count
			}
			if sum != size || test.codes && coded != size {
				t.Errorf("%+v %s: %d values and %d codes, want %d", test.opts, w.Name, sum, coded, size)
			}
			for _, parts := range [][]float64{d.Channels, d.Positions} {
				sum := 0.0
				for _, p := range parts {
					sum += p * p
				}
				got, want := math.Sqrt(sum/float64(len(parts))), math.Pow(10, -w.SQNR/20)
				if len(parts) > 0 && math.Abs(got-want) > 0.05*want { // the last part may be smaller
					t.Errorf("%+v %s: errors by place add up to %v, want %v", test.opts, w.Name, got, want)
				}
			}
		}
	}
}

// Codes that are NaN are no codes of the histogram, and what was found is JSON.
func TestDetailOfNaN(t *testing.T) {
	in, out := modeltest.Build(t, "gemm"), filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Format: "fp8-e4m3"})
	m := modeltest.Read(t, out)
	coded := 0
	for _, x := range m.Graph.Initializer {
		if x.GetDataType() == int32(dtype.Float8E4M3FN) {
			x.RawData[0], x.RawData[1] = 0x7f, 0xff
			coded++
		}
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	weights := described(t, in, out)
	if _, err := json.Marshal(weights); err != nil || coded == 0 {
		t.Errorf("%d weights: %v", coded, err)
	}
	for _, w := range weights {
		sum := int64(0)
		for _, c := range w.Detail.Codes {
			sum += c.Count
		}
		if want := w.Shape[0]*w.Shape[1] - 2; sum != want {
			t.Errorf("%s: %d codes, want %d", w.Name, sum, want)
		}
	}
}

// Types with more codes than are listed have no more bins than others, and the codes that occur are
// in them: a bias in int32, and a weight in int16.
func TestDetailOfWideCodes(t *testing.T) {
	codes := map[dtype.DType][]byte{}
	for c := int32(-500); c <= 500; c += 100 {
		codes[dtype.Int32] = binary.LittleEndian.AppendUint32(codes[dtype.Int32], uint32(c))
		codes[dtype.Int16] = binary.LittleEndian.AppendUint16(codes[dtype.Int16], uint16(c))
	}
	const size = 11
	bias := modeltest.Floats("b", size)
	for i := range bias.FloatData {
		bias.FloatData[i] = float32(100*i-500)/2 + 0.1
	}
	in := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{bias}, []*onnxpb.NodeProto{modeltest.Node("Add", "y", "x b")}))
	for typ, raw := range codes {
		stored := modeltest.Zeros("q", typ, size)
		stored.RawData = raw
		scale := modeltest.Floats("s")
		scale.FloatData = []float32{0.5}
		m := modeltest.Model([]*onnxpb.TensorProto{stored, scale}, []*onnxpb.NodeProto{
			modeltest.Node("DequantizeLinear", "b", "q s"), modeltest.Node("Add", "y", "x b"),
		})
		m.Proto.OpsetImport[0].Version = new(int64(21))
		m.Proto.IrVersion = new(int64(10))
		weights := described(t, in, modeltest.Write(t, m))
		if len(weights) != 1 {
			t.Fatalf("%v: %d weights, want 1", typ, len(weights))
		}
		d, counted := weights[0].Detail, int64(0)
		for _, n := range d.Bins {
			counted += n
		}
		if len(d.Bins) != 64 || len(d.Codes) != size || counted != size || d.Beyond != 0 || d.From > -500 || d.From < -600 || d.To < 500 || d.To > 600 {
			t.Errorf("%v: %d values in %d bins from %v to %v, %d codes, %v beyond them", typ, counted, len(d.Bins), d.From, d.To, len(d.Codes), d.Beyond)
		}
	}
}

// Weights whose blocks share scales in superblocks are described, too.
func TestDetailOfSuperblocks(t *testing.T) {
	in := modeltest.Write(t, testmodels.MLP(3, 512, 64, 2))
	described := 0
	for _, w := range detailed(t, in, onnxq.Options{Format: "q4_k"}) {
		if w.CodeType == "" {
			continue
		}
		if described++; w.Detail == nil {
			t.Errorf("%s: no detail", w.Name)
		}
	}
	if described == 0 {
		t.Error("nothing is quantized")
	}
}
