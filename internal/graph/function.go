package graph

import (
	"fmt"

	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Function is one of the model's own functions.
type Function struct {
	Index  int // in the model's list of functions
	Proto  *onnxpb.FunctionProto
	Inputs []*Value
	Calls  []*onnxpb.NodeProto // nodes that call it

	callees []*Function
}

// FunctionKey identifies a function: its domain, name and overload in one string.
func FunctionKey(domain, name, overload string) string {
	if IsStandard(domain) {
		domain = ""
	}
	return fmt.Sprintf("%q %q %q", domain, name, overload)
}

// Called returns the function that a node calls, or nil if the node is an operator.
func (x *Graph) Called(n *onnxpb.NodeProto) *Function {
	if len(x.functions) == 0 {
		return nil // the usual case, without building a key
	}
	return x.functions[FunctionKey(n.GetDomain(), n.GetOpType(), n.GetOverload())]
}

// function adds a function of the model, with its body, to the index.
func (x *Graph) function(p *onnxpb.FunctionProto) error {
	path := p.GetDomain() + "." + p.GetName()
	if p.GetOverload() != "" {
		path += ":" + p.GetOverload()
	}
	f := &Function{Index: len(x.functions), Proto: p}
	key := FunctionKey(p.GetDomain(), p.GetName(), p.GetOverload())
	if x.functions[key] != nil {
		return fmt.Errorf("%s exists twice", msg.Quote(path))
	}
	x.functions[key] = f
	s := &Scope{Body: f, Values: map[string]*Value{}, path: path + "/"}
	for _, name := range p.Input {
		v := &Value{Name: name, Path: s.path + name, Input: true, Body: f}
		if err := s.define(v); err != nil {
			return err
		}
		f.Inputs = append(f.Inputs, v)
	}
	returned, err := x.body(p.Node, p.Output, s)
	for i, v := range returned {
		if v != nil {
			v.rarely().returned = append(v.Returned(), i)
		}
	}
	return err
}

// Nested reports whether a value is in the body of an If, Loop or Scan, or in a function called from
// one.
func (x *Graph) Nested(v *Value) bool {
	if v.Graph != nil {
		return v.Graph != x.File.Proto.Graph
	}
	if v.Body == nil {
		return false
	}
	callers := []*Function{v.Body}
	seen := map[*Function]bool{v.Body: true}
	for i := 0; i < len(callers); i++ {
		for _, call := range callers[i].Calls {
			home := x.Home(call)
			if home.Owner != nil {
				return true
			}
			if f := home.Body; f != nil && !seen[f] {
				seen[f] = true
				callers = append(callers, f)
			}
		}
	}
	return false
}

// linkCalls records which nodes call each function. Recursion is an error.
func (x *Graph) linkCalls() error {
	if len(x.functions) == 0 {
		return nil
	}
	WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if f := x.Called(n); f != nil {
			f.Calls = append(f.Calls, n)
			if body := x.Home(n).Body; body != nil {
				body.callees = append(body.callees, f)
			}
		}
	})
	const (
		open = 1 + iota
		done
	)
	state := map[*Function]int{}
	var visit func(f *Function) error
	visit = func(f *Function) error {
		switch state[f] {
		case open:
			return fmt.Errorf("function %s calls itself", msg.Quote(f.Proto.GetName()))
		case done:
			return nil
		}
		state[f] = open
		for _, g := range f.callees {
			if err := visit(g); err != nil {
				return err
			}
		}
		state[f] = done
		return nil
	}
	for _, p := range x.File.Proto.Functions {
		if err := visit(x.functions[FunctionKey(p.GetDomain(), p.GetName(), p.GetOverload())]); err != nil {
			return err
		}
	}
	return nil
}
