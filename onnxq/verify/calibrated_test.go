package verify_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/written"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Codes that data found pass. A weight fails whose scales are all half or twice as large, and so does one block
// whose scale is negated, zero or a hundred times as large: any block, not only the largest one.
func TestCalibratedScales(t *testing.T) {
	in, samples := modeltest.Write(t, testmodels.MLP(3, 64, 64, 64)), similarRows(t, 40, 64, 1)
	for _, c := range []struct {
		algorithm spec.Algorithm
		opts      onnxq.Options
	}{
		{spec.Best, onnxq.Options{Bits: 4, Block: 32}},
		{spec.Best, onnxq.Options{Bits: 4, Block: 16, ZeroPoint: true, Style: spec.NBits}},
		{spec.Best, onnxq.Options{Bits: 8, Block: spec.PerChannel}},
		{spec.Best, onnxq.Options{Format: spec.NF4}},
		{spec.GPTQ, onnxq.Options{Bits: 4, Block: 16}},
		{spec.GPTQ, onnxq.Options{Bits: 2, Block: 16, ZeroPoint: true}},
		{spec.GPTQ, onnxq.Options{Format: spec.FP8E4M3}},
		{spec.AWQ, onnxq.Options{Bits: 4, Block: 32, ZeroPoint: true}},
		{spec.AWQ, onnxq.Options{Bits: 2, Block: 16}},
	} {
		t.Run(fmt.Sprint(c.algorithm, c.opts.Format, c.opts.Bits, c.opts.Style), func(t *testing.T) {
			t.Parallel()
			c.opts.Algorithm = c.algorithm
			o := quantized(t, in, samples, c.opts)
			if len(o.scales) == 0 || !o.passes(t) {
				t.Fatalf("%d scales; it does not pass as it is, or has none", len(o.scales))
			}
			r := rand.New(rand.NewPCG(1, 2))
			for _, s := range o.scales {
				elements := len(s.RawData) / 4
				for _, factor := range []float32{0.5, 2} {
					if o.passesWith(t, s, 0, elements, factor) {
						t.Errorf("%s: times %g passes", s.GetName(), factor)
					}
				}
				for _, factor := range []float32{-1, 0, 100} {
					if at := r.IntN(elements); o.passesWith(t, s, at, at+1, factor) {
						t.Errorf("%s: element %d times %g passes", s.GetName(), at, factor)
					}
				}
			}
		})
	}
}

// A block whose scale is twice as large fails, and so does one half as large, except where data found the codes.
func TestScaleOfOneBlock(t *testing.T) {
	in, samples := modeltest.Write(t, testmodels.MLP(3, 64, 64, 64)), similarRows(t, 40, 64, 1)
	for _, c := range []struct {
		algorithm spec.Algorithm
		samples   string
		factors   []float32
	}{
		{spec.RTN, "", []float32{0.5, 2}}, {spec.MSE, "", []float32{0.5, 2}}, {spec.HQQ, "", []float32{0.5, 2}}, {spec.Best, "", []float32{0.5, 2}},
		{spec.GPTQ, samples, []float32{2}},
	} {
		for _, opts := range []onnxq.Options{{Bits: 4, Block: 32, ZeroPoint: true}, {Bits: 8, Block: 16, ZeroPoint: true, Style: spec.NBits}} {
			opts.Algorithm = c.algorithm
			o := quantized(t, in, c.samples, opts)
			if len(o.scales) == 0 || !o.passes(t) {
				t.Errorf("%s, %d bits: %d scales; it does not pass as it is, or has none", c.algorithm, opts.Bits, len(o.scales))
			}
			for _, s := range o.scales {
				for _, factor := range c.factors {
					if at := len(s.RawData) / 8; o.passesWith(t, s, at, at+1, factor) {
						t.Errorf("%s, %d bits: %s: element %d times %g passes", c.algorithm, opts.Bits, s.GetName(), at, factor)
					}
				}
			}
		}
	}
}

