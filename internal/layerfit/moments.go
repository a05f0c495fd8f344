package layerfit

import (
	"context"

	"onnxquant/internal/linalg"
)

const (
	batch    = 512 // rows that are added up at once
	heldRows = 512 // rows that are held out, at most
)

// moments are sums over the rows x of a layer's inputs.
type moments struct {
	k       int
	h       []float32 // Σ xᵀ·x: the lower triangle
	targets []*target // by layer

	x    []float32 // rows that are to be added
	held []float32 // rows that are not
	rows int64     // added so far
	bad  int64     // rows that are left out, with NaN or infinity
}

// target is what the product of a layer should be.
type target struct {
	n    int
	g    []float32 // Σ xᵀ·y, K rows of n
	y    []float32 // rows that are to be added
	held []float32
}

func newMoments(k int, columns []int, products bool) *moments {
	m := &moments{k: k, h: make([]float32, k*k)}
	for _, n := range columns {
		t := &target{n: n}
		if products {
			t.g = make([]float32, k*n)
		}
		m.targets = append(m.targets, t)
	}
	return m
}

// add adds a row, with the row of each target, or holds it out.
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
		if len(m.held) < heldRows*m.k {
			m.held = appendRow(m.held, x, heldRows)
			for i, row := range y {
				m.targets[i].held = appendRow(m.targets[i].held, row, heldRows)
			}
		}
		return nil
	}
	m.rows++
	m.x = appendRow(m.x, x, batch)
	for i, row := range y {
		m.targets[i].y = appendRow(m.targets[i].y, row, batch)
	}
	if len(m.x) < batch*m.k {
		return nil
	}
	return m.flush(ctx, workers)
}

// appendRow appends a row to rows, of which there may be so many.
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
