package distribution

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// The rows of several runs are those of one run that has all of them, whatever kind of distribution the output is.
func TestRuns(t *testing.T) {
	tensor := func(name string, classes int64, x ...float64) *execute.Tensor {
		out, err := execute.FromFloat64s(dtype.Float32, []int64{int64(len(x)) / classes, classes}, x)
		if err != nil {
			t.Fatal(err)
		}
		out.Name = name
		return out
	}
	for _, c := range []struct {
		name    string
		classes int64
		a, b    [2][]float64
		want    string
	}{
		{"p", 2, [2][]float64{{0.25, 0.75}, {0.5, 0.5}}, [2][]float64{{0.75, 0.25}, {0.4, 0.6}}, Probabilities},
		{"p", 2, [2][]float64{{0.25, 0.75}, {0.5, 0.25}}, [2][]float64{{0.75, 0.25}, {0.4, 0.6}}, YesOrNo},
		{"p", 2, [2][]float64{{0.25, 0.75}, {5, 7}}, [2][]float64{{0.75, 0.25}, {0.4, 0.6}}, ""},
		{"logits", 2, [2][]float64{{0.25, 0.75}, {5, 7}}, [2][]float64{{0.75, 0.25}, {4, 6}}, Logits},
		{"logits", 2, [2][]float64{{0.25, 0.75}, {0.5, 0.5}}, [2][]float64{{0.75, 0.25}, {4, 6}}, Probabilities},
		{"log", 2, [2][]float64{{-0.6931, -0.6931}, {-0.6931, -0.6931}}, [2][]float64{{-0.5, -1}, {-1, -0.5}}, LogProbabilities},
		{"yes", 1, [2][]float64{{0.1, 0.9}, {0.3, 0.2}}, [2][]float64{{0.2, 0.8}, {0.6, 0.1}}, YesOrNo},
		{"log", 2, [2][]float64{{-0.6931, -0.6931}, {}}, [2][]float64{{-0.5, -1}, {}}, LogProbabilities},
		{"log", 2, [2][]float64{{}, {-0.6931, -0.6931}}, [2][]float64{{}, {-0.5, -1}}, LogProbabilities},
		{"p", 2, [2][]float64{{0.25, 0.75}, {}}, [2][]float64{{0.75, 0.25}, {}}, Probabilities},
		{"yes", 1, [2][]float64{{0.1, 0.9}, {}}, [2][]float64{{0.2, 0.8}, {}}, YesOrNo},
		{"p", 2, [2][]float64{{}, {}}, [2][]float64{{}, {}}, ""},
		{"p", 2, [2][]float64{{0.25, 0.75}, {0.5, 0.5}}, [2][]float64{{math.NaN(), 0.25}, {0.4, 0.6}}, ""},
	} {
		whole, runs := Comparison{Each: true}, Comparison{}
		for i := range c.a {
			runs.Add(tensor(c.name, c.classes, c.a[i]...), tensor(c.name, c.classes, c.b[i]...))
		}
		whole.Add(tensor(c.name, c.classes, append(c.a[0][:len(c.a[0]):len(c.a[0])], c.a[1]...)...), tensor(c.name, c.classes, append(c.b[0][:len(c.b[0]):len(c.b[0])], c.b[1]...)...))
		w, isWhole := whole.Result()
		r, isRuns := runs.Result()
		if w.Kind != c.want || r.Kind != c.want || isWhole != (c.want != "") || isRuns != isWhole {
			t.Errorf("%s: %q and %q, want %q", c.name, w.Kind, r.Kind, c.want)
		}
		if len(r.Divergences) > 0 || len(w.Divergences) != w.Rows || r.Rows != w.Rows || r.KL != w.KL || r.Top1 != w.Top1 || r.Information != w.Information {
			t.Errorf("%s: %+v, want %+v", c.name, r, w)
		}
	}
}

// Rows that add up to 1 are not compared as answers of yes, too: that takes several times as long, and memory for each value.
func TestManyProbabilities(t *testing.T) {
	const classes, rows = 1 << 10, mostUndecided >> 10
	tensor := func(n int, v float64) *execute.Tensor {
		x := make([]float64, n*classes)
		for i := range x {
			x[i] = v
		}
		out, err := execute.FromFloat64s(dtype.Float32, []int64{int64(n), classes}, x)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var c Comparison
	c.Each = true
	for _, n := range []int{rows, 1, rows + 1} {
		x := tensor(n, 1./classes)
		c.Add(x, x)
		if len(c.yes.divergences)+c.yes.rows > 0 || len(c.undecided[0]) > mostUndecided {
			t.Errorf("%d rows, %d values held", c.yes.rows, len(c.undecided[0]))
		}
	}
	if r, ok := c.Result(); !ok || r.Kind != Probabilities || r.Rows != 2*rows+2 || len(r.Divergences) != r.Rows {
		t.Errorf("%v, %s of %d rows", ok, r.Kind, r.Rows)
	}
	x := tensor(1, 0.5)
	if c.Add(x, x); !c.probabilities.never {
		t.Error("a row that does not add up to 1")
	}
	if r, ok := c.Result(); ok {
		t.Errorf("%s", r.Kind)
	}
}
