package linalg

import (
	"context"
	"sync"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/work"
)

// Product is a product of matrices that is added to C, whose rows are contiguous.
type Product struct {
	C, A, B Matrix

	// Fresh says that the numbers of C are undefined before. The product is added to Start, or to 0 if it has no numbers.
	// Start has the shape of C; distances of 0 repeat its numbers. Its columns are 0 or 1 apart.
	Fresh bool
	Start Matrix

	// Last is added to each row in the end, or nil. Start has no numbers then, and C is fresh.
	Last []float32

	// Row is an alternative to the numbers of B: it sets x to the elements of row k from column j on.
	Row func(x []float32, k, j int)
}

// Products of at most few rows or columns are not packed. fewWidth is the columns of a part of a product with few
// rows.
const (
	few      = 4
	fewWidth = 2048
	little   = 1 << 18 // multiplications that are not worth a second worker
)

// buffers are those of workers that rest.
var buffers = sync.Pool{New: func() any { return new(productBuffers) }}

// AddProducts adds products to their matrices, on several workers.
func AddProducts(ctx context.Context, workers int, products []Product) error {
	type part struct {
		p    *Product
		i, j int
	}
	var parts []part
	for n := range products {
		p := &products[n]
		for i := 0; i < p.C.Rows; i += height {
			for j := 0; j < p.C.Columns; j += p.across() {
				parts = append(parts, part{p, i, j})
			}
		}
	}
	do := func(_ context.Context, _ *struct{}, i int) error {
		m := buffers.Get().(*productBuffers)
		defer buffers.Put(m)
		p := parts[i]
		m.begin = begin{p.p.Fresh, p.p.Start, p.p.Last}
		switch {
		case p.p.A.Columns == 0:
			m.begin.at(0, 0, 0, 0, 0).set(p.p.C.Part(p.i, p.j, min(height, p.p.C.Rows-p.i), min(p.p.across(), p.p.C.Columns-p.j)), p.i, p.j)
		case p.p.fewRows():
			p.p.addRows(m, p.j)
		case p.p.fewColumns():
			p.p.addColumns(m, p.i)
		case p.p.Row != nil:
			m.addPartMade(p.p, p.i, p.j)
		default:
			m.Multiplier.addPart(p.p.C, 1, p.p.A, p.p.B, p.i, p.j, false)
		}
		return nil
	}
	if len(parts) > 1 && products[0].C.Rows*products[0].C.Columns*products[0].A.Columns*len(products) > little {
		return work.Each(ctx, workers, len(parts), do)
	}
	for i := range parts {
		if err := do(ctx, nil, i); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// across is the columns of a part.
func (p *Product) across() int {
	if p.fewRows() {
		return fewWidth
	}
	return width
}

func (p *Product) fewRows() bool {
	return p.C.Rows <= few && p.Row == nil && (p.B.Column == 1 || p.B.Row == 1)
}

func (p *Product) fewColumns() bool { return p.C.Columns <= few && p.A.Column == 1 }

// addColumns adds to rows of C from i on.
func (p *Product) addColumns(m *productBuffers, i int) {
	rows, inner := min(height, p.C.Rows-i), p.A.Columns
	m.begin.at(0, 0, 0, inner, inner).set(p.C.Part(i, 0, rows, p.C.Columns), i, 0)
	columns := buffer.Grow(&m.row, int64(p.C.Columns*inner))
	row := buffer.Grow(&m.edge, few)
	for k := range inner {
		if p.Row != nil {
			p.Row(row[:p.C.Columns], k, 0)
		}
		for j := range p.C.Columns {
			if p.Row == nil {
				row[j] = p.B.Data[k*p.B.Row+j*p.B.Column]
			}
			columns[j*inner+k] = row[j]
		}
	}
	for r := i; r < i+rows; r++ {
		for j := range p.C.Columns {
			p.C.Data[r*p.C.Row+j] += kernels.Dot(p.A.row(r), columns[j*inner:][:inner])
		}
	}
}

// addRows adds to the columns of C from j on.
func (p *Product) addRows(m *productBuffers, j int) {
	columns := min(fewWidth, p.C.Columns-j)
	m.begin.set(p.C.Part(0, j, p.C.Rows, columns), 0, j)
	for i := range p.C.Rows {
		left, sums := buffer.Grow(&m.row, int64(p.A.Columns)), p.C.Data[i*p.C.Row+j:][:columns]
		for k := range left {
			left[k] = p.A.Data[i*p.A.Row+k*p.A.Column]
		}
		if p.B.Column == 1 {
			for k, v := range left {
				kernels.AddMultiple(sums, v, p.B.Data[k*p.B.Row+j:][:columns])
			}
			m.begin.finish(sums, j)
			continue
		}
		for k := range sums {
			sums[k] += kernels.Dot(left, p.B.Data[(j+k)*p.B.Column:][:len(left)])
		}
		m.begin.finish(sums, j)
	}
}

// productBuffers are what a worker owns.
type productBuffers struct {
	Multiplier
	row []float32
}

// addPartMade is addPart of Multiplier for a product with Row.
func (m *productBuffers) addPartMade(p *Product, i, j int) {
	rows, columns := min(height, p.C.Rows-i), min(width, p.C.Columns-j)
	for k := 0; k < p.A.Columns; k += depth {
		n := min(depth, p.A.Columns-k)
		m.packLeft(p.A.Part(i, k, rows, n), 1)
		right := buffer.Grow(&m.right, int64(up(columns, kernels.TileColumns)*n))
		row := buffer.Grow(&m.row, int64(up(columns, kernels.TileColumns)))
		clear(row[columns:])
		for y := range n {
			p.Row(row[:columns], k+y, j)
			for x := 0; x < len(row); x += kernels.TileColumns {
				*(*[kernels.TileColumns]float32)(right[x*n+y*kernels.TileColumns:]) = *(*[kernels.TileColumns]float32)(row[x:])
			}
		}
		m.addTiles(p.C.Part(i, j, rows, columns), n, false, 0, m.begin.at(i, j, k, n, p.A.Columns))
	}
}
