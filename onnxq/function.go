package onnxq

import (
	"fmt"

	"onnxquant/internal/onnxpb"
)

// function is one of the model's own functions.
type function struct {
	proto   *onnxpb.FunctionProto
	inputs  []*value
	calls   []*onnxpb.NodeProto
	callees []*function
}

// functionKey is what a node calls a function by.
func functionKey(domain, name, overload string) string {
	if standardDomain(domain) {
		domain = ""
	}
	return fmt.Sprintf("%q %q %q", domain, name, overload)
}

// called returns the function that a node calls, or nil if it is an operator.
func (x *graphIndex) called(n *onnxpb.NodeProto) *function {
	if len(x.functions) == 0 {
		return nil // the usual case, fast
	}
	return x.functions[functionKey(n.GetDomain(), n.GetOpType(), n.GetOverload())]
}

// function indexes a function.
func (x *graphIndex) function(p *onnxpb.FunctionProto) error {
	path := p.GetDomain() + "." + p.GetName()
	if p.GetOverload() != "" {
		path += ":" + p.GetOverload()
	}
	f := &function{proto: p}
	key := functionKey(p.GetDomain(), p.GetName(), p.GetOverload())
	if x.functions[key] != nil {
		return fmt.Errorf("%s is there twice", quote(path))
	}
	x.functions[key] = f
	s := &scope{body: f, values: map[string]*value{}, path: path + "/"}
	for _, name := range p.Input {
		v := &value{name: name, path: s.path + name, input: true, body: f}
		if err := s.define(v); err != nil {
			return err
		}
		x.names[name] = true
		f.inputs = append(f.inputs, v)
	}
	ends, err := x.body(p.Node, p.Output, s)
	for i, v := range ends {
		if v != nil {
			v.returned = append(v.returned, i)
		}
	}
	return err
}

// linkCalls finds out who calls each function. None may come to call itself.
func (x *graphIndex) linkCalls() error {
	if len(x.functions) == 0 {
		return nil
	}
	walkNodes(x.file.Proto, func(n *onnxpb.NodeProto) {
		if f := x.called(n); f != nil {
			f.calls = append(f.calls, n)
			if body := x.home[n].body; body != nil {
				body.callees = append(body.callees, f)
			}
		}
	})
	const (
		open = 1 + iota
		done
	)
	state := map[*function]int{}
	var visit func(f *function) error
	visit = func(f *function) error {
		switch state[f] {
		case open:
			return fmt.Errorf("function %s calls itself", quote(f.proto.GetName()))
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
	for _, p := range x.file.Proto.Functions {
		if err := visit(x.functions[functionKey(p.GetDomain(), p.GetName(), p.GetOverload())]); err != nil {
			return err
		}
	}
	return nil
}
