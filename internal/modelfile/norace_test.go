//go:build !race

package modelfile

const slowdown = 1