// Blocks that are far from 1 times as large as the weight are right where the scale of a superblock leaves few
// bits for theirs, and where data make awq clip.
func TestSoundGains(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	spiked, small := modeltest.Floats("w", 256, 256), modeltest.Floats("w", 256, 256)
	clear(small.FloatData)
	for i := range spiked.FloatData {
		spiked.FloatData[i] = float32(r.NormFloat64())
		if r.IntN(100) == 0 {
			spiked.FloatData[i] *= 50
		}
	}
	for row := range 32 { // two blocks of column 0: the min of the second is half a step of the superblock's
		small.FloatData[256*row], small.FloatData[256*(row+32)] = -1, -0.52/63
	}
	samples := similarRows(t, 400, 256, 2)
	for _, c := range []struct {
		w       *onnxpb.TensorProto
		samples string
		opts    onnxq.Options
	}{
		{spiked, samples, onnxq.Options{Bits: 4, Block: 16, Algorithm: spec.AWQ}},
		{spiked, samples, onnxq.Options{Bits: 4, Block: 128, Algorithm: spec.AWQ}},
		{spiked, samples, onnxq.Options{Bits: 4, Block: spec.PerChannel, Algorithm: spec.AWQ}},
		{small, "", onnxq.Options{Format: "q5_k"}},
	} {
		m := modeltest.Model(modeltest.Tensors{c.w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})
		m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
		m.Proto.Graph.Input[0].Type.GetTensorType().Shape = &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
			{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "rows"}}, {Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: c.w.Dims[0]}},
		}}
		if o := quantized(t, modeltest.Write(t, m), c.samples, c.opts); !o.passes(t) {
			t.Errorf("%s %s, blocks of %d: does not pass", c.opts.Algorithm, c.opts.Format, c.opts.Block)
		}
	}
}

// output is a quantized model, and the scales of its weights in float32.
type output struct {
	in     string
	model  *onnxpb.ModelProto
	scales []*onnxpb.TensorProto
}

// quantized quantizes a model, by samples if they are given, and records how.
func quantized(t *testing.T, in, samples string, opts onnxq.Options) output {
	t.Helper()
	command := fmt.Sprintf("--algorithm %s", opts.Algorithm)
	if samples != "" {
		data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
		if err := data.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		opts.Calibration = data
		command += " --calib x.npy"
	}
	opts.Provenance = &spec.Step{Tool: "onnxquant", Command: "convert", Options: command}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), opts), m); err != nil {
		t.Fatal(err)
	}
	written.Remove(m) // the limits are for models whose contents have no record
	return output{in, m, scalesOf(m)}
}

// passes reports whether the structure and the weights pass.
func (o output) passes(t *testing.T) bool {
	t.Helper()
	r, err := verify.Models(t.Context(), o.in, modeltest.Write(t, &testmodels.Model{Proto: o.model}), verify.Options{Engine: verify.None})
	if err != nil {
		t.Fatal(err)
	}
	return r.Passed
}

// passesWith does so with elements from … to of a tensor of scales times factor.
func (o output) passesWith(t *testing.T, s *onnxpb.TensorProto, from, to int, factor float32) bool {
	t.Helper()
	was := slices.Clone(s.RawData)
	for at := 4 * from; at < 4*to; at += 4 {
		binary.LittleEndian.PutUint32(s.RawData[at:], math.Float32bits(factor*math.Float32frombits(binary.LittleEndian.Uint32(was[at:]))))
	}
	passed := o.passes(t)
	copy(s.RawData, was)
	return passed
}

// scalesOf returns the stored scales of weights, in float32.
func scalesOf(m *onnxpb.ModelProto) (scales []*onnxpb.TensorProto) {
	named := map[string]*onnxpb.TensorProto{}
	for _, t := range m.Graph.Initializer {
		if t.GetDataType() == int32(dtype.Float32) {
			named[t.GetName()] = t
		}
	}
	for _, n := range m.Graph.Node {
		at := map[string]int{"DequantizeLinear": 1, "MatMulNBits": 2, "Mul": 1}[n.GetOpType()]
		if at > 0 && named[n.Input[at]] != nil {
			scales = append(scales, named[n.Input[at]])
		}
	}
	return scales
}

// similarRows makes a .npy file with rows of random numbers whose neighbours are alike. Only every so many
// columns are not zero.
func similarRows(t *testing.T, rows, columns, every int) string {
	t.Helper()
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns))
	r := rand.New(rand.NewPCG(1, 2))
	for range rows {
		x := r.NormFloat64()
		for i := range columns {
			x = 0.9*x + 0.4*r.NormFloat64()
			y := float32(0)
			if i%every == 0 {
				y = float32(x)
			}
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(y))
		}
	}
	path := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
