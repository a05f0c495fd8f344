package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/fold"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/rules"
)

// checkNames refuses names and patterns that match nothing in the model, neither in x nor in given, from which x was
// simplified; given may be nil.
func checkNames(x, given *graph.Graph, groups []*fold.Group, o discover.Options) error {
	if o.Precision == nil && o.Include.Empty() && o.Exclude.Empty() {
		return nil
	}
	both := func(list func(*graph.Graph) []string) []string {
		names := list(x)
		if given != nil {
			names = append(names, list(given)...)
		}
		return names
	}
	names := both(TensorNames)
	for _, g := range groups {
		for _, p := range g.Parts {
			for _, v := range p.Values {
				names = append(names, v.Name, v.Path)
			}
		}
	}
	err := o.Precision.Unused(names)
	if err != nil { // a key may be the name of a node
		err = o.Precision.Unused(slices.Concat(names, both(discover.ReaderNames)))
	}
	if err != nil || o.Include.Empty() && o.Exclude.Empty() {
		return err
	}
	names = slices.Concat(names, both((*graph.Graph).NodeNames))
	return cmp.Or(checkPatterns(names, o.Include), checkPatterns(names, o.Exclude))
}

// TensorNames lists the names of float tensors that rules may use. A tensor in a subgraph
// has two: with and without its path.
func TensorNames(x *graph.Graph) []string {
	names := make([]string, 0, len(x.Values)) // one allocation: models may have very many tensors
	for _, v := range x.Values {
		if dtype.DType(v.Tensor.GetDataType()).Float() {
			names = append(names, v.Name)
			if v.Path != v.Name {
				names = append(names, v.Path)
			}
		}
	}
	return names
}

// checkPatterns refuses a pattern that matches no name. It is probably a typing error and would
// leave a weight with settings that the user does not want.
func checkPatterns(names []string, patterns *rules.Patterns) error {
	unused, found := patterns.Unused(names)
	if !found {
		return nil
	}
	message := fmt.Sprintf("no weight and no node is called %s", msg.Quote(unused))
	if near, ok := nearest.Name(unused, names); ok {
		return errors.New(message + "; did you mean " + msg.Quote(near) + "?")
	}
	return errors.New(message + "; onnxquant --dry-run lists the weights")
}
