package lazy

// Arena lends buffers to one worker and reuses them. It is not for concurrent use.
type Arena struct {
	floats [][]float32
	bytes  [][]byte
}

// MaxRead is the most elements read at once, which bounds the buffers.
const MaxRead = 1 << 16

// Float32s lends a buffer of n elements until release is called.
func (a *Arena) Float32s(n int) (s []float32, release func()) { return lend(&a.floats, n) }
func (a *Arena) raw(n int) (s []byte, release func())         { return lend(&a.bytes, n) }

func lend[T any](free *[][]T, n int) ([]T, func()) {
	var s []T
	if last := len(*free) - 1; last >= 0 {
		s, *free = (*free)[last], (*free)[:last]
	}
	if cap(s) < n {
		s = make([]T, n)
	}
	return s[:n], func() { *free = append(*free, s) }
}
