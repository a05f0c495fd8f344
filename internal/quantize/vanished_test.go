package quantize_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/rules"
	"onnxquant/spec"
)

// tinyRows returns a model with a weight of 64 rows along the reduction axis. The first rows have 0
// and tiny numbers.
func tinyRows(t *testing.T, rows int, tiny float32) string {
	w := modeltest.Floats("w", 64, 32)
	for i := range w.FloatData {
		w.FloatData[i] = 0.1 * float32(i%7+1)
		if i < 32*rows {
			w.FloatData[i] = tiny * float32(i/32%2)
		}
	}
	return modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
}

// A warning names weights with vanished blocks.
func TestVanishedBlocks(t *testing.T) {
	const least = math.SmallestNonzeroFloat32
	for name, c := range map[string]struct {
		opts onnxq.Options
		rows int
		tiny float32
		want string // in a warning; "" without
	}{
		"int4":               {onnxq.Options{Block: 32}, 32, least, "50% of its elements became 0: they are too small for a scale of int4"},
		"int4 in 16":         {onnxq.Options{Block: 16}, 16, least, "25% of its"},
		"short blocks":       {onnxq.Options{Block: 48}, 48, least, "75% of its"},
		"int4, not so tiny":  {onnxq.Options{Block: 32}, 32, 1e-12, ""},
		"int4, none":         {onnxq.Options{Block: 32}, 0, least, ""},
		"int4, not all":      {onnxq.Options{Block: 32}, 31, least, ""},
		"int4, all 0":        {onnxq.Options{Block: 32}, 32, 0, ""},
		"uint4, zero points": {onnxq.Options{Block: 16, ZeroPoint: true}, 16, least, "25% of its"},
		"nvfp4":              {onnxq.Options{Format: spec.NVFP4}, 32, 1e-12, "50% of its"},
		"mxfp4":              {onnxq.Options{Format: spec.MXFP4, Target: spec.ORT}, 32, 1e-12, ""}, // scales down to 2^-127
		"q8_0":               {onnxq.Options{Format: "q8_0"}, 32, 1e-12, "50% of its elements became 0: they are too small for a scale of q8_0"},
		"q4_0":               {onnxq.Options{Format: "q4_0"}, 32, 1e-12, "50% of its"},
		"iq4_nl":             {onnxq.Options{Format: "iq4_nl"}, 32, 1e-12, "50% of its"},
		"q8_0, none":         {onnxq.Options{Format: "q8_0"}, 0, 1e-12, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := modeltest.Open(t, tinyRows(t, c.rows, c.tiny))
			for _, limit := range []int64{16, 100, modeltest.LargestTile} {
				r, _ := modeltest.ConvertInTiles(t, m, c.opts, limit)
				all := strings.Join(r.Plan.Warnings, "\n")
				if got := strings.Contains(all, "became 0"); got != (c.want != "") || !strings.Contains(all, c.want) {
					t.Errorf("tiles of %d: warnings %q, want %q", limit, all, c.want)
				}
			}
		})
	}
}

// Every encoding has float16 scales: numbers far below them become 0.
func TestVanishedBlocksOfEncodings(t *testing.T) {
	const rows, columns, tiny = 512, 8, 1e-9
	w := modeltest.Floats("w", rows, columns)
	for i := range w.FloatData {
		w.FloatData[i] = 0.1 * float32(i%7+1)
		if i < rows/2*columns {
			w.FloatData[i] = tiny * float32(i%5-2)
		}
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})))
	for _, f := range spec.BlockwiseFormats() {
		named, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "w", Override: spec.Override{Format: &f.Format}})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := modeltest.ConvertInTiles(t, m, onnxq.Options{Precision: named}, modeltest.LargestTile)
		want := `"w": 50% of its elements became 0: they are too small for a scale of ` + string(f.Format)
		if !strings.Contains(strings.Join(r.Plan.Warnings, "\n"), want) {
			t.Errorf("%s: warnings %q, want %q", f.Format, r.Plan.Warnings, want)
		}
	}
}

// float16 scales have few bits near 0. A warning names weights with such scales only if the same
// blocks with larger elements have much smaller errors.
func TestCoarseBlocks(t *testing.T) {
	const rows, columns = 512, 8
	for _, c := range []struct {
		format spec.Format
		size   float32 // of the elements of the first half of the rows
		coarse bool
	}{
		{"q8_0", 1e-2, false}, {"q8_0", 1e-3, false}, {"q8_0", 3e-5, true}, {"q8_0", 1e-5, true},
		{"q6_k", 1e-2, false}, {"q6_k", 3e-4, true},
		{"q4_k", 1e-2, false}, {"q4_0", 1e-5, false},
		{spec.Int8, 1e-5, false}, {spec.MXFP8, 1e-5, false}, {spec.NVFP4, 1e-5, false},
	} {
		w := modeltest.Floats("w", rows, columns)
		for i := range w.FloatData {
			w.FloatData[i] = float32(math.Sin(float64(i*i + 1)))
			if i < rows/2*columns {
				w.FloatData[i] *= c.size
			}
		}
		m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})))
		named, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "w", Override: spec.Override{Format: &c.format}})
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int64{300, modeltest.LargestTile} {
			r, _ := modeltest.ConvertInTiles(t, m, onnxq.Options{Precision: named}, limit)
			want := fmt.Sprintf("of its elements lose precision: they are so small that the float16 scales of %s have few bits; --bits 8 has float32 scales", c.format)
			if got := strings.Join(r.Plan.Warnings, "\n"); strings.Contains(got, "lose precision") != c.coarse || c.coarse && !strings.Contains(got, want) {
				t.Errorf("%s of %g in tiles of %d: warnings %q", c.format, c.size, limit, got)
			}
		}
	}
}

