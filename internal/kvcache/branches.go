package kvcache

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Merged decoders have an If: one branch reads no cache and makes it, the other one extends it. The cache of the encoder's keys and
// values is only read; that branch returns an empty constant for it, and programs keep what they have.

// merged finds the If whose branches read a cache, and its output with the longer one. why says that there is none.
func (s *scene) merged(c *Cache, in *onnxpb.ValueInfoProto) (why string) {
	const unknown = "the body of a node reads it"
	name, found := in.GetName(), -1
	for i, n := range s.g.Node {
		if !slices.Contains(n.Input, name) && slices.Contains(graph.Reads(n), name) {
			if found >= 0 || !graph.IsOperator(n, "If") {
				return unknown
			}
			found = i
		}
	}
	switch {
	case found < 0 || len(s.numbers(name)) > 0:
		return unknown
	case typeOf(in) != dtype.Float32:
		return fmt.Sprintf("the branches of an If read it as %s; in a merged decoder, only float32 caches become int8", typeOf(in))
	case len(dimsOf(in)) != 4:
		return fmt.Sprintf("the branches of an If read it with %s; a cache has 4", english.PluralWord(len(dimsOf(in)), "1 axis", fmt.Sprintf("%d axes", len(dimsOf(in)))))
	}
	n, at := s.g.Node[found], -1
	for _, a := range n.Attribute {
		for _, branch := range graph.Subgraphs(a) {
			k, why := readBranch(branch, n, name)
			switch {
			case why != "":
				return why
			case k >= 0 && at >= 0 && k != at:
				return "the branches of an If return it as two outputs"
			case k >= 0:
				at = k
			}
		}
	}
	if at < 0 {
		return unknown
	}
	c.node, c.out, c.Operator, c.merged = found, at, "If", true
	c.Heads, c.size = dimsOf(in)[1].GetDimValue(), max(dimsOf(in)[3].GetDimValue(), 0)
	if c.Output, c.behind = s.returned(n.Output[at], 0); c.Output == "" {
		return fmt.Sprintf("the longer cache of %s is no output", graph.Describe(n))
	}
	return s.private(*c)
}

// readBranch returns the output of a branch of an If that has the cache after the branch has read it; -1 if it does not read it.
func readBranch(g *onnxpb.GraphProto, owner *onnxpb.NodeProto, name string) (output int, why string) {
	s := newScene(g)
	if s.inside[name] {
		return -1, "a body inside of a branch reads it"
	}
	if len(s.readers[name]) == 0 {
		return -1, ""
	}
	position := func(value string) int {
		return slices.IndexFunc(g.Output, func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == value })
	}
	found := -1
	for _, u := range s.numbers(name) {
		n := s.g.Node[u.node]
		out, extends := s.extends(u)
		if axis := graph.IntAttribute(n, "axis"); !extends || graph.Operator(n) == groupQuery || graph.Operator(n) == concat && axis != 2 && axis != -2 {
			continue
		}
		if found >= 0 {
			return -1, "several operators extend it"
		}
		if len(n.Output) <= out || position(n.Output[out]) < 0 {
			return -1, fmt.Sprintf("the longer cache of %s is no output", graph.Describe(n))
		}
		found = position(n.Output[out])
	}
	if found >= 0 {
		return found, ""
	}
	// Nothing extends it: the branch returns it as it is, or nothing, under the name that belongs to the input.
	for k, o := range g.Output {
		if k < len(owner.Output) && kin(name, owner.Output[k]) && s.emptyOrSame(o.GetName(), name) {
			return k, ""
		}
	}
	return -1, "a branch of an If reads it, which neither extends it nor returns an empty cache in its place"
}

// kin reports whether an output is named like the cache of an input: past_key_values.0.encoder.key, present.0.encoder.key.
func kin(input, output string) bool {
	for _, past := range []string{"past_key_values", "past_key", "past_value", "past"} {
		if before, after, ok := strings.Cut(input, past); ok && output == before+strings.Replace(past, "past", "present", 1)+after {
			return true
		}
	}
	return output == strings.Replace(input, "past_key_values", "present", 1)
}

// emptyOrSame reports whether a value is a constant without elements, or another one unchanged.
func (s *scene) emptyOrSame(value, other string) bool {
	for range mostPassed {
		if value == other {
			return true
		}
		t := storedIn(s.g, value)
		if i, made := s.makers[value]; made {
			n := s.g.Node[i]
			if graph.IsOperator(n, "Identity") && len(n.Input) == 1 {
				value = n.Input[0]
				continue
			}
			if graph.IsOperator(n, "Constant") {
				t = graph.Attribute(n, "value").GetT()
			}
		}
		n, err := dtype.Elements(t.GetDims())
		return t != nil && err == nil && n == 0
	}
	return false
}

// renameInside makes bodies of a node read another value of the main graph.
func renameInside(n *onnxpb.NodeProto, name, to string) {
	for _, a := range n.Attribute {
		for _, g := range graph.Subgraphs(a) {
			for _, inner := range g.Node {
				for k, in := range inner.Input {
					if in == name {
						inner.Input[k] = to
					}
				}
			}
			for _, o := range g.Output { // a branch may return what it reads
				if o.GetName() == name {
					o.Name = &to
				}
			}
		}
	}
}
