package linalg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func random(seed uint64, rows, columns int) Matrix {
	r := rand.New(rand.NewPCG(seed, 1))
	m := Of(make([]float32, rows*columns), rows, columns)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

func (m Matrix) at(i, j int) float64 { return float64(m.Data[i*m.Row+j*m.Column]) }

// product is a·b in float64.
func product(a, b Matrix, i, j int) (sum float64) {
	for k := range a.Columns {
		sum += a.at(i, k) * b.at(k, j)
	}
	return sum
}

var shapes = [][3]int{{1, 1, 1}, {6, 16, 8}, {7, 17, 3}, {100, 33, 300}, {250, 300, 70}}

func TestAdd(t *testing.T) {
	for _, s := range shapes {
		a, b := random(1, s[0], s[2]), random(2, s[2], s[1])
		for name, pair := range map[string][2]Matrix{"plain": {a, b}, "transposed": {random(1, s[2], s[0]).T(), random(2, s[1], s[2]).T()}} {
			c := random(3, s[0], s[1])
			was := slices.Clone(c.Data)
			if err := Add(t.Context(), 2, c, -2, pair[0], pair[1]); err != nil {
				t.Fatal(err)
			}
			for i := range c.Rows {
				for j := range c.Columns {
					want := float64(was[i*c.Row+j]) - 2*product(pair[0], pair[1], i, j)
					if math.Abs(c.at(i, j)-want) > 1e-3 {
						t.Fatalf("%v %s: %v at %d, %d; want %v", s, name, c.at(i, j), i, j, want)
					}
				}
			}
			alone := Matrix{slices.Clone(was), c.Rows, c.Columns, c.Row, c.Column}
			new(Multiplier).Add(alone, -2, pair[0], pair[1])
			if !slices.Equal(alone.Data, c.Data) {
				t.Errorf("%v %s: another result on one worker", s, name)
			}
		}
	}
}

// Products with few rows, transposed operands and rows that are made are those of the definition, and the same on
// any number of workers.
func TestAddProducts(t *testing.T) {
	for _, s := range append(shapes, [3]int{1, 3000, 70}, [3]int{9, 50, 300}, [3]int{300, 2, 70}, [3]int{2, 40, 700}, [3]int{300, 600, 20}) {
		a, b, bT := random(1, s[0], s[2]), random(2, s[2], s[1]), random(2, s[1], s[2]).T()
		made := Product{A: a, B: Matrix{Rows: b.Rows, Columns: b.Columns}, Row: func(x []float32, k, j int) { copy(x, b.row(k)[j:]) }}
		products := []Product{{A: a, B: b}, {A: a, B: bT}, {A: random(1, s[2], s[0]).T(), B: b}, made}
		var first [][]float32
		starts, lasts := random(3, s[0], 1).Data, random(4, s[1], 1).Data
		for workers := range 3 {
			for i := range products {
				products[i].C = Of(make([]float32, s[0]*s[1]), s[0], s[1])
				products[i].C.Data[0] = 1
				if products[i].Fresh = i%2 == 1; products[i].Fresh {
					products[i].C.Data = slices.Repeat([]float32{float32(math.NaN())}, s[0]*s[1])
				}
				if i == 1 {
					products[i].Last = lasts
				}
				if i == 3 {
					products[i].Start = Matrix{starts, s[0], s[1], 1, 0}
				}
			}
			if err := AddProducts(t.Context(), workers+1, products); err != nil {
				t.Fatal(err)
			}
			for n, p := range products {
				if first = append(first, p.C.Data); !slices.Equal(first[n], p.C.Data) {
					t.Errorf("%v, product %d: another result on %d workers", s, n, workers+1)
				}
			}
		}
		for n, p := range products {
			b := p.B
			if p.Row != nil {
				b = products[0].B
			}
			if !p.Fresh {
				p.C.Data[0]--
			}
			for i := range s[0] {
				for j := range s[1] {
					if n == 1 {
						p.C.Data[i*s[1]+j] -= lasts[j]
					}
					if n == 3 {
						p.C.Data[i*s[1]+j] -= starts[i]
					}
					if want := product(p.A, b, i, j); math.Abs(p.C.at(i, j)-want) > 1e-3 {
						t.Fatalf("%v, product %d: %v at %d, %d; want %v", s, n, p.C.at(i, j), i, j, want)
					}
				}
			}
		}
	}
}

// What is added last is added as if the product were made first.
func TestLast(t *testing.T) {
	for _, s := range append(shapes, [3]int{1, 3000, 70}, [3]int{9, 50, 600}, [3]int{300, 2, 70}, [3]int{300, 60, 600}) {
		for name, b := range map[string]Matrix{"plain": random(2, s[2], s[1]), "transposed": random(2, s[1], s[2]).T()} {
			both := make([]Product, 2)
			last := random(4, s[1], 1).Data
			for i := range both {
				both[i] = Product{C: Of(make([]float32, s[0]*s[1]), s[0], s[1]), A: random(1, s[0], s[2]), B: b, Fresh: true}
			}
			both[1].Last = last
			if err := AddProducts(t.Context(), 2, both); err != nil {
				t.Fatal(err)
			}
			for i := range s[0] {
				row := both[0].C.row(i)
				for j := range row {
					row[j] += last[j]
				}
			}
			if !slices.Equal(both[0].C.Data, both[1].C.Data) {
				t.Errorf("%v, %s: another sum", s, name)
			}
		}
	}
}

// spd is a positive definite matrix.
func spd(t testing.TB, n int) Matrix {
	x := random(4, n+10, n)
	h := Of(make([]float32, n*n), n, n)
	if err := AddLower(t.Context(), 2, h, 1, x.T(), x); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		h.Data[i*n+i] += float32(n) / 10
		for j := range i {
			h.Data[j*n+i] = h.Data[i*n+j]
		}
	}
	return h
}