func TestVanishedBlocksInGGUF(t *testing.T) {
	for mix, want := range map[string]string{"Q8_0": `"w": 50% of its elements became 0: they are too small for Q8_0`, "F32": "", "BF16": ""} {
		p, err := ggufmodel.NewPlan(modeltest.Open(t, tinyRows(t, 32, 1e-12)), ggufmodel.Options{Mix: mix})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Write(t.Context(), filepath.Join(t.TempDir(), "out.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Warnings, "\n"); got != want {
			t.Errorf("%s: warnings %q, want %q", mix, got, want)
		}
	}
}

// GGUF files get the same warnings as ONNX models with the same encoding.
func TestCoarseBlocksInGGUF(t *testing.T) {
	const rows, columns = 512, 8
	for _, c := range []struct {
		mix    string
		format spec.Format
		size   float32
		coarse bool
	}{
		{"Q8_0", "q8_0", 1e-3, false}, {"Q8_0", "q8_0", 3e-5, true}, {"Q6_K", "q6_k", 3e-4, true},
		{"Q4_K_S", "q4_k", 1e-2, false}, {"Q4_0", "q4_0", 1e-5, false}, {"F32", "", 1e-6, false},
	} {
		w := modeltest.Floats("w", rows, columns)
		for i := range w.FloatData {
			w.FloatData[i] = float32(math.Sin(float64(i*i + 1)))
			if i < rows/2*columns {
				w.FloatData[i] *= c.size
			}
		}
		m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})))
		p, err := ggufmodel.NewPlan(m, ggufmodel.Options{Mix: c.mix, Pure: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Write(t.Context(), filepath.Join(t.TempDir(), "out.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.Warnings, "\n")
		if strings.Contains(got, "lose precision") != c.coarse {
			t.Errorf("%s of %g: warnings %q", c.mix, c.size, got)
		}
		if !c.coarse {
			continue
		}
		named, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "w", Override: spec.Override{Format: &c.format}})
		if err != nil {
			t.Fatal(err)
		}
		converted, _ := modeltest.ConvertInTiles(t, m, onnxq.Options{Precision: named}, modeltest.LargestTile)
		share, _, _ := strings.Cut(got, "% of its elements lose")
		if want := strings.Join(converted.Plan.Warnings, "\n"); !strings.HasPrefix(want, share+"% of its elements lose precision") {
			t.Errorf("%s of %g: warnings %q, of a conversion %q", c.mix, c.size, got, want)
		}
	}
}

// Where blocks would vanish behind scales of 16 or 8 bits, the weight gets float32 ones.
func TestScalesThatVanish(t *testing.T) {
	const rows, columns, tiny = 512, 64, 1e-12
	w := modeltest.Floats("w", rows, columns)
	for i := range w.FloatData {
		w.FloatData[i] = 0.1 * float32(i%7+1)
		if i < rows/2*columns {
			w.FloatData[i] = tiny * float32(i/columns%2)
		}
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})))
	for _, scales := range []spec.ScaleType{spec.ScaleFloat16, spec.ScaleInt8, spec.ScaleUint8} {
		for _, algorithm := range []spec.Algorithm{spec.RTN, spec.MSE, spec.Best} {
			for _, zero := range []bool{false, true} {
				opts := onnxq.Options{Bits: 4, Block: 32, ZeroPoint: zero, ScaleType: scales, Algorithm: algorithm, AllowFallback: true}
				if scales.Check(spec.Int4, zero, spec.DQ, algorithm) != nil {
					continue
				}
				r, _ := modeltest.ConvertInTiles(t, m, opts, modeltest.LargestTile)
				if text := strings.Join(r.Plan.Warnings, "\n"); strings.Contains(text, "became 0") {
					t.Errorf("%s %s %v: %s", scales, algorithm, zero, text)
				}
				want := int64(rows * columns / 32 * (4 + 16))
				if zero {
					want += rows * columns / 32 / 2
				}
				if got := r.Plan.Tensors[0].OutBytes; got != want {
					t.Errorf("%s %s %v: %d bytes, want %d", scales, algorithm, zero, got, want)
				}
			}
		}
	}
}
