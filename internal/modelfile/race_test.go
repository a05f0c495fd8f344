//go:build race

package modelfile

// slowdown is about that of the race detector.
const slowdown = 10