func TestCholesky(t *testing.T) {
	for _, n := range []int{1, 5, 48, 49, 150, 331} {
		h := spd(t, n)
		l := Of(slices.Clone(h.Data), n, n)
		if err := Cholesky(t.Context(), 2, l); err != nil {
			t.Fatal(err)
		}
		again := Of(slices.Clone(h.Data), n, n)
		if err := Cholesky(t.Context(), 1, again); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			for j := range n {
				if j > i {
					l.Data[i*n+j], again.Data[i*n+j] = 0, 0
				}
			}
		}
		if !slices.Equal(l.Data, again.Data) {
			t.Errorf("%d: another result on one worker", n)
		}
		for i := range n {
			for j := range i + 1 {
				if want := h.at(i, j); math.Abs(product(l, l.T(), i, j)-want) > 1e-5*h.at(i, i)+1e-4 {
					t.Fatalf("%d: L·Lᵀ is %v at %d, %d; want %v", n, product(l, l.T(), i, j), i, j, want)
				}
			}
		}
		b := random(5, 7, n)
		x := Of(slices.Clone(b.Data), 7, n)
		if err := DivideRight(t.Context(), 2, x, l); err != nil {
			t.Fatal(err)
		}
		for i := range 7 {
			for j := range n {
				if math.Abs(product(x, l.T(), i, j)-b.at(i, j)) > 1e-4 {
					t.Fatalf("%d: X·Lᵀ is %v at %d, %d; want %v", n, product(x, l.T(), i, j), i, j, b.at(i, j))
				}
			}
		}
	}
}

