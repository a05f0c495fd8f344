// Package buffer has helpers for buffers that are reused. The caller owns the buffers.
package buffer

import "io"

// Grow sets the length of *s to n and returns it. Its elements are undefined.
func Grow[T any](s *[]T, n int64) []T {
	if int64(cap(*s)) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// ReadFull fills buf from offset off.
func ReadFull(r io.ReaderAt, buf []byte, off int64) error {
	n, err := r.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	return err
}
