package graph

import (
	"maps"
	"strconv"
)

// Names holds the names that a model uses, and finds new ones.
type Names struct {
	taken  map[string]bool
	suffix map[string]int // by hint: the last number tried
}

// NewNames returns the names of the model, to which the caller may add.
func (x *Graph) NewNames() *Names {
	return &Names{taken: maps.Clone(x.Names), suffix: map[string]int{}}
}

// Fresh returns hint if no name is so, or else hint_1, hint_2, …, and takes the name.
func (s *Names) Fresh(hint string) string {
	name := hint
	for s.taken[name] {
		s.suffix[hint]++
		name = hint + "_" + strconv.Itoa(s.suffix[hint])
	}
	s.taken[name] = true
	return name
}