func TestCholeskyRefuses(t *testing.T) {
	for _, v := range []float32{0, -1, float32(math.NaN()), float32(math.Inf(1))} {
		h := spd(t, 100)
		h.Data[60*100+60] = v
		if err := Cholesky(context.Background(), 1, h); err != ErrNotPositive {
			t.Errorf("%v on the diagonal: %v", v, err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{256, 1024, 2048} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, c := random(1, n, n), Of(make([]float32, n*n), n, n)
			for b.Loop() {
				new(Multiplier).Add(c, 1, x.T(), x)
			}
			b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkCholesky(b *testing.B) {
	const n = 2048
	h := spd(b, n)
	for b.Loop() {
		if err := Cholesky(b.Context(), 1, Of(slices.Clone(h.Data), n, n)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*n*n/3*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func TestRate(t *testing.T) {
	if r := Rate(); !(r > 1e6) {
		t.Errorf("%g products a second", r)
	}
	if f := Free(2, 20*time.Millisecond); !(f >= 0 && f <= 1) { // 0: a coarse clock, or none
		t.Errorf("%g of two processors is free", f)
	}
}

// Parts and products of a symmetric matrix are the same, bit for bit, as those of an array with all of its elements.
func TestSymmetric(t *testing.T) {
	for _, n := range []int{1, 7, 16, 100, 600} {
		whole := spd(t, n)
		above, diagonal := slices.Clone(whole.Data), make([]float32, n)
		for i := range n {
			diagonal[i] = whole.Data[i*n+i]
			for j := range i + 1 {
				above[i*n+j] = float32(math.NaN())
			}
		}
		s := SymmetricOf(above, diagonal)
		packed, err := WholeSymmetric(whole.Data, diagonal).Packed(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		var m SymmetricMultiplier
		for _, part := range [][4]int{{0, 0, n, n}, {n / 2, 0, n - n/2, n}, {n / 3, n / 2, n - n/3, n - n/2}, {0, n / 2, n / 2, n - n/2}, {n / 2, 0, n - n/2, n / 2}} {
			i, j, rows, columns := part[0], part[1], part[2], part[3]
			if rows == 0 || columns == 0 {
				continue
			}
			want, got := whole.Part(i, j, rows, columns), s.Part(new([]float32), i, j, rows, columns)
			for y := range rows {
				for x := range columns {
					if got.at(y, x) != want.at(y, x) {
						t.Fatalf("%v: %v at %d, %d; want %v", part, got.at(y, x), y, x, want.at(y, x))
					}
				}
			}
			right, left := random(2, columns, 9), random(2, 9, rows)
			for _, name := range []string{"left", "right", "right of packed"} {
				across := name != "left"
				pair := [2]Matrix{random(3, rows, 9), random(3, rows, 9)}
				if across {
					pair = [2]Matrix{random(3, 9, columns), random(3, 9, columns)}
				}
				switch name {
				case "left":
					m.AddLeft(pair[0], s, i, j, right)
				case "right":
					m.AddRight(pair[0], left, s, i, j)
				default:
					m.AddRight(pair[0], left, packed, i, j)
				}
				if across {
					m.Add(pair[1], 1, left, want)
				} else {
					m.Add(pair[1], 1, want, right)
				}
				if !slices.Equal(pair[0].Data, pair[1].Data) {
					t.Errorf("%v: another product from the %s", part, name)
				}
			}
		}
	}
}

// A factor in the lower triangle leaves the elements above the diagonal as they are.
func TestFactorKeepsUpperTriangle(t *testing.T) {
	const n = 331
	both := spd(t, n)
	was := slices.Clone(both.Data)
	if err := Cholesky(t.Context(), 2, both); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if !slices.Equal(both.row(i)[i+1:], was[i*n+i+1:(i+1)*n]) {
			t.Fatalf("other elements in row %d", i)
		}
	}
	Mirror(both)
	for i := range n {
		for j := range i {
			if both.at(i, j) != both.at(j, i) {
				t.Fatalf("no mirror at %d, %d", i, j)
			}
		}
	}
}

// Sums are the same in any parts, and so are quotients of rows that are divided together or apart.
func TestPartsHaveTheSameSums(t *testing.T) {
	for _, size := range [][3]int{{1300, 700, 300}, {250, 1100, 257}, {1000, 40, 513}} {
		c, a, b := random(1, size[0], size[1]), random(2, size[0], size[2]), random(3, size[2], size[1])
		want := Of(slices.Clone(c.Data), c.Rows, c.Columns)
		new(Multiplier).Add(want, -1, a, b)
		for workers := range 3 {
			got := Of(slices.Clone(c.Data), c.Rows, c.Columns)
			if err := Add(t.Context(), workers+1, got, -1, a, b); err != nil || !slices.Equal(got.Data, want.Data) {
				t.Errorf("%v with %d workers: other sums (%v)", size, workers+1, err)
			}
		}
	}
	l, all := random(4, 130, 130), random(5, 70, 130)
	for i := range l.Rows {
		l.Data[i*l.Row+i] = 20
	}
	apart := Of(slices.Clone(all.Data), all.Rows, all.Columns)
	divide := func(b Matrix) {
		if err := errors.Join(DivideRight(t.Context(), 1, b, l), DivideRightTransposed(t.Context(), 1, b, l)); err != nil {
			t.Fatal(err)
		}
	}
	divide(all)
	for i := 0; i < apart.Rows; i += 9 {
		divide(apart.Part(i, 0, min(9, apart.Rows-i), apart.Columns))
	}
	if !slices.Equal(apart.Data, all.Data) {
		t.Error("rows that are divided apart have other quotients")
	}
}
