//go:build !linux

package modelfile

func exchange(a, b string) error { return exchangeSlowly(a, b) }
