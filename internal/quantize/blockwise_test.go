package quantize_test

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/internal/lazy"
	"onnxquant/internal/packing"
	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// A weight in a blockwise format decodes to the encoding of its rows or columns, padded with zeros.
// This holds in each style and for any tiles.
func TestBlockwiseValuesAreTheEncodings(t *testing.T) {
	for _, kind := range []string{"odd", "mlp", "conv"} {
		in := modeltest.Build(t, kind)
		for _, format := range spec.BlockwiseFormats() {
			for _, style := range []spec.Style{spec.DQ, spec.NBits} {
				if style == spec.NBits && !format.Format.Scaled() {
					continue
				}
				for _, limit := range []int64{8, 1000, modeltest.LargestTile} {
					t.Run(fmt.Sprintf("%s/%s/%s/limit %d", kind, format.Format, style, limit), func(t *testing.T) {
						everywhere, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: spec.Override{Format: &format.Format}})
						if err != nil {
							t.Fatal(err)
						}
						opts := onnxq.Options{Precision: everywhere, Style: style, Ops: []string{"all"}}
						checkBlocks(t, in, opts, limit)
						opts.Importance = importanceOf(t, in)
						checkBlocks(t, in, opts, limit)
					})
				}
			}
		}
	}
}

// importanceOf makes up an importance matrix of a model.
func importanceOf(t *testing.T, path string) *rules.Importance {
	im := &rules.Importance{Source: "made up", Columns: map[string][]float32{}}
	p, err := modeltest.Open(t, path).Plan(onnxq.Options{Format: "q4_0", Ops: []string{"all"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.Stages().Weights {
		for i := range w.Form.K {
			im.Columns[w.Value.Name] = append(im.Columns[w.Value.Name], float32(i%97)+0.5)
		}
	}
	return im
}

func checkBlocks(t *testing.T, in string, opts onnxq.Options, limit int64) {
	r, out := modeltest.ConvertInTiles(t, modeltest.Open(t, in), opts, limit)
	p := r.Plan.Stages()
	after := map[string]*recognize.Weight{}
	for _, w := range recognize.Weights(modeltest.Open(t, out).Graph()) {
		after[w.Name] = w
	}
	if len(p.Weights) == 0 {
		t.Fatal("no weights")
	}
	for _, w := range p.Weights {
		if (w.Importance != nil) != (opts.Importance != nil) {
			t.Errorf("%s has the importance %v", w.Value.Name, w.Importance)
		}
		if opts.Style == spec.NBits && w.Choice.Style != spec.NBits && w.Note == "" {
			t.Errorf("%s is in the style %s, and no note says why", w.Value.Name, w.Choice.Style)
		}
		q := after[w.Value.Name]
		if q == nil {
			q = after[w.Tensors.Codes.GetName()] // operators that read codes leave no decoded weight
		}
		got := make([]float32, q.Elements())
		if err := q.Read(got, 0); err != nil {
			t.Fatal(err)
		}
		src, err := p.Graph().File.Payload(w.Value.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, len(got))
		if err := lazy.ReadNumbers(&lazy.Arena{}, x, src, w.DType, 0); err != nil {
			t.Fatal(err)
		}
		want := encodedColumns(t, w, x)
		if q.Transposed {
			transposed := make([]float32, len(want))
			packing.Transpose(transposed, want, int(w.Shape[0]), int(w.Shape[1]))
			want = transposed
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s of shape %v: values differ from those of %s", w.Value.Name, w.Shape, w.Choice.Format)
		}
	}
}

// encodedColumns encodes and decodes the elements of a weight, seen as [outer, k, inner],
// along k.
func encodedColumns(t *testing.T, w rewrite.Weight, x []float32) []float32 {
	t.Helper()
	e, f, k := w.Choice.Format.Encoding(), w.Form, int(w.Form.K)
	n := (k + e.Elements - 1) / e.Elements * e.Elements
	packed := make([]byte, n/e.Elements*e.Bytes)
	y := make([]float32, len(x))
	var importance []float32
	if w.Importance != nil {
		importance = make([]float32, n)
		copy(importance, w.Importance)
	}
	for o := range int(f.Outer) {
		for i := range int(f.Inner) {
			column := make([]float32, n)
			at := func(j int) int { return (o*k+j)*int(f.Inner) + i }
			for j := range k {
				column[j] = x[at(j)]
			}
			if err := e.Quantize(packed, column, n, importance, 1); err != nil {
				t.Fatal(err)
			}
			if err := e.Dequantize(column, packed, n, 1); err != nil {
				t.Fatal(err)
			}
			for j := range k {
				y[at(j)] = column[j]
			}
		}
	}
	return y
}
