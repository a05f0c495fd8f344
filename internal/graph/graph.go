package graph

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// ErrModel is wrapped by errors about the structure of an invalid model.
var ErrModel = errors.New("invalid model")

// Graph is the index of a model. It must be treated as immutable: all stages share it.
type Graph struct {
	Values  []*Value                    // values stored in a tensor (initializers and Constant nodes), in file order
	Unusual []*Value                    // float values stored in another way
	numbers map[*onnxpb.NodeProto]int32 // of nodes, from 1 on
	places  []place                     // of nodes, by number
	recent  atomic.Int32                // number that was found last
	latest  atomic.Int32                // position in Values of the initializer that was found last
	sorted  bool                        // the nodes of the main graph are in order, and have no subgraphs
	File    *modelfile.Model

	Returned  map[*onnxpb.GraphProto][]*Value // graph → values of its outputs
	arguments map[*onnxpb.GraphProto][]*Value // graph → values of its inputs
	carried   map[*onnxpb.NodeProto][]*Value  // Loop or Scan → by state, the input of the body, if the body hands it on unchanged
	functions map[string]*Function            // by FunctionKey
	scopes    map[*onnxpb.GraphProto]*Scope

	paths  map[string]*Scope // of subgraphs
	suffix map[string]int    // path → last suffix tried
	ir     int64             // IR version
	Opset  int64

	naming    sync.Once // makes names, see Named
	names     []uint64  // hashes, sorted
	finding   sync.Once // makes elsewhere, see Elsewhere
	elsewhere []located
	holding   sync.Once // makes held, see Held
	held      map[*onnxpb.TensorProto][]*Value
}

// place is the position of a node with its inputs and outputs.
type place struct {
	node   *onnxpb.NodeProto
	home   *Scope
	values []*Value // outputs and inputs by position; nil if omitted
}

// ShareNames lets equal names of values and operators share memory: a large model repeats each name
// wherever the value is read. Call it before anything else uses the graph or the model.
func (x *Graph) ShareNames() {
	operators := map[string]*string{}
	WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		for i, v := range x.Inputs(n) {
			if v != nil {
				n.Input[i] = v.Name
			}
		}
		if shared := operators[n.GetOpType()]; shared != nil {
			n.OpType = shared
		} else if n.OpType != nil {
			operators[*n.OpType] = n.OpType
		}
	})
}

// Home returns the scope that contains a node.
func (x *Graph) Home(n *onnxpb.NodeProto) *Scope { return x.places[x.Number(n)].home }

// Outputs returns the values that a node makes, by position; nil where one is omitted.
func (x *Graph) Outputs(n *onnxpb.NodeProto) []*Value {
	values := x.places[x.Number(n)].values
	return values[:min(len(values), len(n.GetOutput()))]
}

// Inputs returns the values that a node reads, by position; nil where one is omitted.
func (x *Graph) Inputs(n *onnxpb.NodeProto) []*Value {
	values := x.places[x.Number(n)].values
	return values[min(len(values), len(n.GetOutput())):]
}

// Source returns the value of an input, or nil if it is omitted.
func (x *Graph) Source(n *onnxpb.NodeProto, input int) *Value {
	if inputs := x.Inputs(n); input < len(inputs) {
		return inputs[input]
	}
	return nil
}

// Made returns the first output of a node, or nil if it has none.
func (x *Graph) Made(n *onnxpb.NodeProto) *Value {
	for _, v := range x.Outputs(n) {
		if v != nil {
			return v
		}
	}
	return nil
}

// Elsewhere iterates, by location, over tensors that are not values: tensors in training_info and in
// attributes of nodes other than Constant.
func (x *Graph) Elsewhere() iter.Seq2[string, *onnxpb.TensorProto] {
	x.finding.Do(x.findElsewhere)
	return func(yield func(string, *onnxpb.TensorProto) bool) {
		for _, l := range x.elsewhere {
			if !yield(l.where, l.tensor) {
				return
			}
		}
	}
}

// Held returns the values that are stored in a tensor: several where a function is inlined in several places.
func (x *Graph) Held(t *onnxpb.TensorProto) []*Value {
	x.holding.Do(func() {
		x.held = make(map[*onnxpb.TensorProto][]*Value, len(x.Values))
		for _, v := range x.Values {
			x.held[v.Tensor] = append(x.held[v.Tensor], v)
		}
	})
	return x.held[t]
}

// located is a tensor that is no value.
type located struct {
	where  string
	tensor *onnxpb.TensorProto
}

func (x *Graph) findElsewhere() {
	held := map[*onnxpb.TensorProto]bool{} // without initializers of the main graph
	for _, v := range x.Values {
		if x.initializer(v.Tensor) == nil {
			held[v.Tensor] = true
		}
	}
	for _, v := range x.Unusual {
		held[v.Unusual().Sparse.GetValues()] = true
	}
	for where, t := range modelfile.Tensors(x.File.Proto) {
		if !held[t] && x.initializer(t) == nil {
			x.elsewhere = append(x.elsewhere, located{where.String(), t})
		}
	}
}

// initializer returns the value of an initializer of the main graph, nil for any other tensor.
func (x *Graph) initializer(t *onnxpb.TensorProto) *Value {
	if t == nil {
		return nil
	}
	main := x.File.Proto.Graph
	// As in Number, the next one is found without a map.
	if at := int(x.latest.Load()) + 1; at < len(x.Values) {
		if v := x.Values[at]; v.Tensor == t && v.Node == nil && v.Graph == main {
			x.latest.Store(v.at)
			return v
		}
	}
	if v := x.scopes[main].Values[t.GetName()]; v != nil && v.Tensor == t {
		x.latest.Store(v.at)
		return v
	}
	return nil
}

// Scope returns the scope of a graph of the model.
func (x *Graph) Scope(g *onnxpb.GraphProto) *Scope { return x.scopes[g] }

// Scanned reports whether the body of a Scan reads a value from outside the body.
func (x *Graph) Scanned(v *Value) bool {
	return slices.ContainsFunc(v.Uses, func(u Use) bool {
		for s := x.Home(u.Node); s != nil && s.Values[v.Name] != v; s = s.outer {
			if s.Owner.GetOpType() == "Scan" {
				return true
			}
		}
		return false
	})
}

// Nodes is the number of nodes.
func (x *Graph) Nodes() int { return len(x.numbers) }

// Number identifies a node of the model: from 1 on, in an order that follows from the model.
// It is 0 for nil.
func (x *Graph) Number(n *onnxpb.NodeProto) int {
	if n == nil {
		return 0
	}
	// Nodes are mostly visited in order, so a look at the neighbours is faster than the map.
	recent := x.recent.Load()
	for _, near := range []int32{recent, recent + 1, recent - 1} {
		if near >= 0 && int(near) < len(x.places) && x.places[near].node == n {
			x.recent.Store(near)
			return int(near)
		}
	}
	number, ok := x.numbers[n]
	if ok {
		x.recent.Store(number)
	}
	return int(number)
}

// Position returns the position of a node as numbers: those of the nodes whose subgraphs contain it,
// outermost first, then its own.
func (x *Graph) Position(n *onnxpb.NodeProto) (at []int) {
	for ; n != nil; n = x.Home(n).Owner {
		at = append(at, x.Number(n))
	}
	slices.Reverse(at)
	return at
}
