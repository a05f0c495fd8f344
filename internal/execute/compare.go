package execute

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/errstat"
)

// Comparison compares an output b with its reference a. Errors are b - a, element
// by element.
type Comparison struct {
	Name     string  `json:"name"`
	DType    string  `json:"dtype"`
	Dims     []int64 `json:"shape"`
	MaxError float64 `json:"max_error"`      // the largest |b - a|
	Relative float64 `json:"relative_error"` // MaxError over the largest |a|
	SQNR     float64 `json:"sqnr_db"`        // 10·log10(Σa² / Σ(b-a)²), at most 999; 999 if equal
	Cosine   float64 `json:"cosine"`         // Σab / √(Σa²·Σb²); 1 if both are zero
	Elements int     `json:"elements"`       // pairs that were compared: both are finite

	// Broken counts pairs with a NaN or infinity in one and another value in the
	// other. The sums leave them out.
	Broken int `json:"broken,omitempty"`
}

// exact replaces an infinite SQNR, which JSON cannot express.
const exact = 999

// Compare compares the outputs of two runs of the same model.
func Compare(a, b []*Tensor) ([]Comparison, error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("the models have %d and %d outputs", len(a), len(b))
	}
	list := []Comparison{}
	for i := range a {
		c, err := compare(a[i], b[i])
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", a[i].Name, err)
		}
		list = append(list, c)
	}
	return list, nil
}

func compare(a, b *Tensor) (Comparison, error) {
	c := Comparison{Name: a.Name, DType: a.DType.String(), Dims: a.Dims}
	if a.DType != b.DType || !slices.Equal(a.Dims, b.Dims) {
		return c, fmt.Errorf("one model returns %v %v, the other %v %v", a.DType, a.Dims, b.DType, b.Dims)
	}
	var aa, bb, ab, ee, peak float64
	y := b.Float64s()
	for i, x := range a.Float64s() {
		e := y[i] - x
		if same := x == y[i] || x != x && y[i] != y[i]; math.IsNaN(e) || math.IsInf(e, 0) {
			if !same {
				c.Broken++
			}
			continue
		}
		c.Elements++
		c.MaxError = max(c.MaxError, math.Abs(e))
		peak = max(peak, math.Abs(x))
		aa += x * x
		bb += y[i] * y[i]
		ab += x * y[i]
		ee += e * e
	}
	switch {
	case c.Elements == 0 && c.Broken > 0:
		c.SQNR = -errstat.Exact
	case c.MaxError == 0:
		c.SQNR, c.Cosine = errstat.Exact, 1
	default:
		c.Relative = math.MaxFloat64
		c.SQNR = -errstat.Exact
		if peak > 0 {
			c.Relative = min(c.MaxError/peak, math.MaxFloat64)
			c.SQNR = min(max(10*math.Log10(aa/ee), -errstat.Exact), errstat.Exact)
		}
		c.Cosine = 0
		if aa > 0 && bb > 0 {
			c.Cosine = ab / math.Sqrt(aa) / math.Sqrt(bb)
		}
	}
	return c, nil
}
