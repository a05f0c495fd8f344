package write

import (
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
)

// CheckNodes refuses an output whose nodes break the definitions of their operators, as a checker does:
// attributes of another name or type, missing attributes, too many inputs. What the input, from, breaks
// as well is not looked at.
func (o *Output) CheckNodes(from *onnxpb.ModelProto) error {
	found := faults(o.proto)
	if len(found) == 0 {
		return nil
	}
	old := map[string]bool{}
	for _, f := range faults(from) {
		old[f.what] = true
	}
	for _, f := range found {
		if !old[f.what] {
			return fmt.Errorf("%w: the output would be invalid: %s: %s", graph.ErrModel, graph.Describe(f.node), f.what)
		}
	}
	return nil
}

// fault is what is wrong with a node.
type fault struct {
	node *onnxpb.NodeProto
	what string // the same for all nodes with this fault, at any opset
}

// faults finds the nodes of a model that break the definitions of their operators.
func faults(m *onnxpb.ModelProto) (list []fault) {
	own := map[[2]string]bool{} // functions of the model, which may be called as operators are
	for _, f := range m.Functions {
		own[[2]string{f.GetDomain(), f.GetName()}] = true
	}
	check := func(imports []*onnxpb.OperatorSetIdProto) func(*onnxpb.NodeProto) {
		versions := map[string]int64{graph.Contrib: 1}
		for _, i := range imports {
			domain := i.GetDomain()
			if graph.IsStandard(domain) {
				domain = ""
			}
			versions[domain] = i.GetVersion()
		}
		return func(n *onnxpb.NodeProto) {
			domain := n.GetDomain()
			if graph.IsStandard(domain) {
				domain = ""
			}
			if own[[2]string{n.GetDomain(), n.GetOpType()}] {
				return
			}
			if s := optypes.Of(domain, n.GetOpType(), versions[domain]); s != nil {
				for _, what := range breaks(n, s) {
					list = append(list, fault{n, what})
				}
			}
		}
	}
	visit := check(m.OpsetImport)
	graph.WalkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			visit(n)
		}
	})
	for _, f := range m.Functions {
		graph.WalkBody(f.Node, check(f.OpsetImport))
	}
	return list
}

// breaks says how a node breaks the definition of its operator.
func breaks(n *onnxpb.NodeProto, s *optypes.Signature) (list []string) {
	add := func(format string, args ...any) {
		list = append(list, n.GetOpType()+" "+fmt.Sprintf(format, args...))
	}
	if len(n.Input) > 0 {
		if _, ok := s.Input(len(n.Input) - 1); !ok {
			add("has fewer than %d inputs", len(n.Input))
		}
	}
	given := map[string]bool{}
	for _, a := range n.Attribute {
		name := a.GetName()
		given[name] = true
		switch kind, ok := s.Attributes[name]; {
		case !ok:
			add("has no attribute %s", msg.Quote(name))
		case a.GetType() != onnxpb.AttributeProto_UNDEFINED && a.GetType() != kind.Type:
			add("wants attribute %s to be %s, not %s", name, kind.Type, a.GetType())
		}
	}
	for name, kind := range s.Attributes {
		if kind.Required && !given[name] {
			add("wants attribute %s", name)
		}
	}
	return list
}
