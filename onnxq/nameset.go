package onnxq

import (
	"maps"
	"strconv"
)

// nameSet holds the names that a model uses, and finds new ones.
type nameSet struct {
	taken  map[string]bool
	suffix map[string]int // by hint: the last number tried
}

// newNames returns the names of the model, to which the caller may add.
func (x *graphIndex) newNames() *nameSet {
	return &nameSet{taken: maps.Clone(x.names), suffix: map[string]int{}}
}

// fresh returns hint if no name is so, or else hint_1, hint_2, …, and takes the name.
func (s *nameSet) fresh(hint string) string {
	name := hint
	for s.taken[name] {
		s.suffix[hint]++
		name = hint + "_" + strconv.Itoa(s.suffix[hint])
	}
	s.taken[name] = true
	return name
}
