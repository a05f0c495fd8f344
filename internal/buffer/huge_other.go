//go:build !linux

package buffer

func advise[T any](n int64) []T { return make([]T, n) }
