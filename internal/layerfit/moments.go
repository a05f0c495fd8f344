package layerfit

import (
	"context"
	"math"

	"onnxquant/internal/linalg"
)

// rowsAtOnce is how many rows are added up at once, and how many are held out at most. Where each
// of many parts has rows of its own, fewer do.
func rowsAtOnce(parts int) (batch, held int) {
	if parts > 1 {
		return 64, 128
	}
	return 512, 512
}

// moments are sums over the rows x of a layer's inputs, or of a part of these.
type moments struct {
	k       int
	batch   int       // rows that are added up at once
	most    int       // rows that are held out
	h       []float32 // Σ xᵀ·x: the lower triangle
	targets []*target // by layer

	magnitude []float64 // Σ |x|
	sum       []float64 // Σ x

	x    []float32 // rows that are to be added
	held []float32 // rows that are not
	rows int64     // added so far
	bad  int64     // rows that are left out, with NaN or infinity

	unknown string // why its rows are not known, or ""

	centered bool // rows have the mean 0
}

// center takes the means from all rows: a bias has them.
func (m *moments) center() {
	if m.rows == 0 {
		return
	}
	n := float64(m.rows)
	mean := make([]float32, m.k)
	for i, x := range m.sum {
		mean[i] = float32(x / n)
		for j, y := range m.sum[:i+1] {
			m.h[i*m.k+j] -= float32(x * y / n)
		}
		m.h[i*m.k+i] = max(m.h[i*m.k+i], 0)
	}
	subtract(m.held, mean)
	for _, t := range m.targets {
		if t.g == nil {
			continue
		}
		for i, x := range m.sum {
			for j, y := range t.sum {
				t.g[i*t.n+j] -= float32(x * y / n)
			}
		}
		for j, y := range t.sum {
			mean = append(mean[:j], float32(y/n))
		}
		subtract(t.held, mean)
	}
	m.centered = true
}

// subtract takes a row from all rows.
func subtract(rows, row []float32) {
	for ; len(rows) >= len(row) && len(row) > 0; rows = rows[len(row):] {
		for i, v := range row {
			rows[i] -= v
		}
	}
}

// target collects how the product of a layer should change.
type target struct {
	n    int
	g    []float32 // Σ xᵀ·y, K rows of n, for residuals y of the product; nil if they are unknown
	sum  []float64 // Σ y
	y    []float32 // rows that are to be added
	held []float32
}

// newMoments returns the sums for one of some parts.
func newMoments(k, parts int, targets []*target) *moments {
	m := &moments{k: k, h: make([]float32, k*k), targets: targets, magnitude: make([]float64, k), sum: make([]float64, k)}
	m.batch, m.most = rowsAtOnce(parts)
	return m
}

// newTarget returns the target of n columns; known tells that there are products.
func newTarget(k, n int, known bool) *target {
	t := &target{n: n}
	if known {
		t.g, t.sum = make([]float32, k*n), make([]float64, n)
	}
	return t
}

// add adds a row, with the row of each target or nil, or holds it out.
func (m *moments) add(ctx context.Context, workers int, hold bool, x []float32, y [][]float32) error {
	if !finite(x) {
		m.bad++
		return nil
	}
	for _, row := range y {
		if !finite(row) {
			m.bad++
			return nil
		}
	}
	if hold {
		if len(m.held) < m.most*m.k {
			m.held = appendRow(m.held, x, m.most)
			for i, row := range y {
				m.targets[i].held = appendRow(m.targets[i].held, row, m.most)
			}
		}
		return nil
	}
	m.rows++
	for i, v := range x {
		m.magnitude[i] += math.Abs(float64(v))
		m.sum[i] += float64(v)
	}
	m.x = appendRow(m.x, x, m.batch)
	for i, row := range y {
		t := m.targets[i]
		t.y = appendRow(t.y, row, m.batch)
		for j, v := range row {
			t.sum[j] += float64(v)
		}
	}
	if len(m.x) < m.batch*m.k {
		return nil
	}
	return m.flush(ctx, workers)
}

// appendRow appends a row to rows. It makes room for most rows.
func appendRow(rows, row []float32, most int) []float32 {
	if rows == nil {
		rows = make([]float32, 0, most*len(row))
	}
	return append(rows, row...)
}

func finite(x []float32) bool {
	var sum float32
	for _, v := range x {
		sum += v - v
	}
	return sum == 0
}

// flush adds up the rows that are left.
func (m *moments) flush(ctx context.Context, workers int) error {
	n := len(m.x) / m.k
	if n == 0 {
		return nil
	}
	x := linalg.Of(m.x, n, m.k)
	if err := linalg.AddLower(ctx, workers, linalg.Of(m.h, m.k, m.k), 1, x.T(), x); err != nil {
		return err
	}
	m.x = m.x[:0]
	for _, t := range m.targets {
		if t.g == nil {
			continue
		}
		if err := linalg.Add(ctx, workers, linalg.Of(t.g, m.k, t.n), 1, x.T(), linalg.Of(t.y, n, t.n)); err != nil {
			return err
		}
		t.y = t.y[:0]
	}
	return nil
}
