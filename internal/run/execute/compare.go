package execute

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
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

	// Broken counts pairs in which one value is NaN or infinite and the other differs. The sums leave
	// these pairs out.
	Broken int `json:"broken,omitempty"`
}

// Compare compares the outputs of two models, or of the same, in as many runs of each. The result
// has the types and dims of the first run.
func Compare(a, b [][]*Tensor) ([]Comparison, error) {
	list := []Comparison{}
	for i := range a[0] {
		c := &comparing{Comparison: Comparison{Name: a[0][i].Name, DType: a[0][i].DType.String(), Dims: a[0][i].Dims}}
		for run := range a {
			if len(a[run]) != len(b[run]) {
				return nil, fmt.Errorf("the models have %d and %d outputs", len(a[run]), len(b[run]))
			}
			if err := c.add(a[run][i], b[run][i]); err != nil {
				return nil, fmt.Errorf("output %q: %w", c.Name, err)
			}
		}
		list = append(list, c.finished())
	}
	return list, nil
}

// comparing has the sums of a Comparison.
type comparing struct {
	Comparison
	aa, bb, ab, ee, peak float64
}

// add adds the output of a run.
func (c *comparing) add(a, b *Tensor) error {
	if a.DType != b.DType || !slices.Equal(a.Dims, b.Dims) {
		return fmt.Errorf("one model returns %v %v, the other %v %v", a.DType, a.Dims, b.DType, b.Dims)
	}
	if len(a.List) != len(b.List) {
		return fmt.Errorf("one model returns a sequence of %d, the other of %d", len(a.List), len(b.List))
	}
	for i, t := range a.List {
		if err := c.add(t, b.List[i]); err != nil {
			return err
		}
	}
	if a.DType == dtype.String {
		c.addText(a.Text, b.Text)
		return nil
	}
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
		c.peak = max(c.peak, math.Abs(x))
		c.aa += x * x
		c.bb += y[i] * y[i]
		c.ab += x * y[i]
		c.ee += e * e
	}
	return nil
}

// addText adds strings: each counts as 1, and one that differs as an error of 1.
func (c *comparing) addText(a, b []string) {
	for i, text := range a {
		c.Elements++
		c.peak, c.aa, c.bb = 1, c.aa+1, c.bb+1
		if text == b[i] {
			c.ab++
			continue
		}
		c.MaxError, c.ee = 1, c.ee+1
	}
}

// finished returns the results of the sums.
func (c *comparing) finished() Comparison {
	switch {
	case c.Elements == 0 && c.Broken > 0:
		c.SQNR = -errstat.Exact
	case c.MaxError == 0:
		c.SQNR, c.Cosine = errstat.Exact, 1
	default:
		c.Relative = math.MaxFloat64
		c.SQNR = -errstat.Exact
		if c.peak > 0 {
			c.Relative = min(c.MaxError/c.peak, math.MaxFloat64)
			c.SQNR = min(max(10*math.Log10(c.aa/c.ee), -errstat.Exact), errstat.Exact)
		}
		c.Cosine = 0
		if c.aa > 0 && c.bb > 0 {
			c.Cosine = c.ab / math.Sqrt(c.aa) / math.Sqrt(c.bb)
		}
	}
	return c.Comparison
}
