package qlora

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
)

// nearest is the package comment's rule.
func nearest(t Table, v float32) byte {
	values := t.Values()
	best := 7 // NF4's 0
	if t == FP4 {
		best = 0
	}
	for i, w := range values {
		if t == FP4 && i == 8 {
			continue
		}
		d := math.Abs(float64(w) - float64(v))
		least := math.Abs(float64(values[best]) - float64(v))
		if d < least || d == least && math.Abs(float64(w)) < math.Abs(float64(values[best])) {
			best = i
		}
	}
	return byte(best)
}

func TestEncode(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for _, table := range []Table{NF4, FP4} {
		c := Codec{Table: table}
		values := table.Values()
		x := []float32{1, -1, 0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32}
		for range 10000 {
			x = append(x, r.Float32()*2-1)
		}
		for _, a := range values {
			for _, b := range values {
				m := (a + b) / 2
				x = append(x, m, math.Nextafter32(m, 1), math.Nextafter32(m, -1))
			}
		}
		q := make([]byte, len(x))
		c.EncodeBlocks(q, x, []float32{1}, nil, len(x), len(x))
		for i, v := range x {
			if want := nearest(table, v); q[i] != want {
				t.Fatalf("%s: %v has code %d, want %d", table, v, q[i], want)
			}
		}
	}
}

// Values become themselves, whatever the scale.
func TestValuesSurvive(t *testing.T) {
	for _, table := range []Table{NF4, FP4} {
		c := Codec{Table: table}
		for _, scale := range []float32{1, 0.125, 0x1p-100, 0x1p100} {
			var x []float32
			for _, v := range table.Values() {
				x = append(x, v*scale)
			}
			s, q, y := []float32{0}, make([]byte, 16), make([]float32, 16)
			c.ObserveBlocks(nil, s, x, 16, 16)
			if !c.Scales(s, nil, nil, s) || s[0] != scale {
				t.Fatalf("%s: scale %v, want %v", table, s[0], scale)
			}
			c.EncodeBlocks(q, x, s, nil, 16, 16)
			c.DecodeBlocks(y, q, s, nil, 16, 16)
			if !slices.Equal(x, y) {
				t.Errorf("%s: %v became %v", table, x, y)
			}
		}
	}
}

func TestTables(t *testing.T) {
	nf4 := NF4.Values()
	if !slices.IsSorted(nf4[:]) || nf4[0] != -1 || nf4[7] != 0 || nf4[15] != 1 {
		t.Errorf("NF4 is %v", nf4)
	}
	for i, want := range []float64{0, 0.0625, 8, 12, 4, 6, 2, 3} {
		v := FP4.Values()
		if got := float64(v[i]) * 12; math.Abs(got-want) > 1e-6 {
			t.Errorf("FP4: code %d is %v/12, want %v/12", i, got, want)
		}
		if v[i+8] != -v[i] {
			t.Errorf("FP4: code %d is %v, code %d %v", i+8, v[i+8], i, v[i])
		}
	}
}

func TestZeros(t *testing.T) {
	for _, table := range []Table{NF4, FP4} {
		c := Codec{Table: table}
		x, s, q := make([]float32, 4), []float32{0, 0}, make([]byte, 4)
		if !c.Scales(s, nil, nil, s) || s[0] != 0 {
			t.Errorf("%s: zeros have the scale %v", table, s[0])
		}
		c.EncodeColumns(q, x, s, nil)
		for _, code := range q {
			if table.Values()[code] != 0 {
				t.Errorf("%s: 0 has code %d", table, code)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Codec{{Table: 2}, {Type: dtype.Float64}, {Table: FP4, Type: dtype.Int32}} {
		if c.Validate() == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if err := (Codec{Table: FP4, Type: dtype.BFloat16}).Validate(); err != nil {
		t.Error(err)
	}
}

// With Reciprocal, quotients have the codes that comparing them with all limits gives, also beside
// the limits, of which FP4 has three near 0.
func TestLimits(t *testing.T) {
	for _, table := range []Table{NF4, FP4} {
		quotients := []float32{-1, -0.5, float32(math.Copysign(0, -1)), 0, 0.5, 1}
		for _, limit := range limits[table] {
			for _, x := range []float32{limit, -limit} {
				quotients = append(quotients, math.Nextafter32(x, -1), x, math.Nextafter32(x, 1))
			}
		}
		c := Codec{Table: table, Reciprocal: true}
		for _, x := range quotients {
			want := rank(table, x)
			if table == FP4 {
				if want = magnitudes[rank(table, max(x, -x))]; x < 0 {
					want += 8
				}
			}
			q := []byte{0}
			if c.QuantizeBlocks(q, []float32{x}, []float32{1}, nil, 1, 1); q[0] != want {
				t.Errorf("%s: %v has code %d, want %d", table, x, q[0], want)
			}
		}
	}
}

// With Reciprocal, blocks in columns and in rows have the same codes. They are those of the nearest
// values, except for quotients at a limit and for FP4's small negative ones.
func TestReciprocal(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, table := range []Table{NF4, FP4} {
		const rows, columns = 64, 700
		x, transposed := make([]float32, rows*columns), make([]float32, rows*columns)
		scale := make([]float32, columns)
		for i := range x {
			x[i] = float32(r.NormFloat64()) * float32(i%columns)
			if i%columns == 1 {
				x[i] = math.SmallestNonzeroFloat32 * float32(i%5)
			}
			transposed[i%columns*rows+i/columns] = x[i]
			scale[i%columns] = max(scale[i%columns], float32(math.Abs(float64(x[i]))))
		}
		c, usual := Codec{Table: table, Reciprocal: true}, Codec{Table: table}
		q, other, near := make([]byte, len(x)), make([]byte, len(x)), make([]byte, len(x))
		errors := c.QuantizeColumns(q, x, scale, nil)
		again := c.QuantizeBlocks(other, transposed, scale, nil, rows, rows)
		usual.QuantizeColumns(near, x, scale, nil)
		if errors.SumSq == 0 || math.Abs(errors.SumSqErr-again.SumSqErr) > 1e-9*errors.SumSqErr {
			t.Errorf("%s: errors %+v in columns, %+v in blocks", table, errors, again)
		}
		differ := 0
		for i := range q {
			if q[i] != other[i%columns*rows+i/columns] {
				t.Fatalf("%s: element %d has code %d in a column, %d in a block", table, i, q[i], other[i%columns*rows+i/columns])
			}
			if q[i] != near[i] && !(q[i] == 8 && table == FP4 && x[i] < 0) {
				differ++
			}
		}
		if differ > len(x)/1000 {
			t.Errorf("%s: %d of %d codes are not the nearest", table, differ, len(x))
		}
	}
}
