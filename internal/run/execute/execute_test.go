package execute

import (
	"math"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
)

func floats(t *testing.T, x ...float32) []*Tensor {
	t.Helper()
	v, err := FromFloat32s(dtype.Float32, []int64{int64(len(x))}, x)
	if err != nil {
		t.Fatal(err)
	}
	return []*Tensor{v}
}

func TestCompare(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		a, b []*Tensor
		want Comparison
	}{
		{floats(t, 1, -2, inf, nan), floats(t, 1, -2, inf, nan), Comparison{SQNR: 999, Cosine: 1}},
		{floats(t, 0, 0), floats(t, 0, 0), Comparison{SQNR: 999, Cosine: 1}},
		{floats(t, 3, 4), floats(t, 3, 4.5), Comparison{MaxError: 0.5, Relative: 0.125, SQNR: 20, Cosine: 27 / (5 * math.Sqrt(29.25))}},
		{floats(t, 1, 2, nan), floats(t, 1, inf, 3), Comparison{SQNR: 999, Cosine: 1, Broken: 2}},
		{floats(t, 1, 2), floats(t, nan, nan), Comparison{SQNR: -999, Broken: 2}},
		{floats(t, 0), floats(t, 1), Comparison{MaxError: 1, Relative: math.MaxFloat64, SQNR: -999}},
	} {
		got, err := Compare([][]*Tensor{test.a}, [][]*Tensor{test.b})
		if err != nil {
			t.Fatal(err)
		}
		c := got[0]
		c.DType, c.Dims = "", nil
		if math.Abs(c.SQNR-test.want.SQNR) < 1e-9 && math.Abs(c.Cosine-test.want.Cosine) < 1e-9 {
			c.SQNR, c.Cosine = test.want.SQNR, test.want.Cosine
		}
		if c.MaxError != test.want.MaxError || c.Relative != test.want.Relative || c.SQNR != test.want.SQNR || c.Cosine != test.want.Cosine || c.Broken != test.want.Broken {
			t.Errorf("%+v, want %+v", c, test.want)
		}
	}
	if _, err := Compare([][]*Tensor{floats(t, 1)}, [][]*Tensor{floats(t, 1, 2)}); err == nil {
		t.Error("other dims are no error")
	}
	// Several runs are compared as one.
	c, err := Compare([][]*Tensor{floats(t, 3), floats(t, 4)}, [][]*Tensor{floats(t, 3), floats(t, 4.5)})
	if err != nil || math.Abs(c[0].SQNR-20) > 1e-9 || c[0].Elements != 2 || c[0].Relative != 0.125 {
		t.Errorf("two runs: %+v, %v", c, err)
	}
}

// Types keep their values on the way through both kinds of numbers.
func TestTensors(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Uint64} {
		v, err := FromInt64s(typ, []int64{3}, []int64{-1, 0, 127})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Int64s(), []int64{-1, 0, 127}) {
			t.Errorf("%v: %v", typ, v.Int64s())
		}
	}
	for _, typ := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		v, err := FromFloat64s(typ, []int64{3}, []float64{-1.5, 0, 96})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Float64s(), []float64{-1.5, 0, 96}) {
			t.Errorf("%v: %v", typ, v.Float64s())
		}
	}
	if _, err := New(dtype.Float32, []int64{1 << 40}); err == nil {
		t.Error("4 TiB are no error")
	}
}

// Strings and sequences are compared, too.
func TestCompareText(t *testing.T) {
	text := func(texts ...string) *Tensor {
		return &Tensor{Name: "s", DType: dtype.String, Dims: []int64{int64(len(texts))}, Text: texts}
	}
	list := func(items ...*Tensor) *Tensor { return &Tensor{Name: "l", List: items} }
	for _, c := range []struct {
		a, b      *Tensor
		n         int
		different float64
	}{
		{text("a", "b"), text("a", "b"), 2, 0},
		{text("a", "b"), text("a", "c"), 2, 1},
		{list(text("a")), list(text("a")), 1, 0},
		{list(text("a"), text("b")), list(text("c"), text("b")), 2, 1},
	} {
		got, err := Compare([][]*Tensor{{c.a}}, [][]*Tensor{{c.b}})
		if err != nil || got[0].Elements != c.n || got[0].MaxError != c.different {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := Compare([][]*Tensor{{list(text("a"))}}, [][]*Tensor{{list()}}); err == nil {
		t.Error("sequences of other lengths are no error")
	}
}
