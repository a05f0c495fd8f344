package convert

import (
	"math"
	"testing"

	"onnxquant/calib"
	"onnxquant/internal/simplify"
	"onnxquant/rules"
)

// The range of a value that the unfolded model lacks follows from those of other values, as far as they are known.
func TestRangeOfNewValue(t *testing.T) {
	of, sum := calib.Range{Min: -1, Max: 2}, calib.Range{Min: -3, Max: 3}
	for _, c := range []struct {
		name    string
		ranges  map[string]calib.Range
		value   simplify.NewValue
		want    calib.Range
		unknown bool
	}{
		{"factors", map[string]calib.Range{"of": of}, simplify.NewValue{Of: "of", Factors: [2]float64{0.5, 2}}, calib.Range{Min: -2, Max: 4}, false},
		{"negative factors", map[string]calib.Range{"of": of}, simplify.NewValue{Of: "of", Factors: [2]float64{-2, 1}}, calib.Range{Min: -4, Max: 2}, false},
		{"a sum", map[string]calib.Range{"sum": sum}, simplify.NewValue{Factors: [2]float64{1, 1}, Sum: "sum", Added: [2]float64{-1, 0.5}}, calib.Range{Min: -3.5, Max: 4}, false},
		{"both", map[string]calib.Range{"of": of, "sum": sum}, simplify.NewValue{Of: "of", Factors: [2]float64{1, 2}, Sum: "sum", Added: [2]float64{0, 0}}, calib.Range{Min: -2, Max: 3}, false},
		{"none", map[string]calib.Range{"other": of}, simplify.NewValue{Of: "of", Sum: "sum"}, calib.Range{}, true},
	} {
		c.value.Path = "new"
		given := &rules.Ranges{Tensors: c.ranges}
		made := withNew(given, []simplify.NewValue{c.value})
		got, ok := made.Tensors["new"]
		if ok == c.unknown || math.Abs(got.Min-c.want.Min)+math.Abs(got.Max-c.want.Max) > 1e-12 {
			t.Errorf("%s: %v, %v; want %v", c.name, got, ok, c.want)
		}
		if _, ok := given.Tensors["new"]; ok {
			t.Errorf("%s: the given ranges changed", c.name)
		}
	}
	made := withNew(&rules.Ranges{NoRange: map[string]bool{"sum": true}}, []simplify.NewValue{{Path: "new", Sum: "sum"}})
	if !made.NoRange["new"] {
		t.Error("what makes a sum without a range has one")
	}
}
