package graph

import (
	"maps"
	"strconv"
)

// Names is the set of names that a model uses, and makes new ones.
type Names struct {
	taken  map[string]bool
	suffix map[string]int // hint → last number tried
}

// NewNames returns a copy of the model's names. The caller owns it.
func (x *Graph) NewNames() *Names {
	return &Names{taken: maps.Clone(x.Names), suffix: map[string]int{}}
}

// Fresh returns hint, or hint_1, hint_2, … if that is taken, and marks the name as taken.
func (s *Names) Fresh(hint string) string {
	name := hint
	for s.taken[name] {
		s.suffix[hint]++
		name = hint + "_" + strconv.Itoa(s.suffix[hint])
	}
	s.taken[name] = true
	return name
}
