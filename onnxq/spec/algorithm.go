package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Algorithm is a way to find codes and scales.
type Algorithm string

// RTN rounds to the nearest code, ties to even.
const RTN Algorithm = "rtn"

// Algorithms lists every known algorithm.
func Algorithms() []Algorithm { return []Algorithm{RTN} }

// ParseAlgorithm returns the algorithm called name.
func ParseAlgorithm(name string) (Algorithm, error) {
	if a := Algorithm(name); slices.Contains(Algorithms(), a) {
		return a, nil
	}
	var known []string
	for _, a := range Algorithms() {
		known = append(known, string(a))
	}
	return "", fmt.Errorf("algorithm %q is not known (known: %s)", name, strings.Join(known, ", "))
}
