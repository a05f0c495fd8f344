//go:build amd64 && !purego

package kernels

import "testing"

// implementations makes the loops use one set of instructions after another, as
// far as the processor has them.
func implementations(tb testing.TB) func(yield func(name string) bool) {
	return func(yield func(name string) bool) {
		defer func(most instructionSet) { instructions = most }(instructions)
		for set := range instructions + 1 {
			instructions = set
			if !yield([]string{"go", "avx2", "avx512"}[set]) {
				return
			}
			if tb.Failed() {
				tb.Fatalf("with instructions %d", set)
			}
		}
	}
}
