package lazy

// Arena lends buffers to one worker.
type Arena struct {
	floats [][]float32
	bytes  [][]byte
}

// MaxRead bounds the elements that are read at once, and so the buffers.
const MaxRead = 1 << 16

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
