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
	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
	"onnxquant/onnxq/activations"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
	"onnxquant/verify"
)

// Codes that data found pass. A weight fails whose scales are all half or twice as large, and so does one block
// whose scale is negated, zero or a hundred times as large: any block, not only the largest one.
func TestCalibratedScales(t *testing.T) {
	in := modeltest.Write(t, testmodels.MLP(3, 64, 64, 64))
	samples := filepath.Join(filepath.Dir(in), "x.npy")
	if err := os.WriteFile(samples, similarRows(40, 64), 0o600); err != nil {
		t.Fatal(err)
	}
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
			data := activations.New(in, []string{samples}, activations.Options{Engine: "go"})
			if err := data.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.opts.Algorithm, c.opts.Calibration = c.algorithm, data
			c.opts.Provenance = &provenance.Step{Tool: "onnxquant", Command: "convert", Options: fmt.Sprintf("--algorithm %s --calib x.npy", c.algorithm)}
			m := &onnxpb.ModelProto{}
			if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), c.opts), m); err != nil {
				t.Fatal(err)
			}
			passes := func() bool {
				r, err := verify.Models(t.Context(), in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
				if err != nil {
					t.Fatal(err)
				}
				return r.Passed
			}
			if !passes() {
				t.Fatal("it does not pass as it is")
			}
			scales := scalesOf(m)
			if len(scales) == 0 {
				t.Fatal("no scales are found")
			}
			for _, s := range scales {
				was := slices.Clone(s.RawData)
				for _, factor := range []float32{0.5, 2} {
					for at := 0; at < len(was); at += 4 {
						binary.LittleEndian.PutUint32(s.RawData[at:], math.Float32bits(factor*math.Float32frombits(binary.LittleEndian.Uint32(was[at:]))))
					}
					if passes() {
						t.Errorf("%s: times %g passes", s.GetName(), factor)
					}
				}
				copy(s.RawData, was)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for _, s := range scales {
				for _, factor := range []float32{-1, 0, 100} {
					at := 4 * r.IntN(len(s.RawData)/4)
					was := binary.LittleEndian.Uint32(s.RawData[at:])
					binary.LittleEndian.PutUint32(s.RawData[at:], math.Float32bits(factor*math.Float32frombits(was)))
					if passes() {
						t.Errorf("%s: element %d times %g passes", s.GetName(), at/4, factor)
					}
					binary.LittleEndian.PutUint32(s.RawData[at:], was)
				}
			}
		})
	}
}

// A block whose scale is half or twice as large fails. Where awq halves it, clipping may have done so.
func TestScaleOfOneBlock(t *testing.T) {
	in := modeltest.Write(t, testmodels.MLP(3, 64, 64, 64))
	samples := filepath.Join(filepath.Dir(in), "x.npy")
	if err := os.WriteFile(samples, similarRows(40, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []spec.Algorithm{spec.RTN, spec.LeastAngle, spec.HQQ, spec.Best, spec.GPTQ, spec.AWQ} {
		for _, c := range []onnxq.Options{{Bits: 4, Block: 32, ZeroPoint: true}, {Bits: 8, Block: 16, ZeroPoint: true, Style: spec.NBits}} {
			c.Algorithm = algorithm
			command := "--algorithm " + string(algorithm)
			if algorithm == spec.GPTQ || algorithm == spec.AWQ {
				data := activations.New(in, []string{samples}, activations.Options{Engine: "go"})
				if err := data.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.Calibration = data
				command += " --calib x.npy"
			}
			c.Provenance = &provenance.Step{Tool: "onnxquant", Command: "convert", Options: command}
			m := &onnxpb.ModelProto{}
			if err := proto.Unmarshal(modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), c), m); err != nil {
				t.Fatal(err)
			}
			passes := func() bool {
				r, err := verify.Models(t.Context(), in, modeltest.Write(t, &testmodels.Model{Proto: m}), verify.Options{Engine: verify.None})
				if err != nil {
					t.Fatal(err)
				}
				return r.Passed
			}
			if !passes() {
				t.Errorf("%s, %d bits: does not pass as it is", algorithm, c.Bits)
			}
			for _, s := range scalesOf(m) {
				at := len(s.RawData) / 8 * 4
				was := binary.LittleEndian.Uint32(s.RawData[at:])
				for _, factor := range []float32{0.5, 2} {
					binary.LittleEndian.PutUint32(s.RawData[at:], math.Float32bits(factor*math.Float32frombits(was)))
					if passes() && (algorithm != spec.AWQ || factor > 1) {
						t.Errorf("%s, %d bits: %s: element %d times %g passes", algorithm, c.Bits, s.GetName(), at/4, factor)
					}
				}
				binary.LittleEndian.PutUint32(s.RawData[at:], was)
			}
		}
	}
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

// similarRows is a .npy file with rows of random numbers whose neighbours are alike.
func similarRows(rows, columns int) []byte {
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns))
	r := rand.New(rand.NewPCG(1, 2))
	for range rows {
		x := r.NormFloat64()
		for range columns {
			x = 0.9*x + 0.4*r.NormFloat64()
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
	}
	return b
}
