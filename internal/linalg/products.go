package linalg

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/work"
)

// Product is a product of matrices that is added to C, whose rows are contiguous.
type Product struct {
	C, A, B Matrix

	// Row is an alternative to the numbers of B: it sets x to the elements of row k from column j on.
	Row func(x []float32, k, j int)
}

// The most rows of A that are multiplied row by row, and the columns of a part of such a product.
const (
	fewRows  = 3
	fewWidth = 2048
)

// AddProducts adds products to their matrices, on several workers.
func AddProducts(ctx context.Context, workers int, products []Product) error {
	type part struct {
		p    *Product
		i, j int
	}
	var parts []part
	for n := range products {
		p := &products[n]
		down, across := height, width
		if p.few() {
			across = fewWidth
		}
		for i := 0; i < p.C.Rows; i += down {
			for j := 0; j < p.C.Columns; j += across {
				parts = append(parts, part{p, i, j})
			}
		}
	}
	if len(parts) == 1 {
		workers = 1
	}
	return work.Each(ctx, workers, len(parts), func(_ context.Context, m *productBuffers, i int) error {
		p := parts[i]
		switch {
		case p.p.few():
			p.p.addRows(m, p.j)
		case p.p.Row != nil:
			m.addPartMade(p.p, p.i, p.j)
		default:
			m.Multiplier.addPart(p.p.C, 1, p.p.A, p.p.B, p.i, p.j, false)
		}
		return nil
	})
}

// few reports whether a product is computed row by row, without packing.
func (p *Product) few() bool {
	return p.C.Rows <= fewRows && p.Row == nil && (p.B.Column == 1 || p.B.Row == 1)
}

// addRows adds to the columns of C from j on.
func (p *Product) addRows(m *productBuffers, j int) {
	columns := min(fewWidth, p.C.Columns-j)
	for i := range p.C.Rows {
		left, sums := buffer.Grow(&m.row, int64(p.A.Columns)), p.C.Data[i*p.C.Row+j:][:columns]
		for k := range left {
			left[k] = p.A.Data[i*p.A.Row+k*p.A.Column]
		}
		if p.B.Column == 1 {
			for k, v := range left {
				kernels.AddMultiple(sums, v, p.B.Data[k*p.B.Row+j:][:columns])
			}
			continue
		}
		for k := range sums {
			sums[k] += kernels.Dot(left, p.B.Data[(j+k)*p.B.Column:][:len(left)])
		}
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
		m.addTiles(p.C.Part(i, j, rows, columns), n, false, 0)
	}
}
