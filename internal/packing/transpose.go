package packing

import "encoding/binary"

// Transpose transposes rows × n elements.
func Transpose[T any](dst, src []T, rows, n int) {
	if d, ok := any(dst).([]byte); ok {
		transposeBytes(d, any(src).([]byte), rows, n)
		return
	}
	transpose(dst, src, rows, n, 0, rows, 0, n)
}

// transpose does a part: rows from first to last, and columns from left to right. It takes a
// few rows at a time so that dst stays in the CPU's cache.
func transpose[T any](dst, src []T, rows, n, first, last, left, right int) {
	const most = 16
	for ; first < last; first += most {
		end := min(first+most, last)
		for c := left; c < right; c++ {
			column := dst[c*rows+first : c*rows+end]
			for i := range column {
				column[i] = src[(first+i)*n+c]
			}
		}
	}
}

// transposeBytes takes squares of 8 × 8.
func transposeBytes(dst, src []byte, rows, n int) {
	squareRows, squareColumns := rows&^7, n&^7
	for r := 0; r < squareRows; r += 8 {
		for c := 0; c < squareColumns; c += 8 {
			transposeSquare(dst[c*rows+r:], src[r*n+c:], rows, n)
		}
	}
	transpose(dst, src, rows, n, 0, squareRows, squareColumns, n)
	transpose(dst, src, rows, n, squareRows, rows, 0, n)
}

// transposeSquare transposes 8 × 8 bytes. It swaps halves of rows, quarters and then single bytes.
func transposeSquare(dst, src []byte, rows, n int) {
	row := func(i int) uint64 { return binary.LittleEndian.Uint64(src[i*n:]) }
	a, e := swapped(row(0), row(4), 32, 0x00000000ffffffff)
	b, f := swapped(row(1), row(5), 32, 0x00000000ffffffff)
	c, g := swapped(row(2), row(6), 32, 0x00000000ffffffff)
	d, h := swapped(row(3), row(7), 32, 0x00000000ffffffff)
	a, c = swapped(a, c, 16, 0x0000ffff0000ffff)
	b, d = swapped(b, d, 16, 0x0000ffff0000ffff)
	e, g = swapped(e, g, 16, 0x0000ffff0000ffff)
	f, h = swapped(f, h, 16, 0x0000ffff0000ffff)
	column := func(i int, x, y uint64) {
		x, y = swapped(x, y, 8, 0x00ff00ff00ff00ff)
		binary.LittleEndian.PutUint64(dst[i*rows:], x)
		binary.LittleEndian.PutUint64(dst[(i+1)*rows:], y)
	}
	column(0, a, b)
	column(2, c, d)
	column(4, e, f)
	column(6, g, h)
}

// swapped exchanges the upper parts of a with the lower parts of b.
func swapped(a, b uint64, shift uint, lower uint64) (uint64, uint64) {
	change := (a>>shift ^ b) & lower
	return a ^ change<<shift, b ^ change
}
