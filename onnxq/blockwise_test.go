package onnxq

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/lazy"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// What a weight in a blockwise format decodes to is what the encoding gives for its rows
// or columns, filled up with zeros, in each style and however the weight is cut.
func TestBlockwiseValuesAreTheEncodings(t *testing.T) {
	for _, kind := range []string{"odd", "mlp", "conv"} {
		in := built(t, kind)
		for _, format := range spec.BlockwiseFormats() {
			for _, style := range []spec.Style{spec.DQ, spec.NBits} {
				if style == spec.NBits && !format.Format.Scaled() {
					continue
				}
				for _, limit := range []int64{8, 1000, greatestTile} {
					t.Run(fmt.Sprintf("%s/%s/%s/limit %d", kind, format.Format, style, limit), func(t *testing.T) {
						opts := Options{Format: format.Format, Style: style, Ops: []string{"all"}}
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
	p, err := opened(t, path).Plan(Options{Format: "q4_0", Ops: []string{"all"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.conv.to.weights {
		for i := range w.k {
			im.Columns[w.d.value.Name] = append(im.Columns[w.d.value.Name], float32(i%97)+0.5)
		}
	}
	return im
}

func checkBlocks(t *testing.T, in string, opts Options, limit int64) {
	r, out := convertedIn(t, opened(t, in), opts, limit)
	after := map[string]*recognize.Weight{}
	for _, w := range recognize.Weights(opened(t, out).index) {
		after[w.Name] = w
	}
	if len(r.Plan.conv.to.weights) == 0 {
		t.Fatal("no weights")
	}
	for _, w := range r.Plan.conv.to.weights {
		if (w.d.importance != nil) != (opts.Importance != nil) {
			t.Errorf("%s has the importance %v", w.d.value.Name, w.d.importance)
		}
		if opts.Style == spec.NBits && w.d.choice.style != spec.NBits && w.d.note == "" {
			t.Errorf("%s is in the style %s, and no note says why", w.d.value.Name, w.d.choice.style)
		}
		q := after[w.d.value.Name]
		if q == nil {
			q = after[w.codes.GetName()] // what operators decode for themselves has no name of its own
		}
		got := make([]float32, q.Elements())
		if err := q.Read(got, 0); err != nil {
			t.Fatal(err)
		}
		x := make([]float32, len(got))
		if err := lazy.ReadNumbers(&lazy.Arena{}, x, w.src, w.d.dtype, 0); err != nil {
			t.Fatal(err)
		}
		want := encodedColumns(t, w, x)
		if q.Transposed {
			turned := make([]float32, len(want))
			transpose(turned, want, int(w.d.shape[0]), int(w.d.shape[1]))
			want = turned
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s of shape %v: other values than %s has", w.d.value.Name, w.d.shape, w.encoding)
		}
	}
}

// encodedColumns encodes and decodes the elements of a weight, seen as [outer, k, inner],
// along k.
func encodedColumns(t *testing.T, w *weight, x []float32) []float32 {
	t.Helper()
	e, k := w.encoding, int(w.k)
	n := (k + e.Elements - 1) / e.Elements * e.Elements
	packed := make([]byte, n/e.Elements*e.Bytes)
	y := make([]float32, len(x))
	var importance []float32
	if w.d.importance != nil {
		importance = make([]float32, n)
		copy(importance, w.d.importance)
	}
	for o := range int(w.outer) {
		for i := range int(w.inner) {
			column := make([]float32, n)
			at := func(j int) int { return (o*k+j)*int(w.inner) + i }
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

// A weight that no float16 scale reaches stays in float.
func TestBlockwiseBeyondFloat16(t *testing.T) {
	m, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	path := written(t, m)
	in := opened(t, path)
	for _, format := range []spec.Format{"q8_0", "q4_k"} {
		p, err := in.Plan(Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		w := p.conv.to.weights[0]
		b := &buffers{}
		tl := slices.Collect(w.tiles(greatestTile))[0]
		n := tl.scales * tl.block
		buffer.Grow(&b.x, min(n, tl.n))
		b.x[0] = 1e38
		_, decoded, err := b.encodeBlocks(tl)
		if err != nil || decoded != nil {
			t.Errorf("%s: 1e38 has a scale: %v, %v", format, decoded, err)
		}
		if kernels.AbsMax(0, b.x) != 1e38 {
			t.Error("the elements have changed")
		}
	}
}

func TestCodesOf(t *testing.T) {
	for _, f := range spec.BlockwiseFormats() {
		e, _ := ggml.Lookup(string(f.Format))
		if bits := int(f.Codes.Bits()); bits < e.Form.Bits || bits/2 >= e.Form.Bits && bits > 2 {
			t.Errorf("%s: codes of %d bits in %d", e, e.Form.Bits, bits)
		}
	}
}
