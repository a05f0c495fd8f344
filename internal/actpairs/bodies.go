package actpairs

import "onnxquant/internal/graph"

// enter adds the nodes of a graph, and of the bodies of its Ifs whose values have ranges. Loop and Scan are not
// entered: the ranges of their values would be those of all iterations.
func (m *marking) enter(s *graph.Scope) {
	m.open[s] = true
	for _, n := range s.Graph.GetNode() {
		if graph.IsOperator(n, "If") {
			for _, a := range n.Attribute {
				for _, g := range graph.Subgraphs(a) {
					if body := m.x.Scope(g); m.observed(body) {
						m.enter(body)
					}
				}
			}
		}
		m.nodes = append(m.nodes, n)
	}
}

// observed reports whether a value of a body was observed. The file of ranges has its path.
func (m *marking) observed(s *graph.Scope) bool {
	for _, v := range s.Values {
		if _, ok := m.opts.Ranges.Of(v.Path); ok && v.Path != v.Name {
			return true
		}
	}
	return false
}

// homeOf returns the scope of a value, nil if it is not known.
func (m *marking) homeOf(v *graph.Value) *graph.Scope {
	switch {
	case v.Node != nil:
		return m.x.Home(v.Node)
	case v.Graph != nil:
		return m.x.Scope(v.Graph)
	}
	return m.main
}

// isOpen reports whether a value is of a graph that is quantized.
func (m *marking) isOpen(v *graph.Value) bool {
	s := m.homeOf(v)
	return s != nil && m.open[s] && s.Values[v.Name] == v
}
