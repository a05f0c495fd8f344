package gradient

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/op"
)

// same is the rule of operators that hand on elements in their order.
func same(n *node) error {
	if n.wanted(0) {
		n.dx[0] = n.dy[0]
	}
	return nil
}

// selection is the rule of operators that copy elements of their inputs to outputs. The operator itself says
// which: it runs on the numbers of elements in place of the elements. Number 0 is an element that it made.
func selection(n *node) error { return selectBy(n, dtype.Int32) }

// replacement is selection for operators that may combine elements, which has no rule.
func replacement(n *node) error {
	if n.Text("reduction", "none") != "none" {
		return op.Unsupported("the gradient of reduction %q", n.Text("reduction", ""))
	}
	return selection(n)
}

// selectBy numbers elements by a type.
func selectBy(n *node, typ dtype.DType) error {
	in := make([]*execute.Tensor, len(n.In))
	first := make([]int, len(n.In)) // number of the first element of an input
	last := 0
	for i, t := range n.In {
		if in[i] = t; t == nil || !t.IsFloat() {
			continue
		}
		if typ == dtype.Float32 && !n.wanted(i) {
			continue
		}
		numbers, err := execute.New(typ, t.Dims)
		if err != nil {
			return err
		}
		if in[i] = numbers; !n.wanted(i) {
			continue
		}
		first[i] = last + 1
		n.room(i)
		if typ == dtype.Float32 {
			if t.Len() > 1<<24 {
				return op.Unsupported("more than %d elements", 1<<24)
			}
			x := make([]float32, t.Len())
			for k := range x {
				x[k] = float32(first[i] + k)
			}
			in[i] = execute.Made(typ, t.Dims, x)
		} else {
			x := make([]int32, t.Len())
			for k := range x {
				x[k] = int32(first[i] + k)
			}
			in[i] = execute.Made(typ, t.Dims, x)
		}
		last += t.Len()
	}
	c := *n.Call
	c.In = in
	out, err := evaluate.Operate(&c)
	if err != nil {
		return err
	}
	add := func(number int, g float32) {
		for i := len(first) - 1; i >= 0; i-- {
			if first[i] > 0 && number >= first[i] {
				n.dx[i][number-first[i]] += g
				return
			}
		}
	}
	for o, t := range out {
		if o >= len(n.dy) || n.dy[o] == nil {
			continue
		}
		if typ == dtype.Float32 {
			for k, number := range op.Floats(t) {
				add(int(number), n.dy[o][k])
			}
			continue
		}
		for k, number := range execute.Numbers[int32](t) {
			if number > 0 {
				add(int(number), n.dy[o][k])
			}
		}
	}
	return nil
}

// resize is the rule of Resize to the nearest element.
func resize(n *node) error {
	if n.Text("mode", "nearest") != "nearest" {
		return op.Unsupported("the gradient of a Resize with mode %s", n.Text("mode", ""))
	}
	return selectBy(n, dtype.Float32)
}
