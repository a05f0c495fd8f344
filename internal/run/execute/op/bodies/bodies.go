package bodies

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// truth returns the value of a condition.
func truth(t *execute.Tensor) (bool, error) {
	if t == nil || t.DType != dtype.Bool || t.Len() != 1 {
		return false, errors.New("its condition is not one truth value")
	}
	return t.Data[0] != 0, nil
}

// body returns a graph of the node that takes a number of inputs, at least.
func body(c *op.Call, name string, inputs int) (*onnxpb.GraphProto, error) {
	g := c.Attribute(name).GetG()
	if g == nil {
		return nil, errors.New("it has no attribute " + name)
	}
	if len(g.GetInput()) < inputs {
		return nil, fmt.Errorf("its body takes %d inputs, not %d", len(g.GetInput()), inputs)
	}
	return g, nil
}

func runIf(c *op.Call) ([]*execute.Tensor, error) {
	holds, err := truth(c.In[0])
	if err != nil {
		return nil, err
	}
	branch := "else_branch"
	if holds {
		branch = "then_branch"
	}
	g, err := body(c, branch, 0)
	if err != nil {
		return nil, err
	}
	return c.Body(g, nil)
}

// runLoop runs its body while the condition holds, at most as often as input 0 says.
func runLoop(c *op.Call) ([]*execute.Tensor, error) {
	if len(c.In) < 2 {
		return nil, op.ErrMissingInput
	}
	carried := slices.Clone(c.In[2:])
	g, err := body(c, "body", 2+len(carried))
	if err != nil {
		return nil, err
	}
	most, err := c.Whole(0, 1<<62)
	if err != nil {
		return nil, err
	}
	goOn := true
	if c.In[1] != nil {
		if goOn, err = truth(c.In[1]); err != nil {
			return nil, err
		}
	}
	scanned := collector{values: make([][]*execute.Tensor, max(len(g.GetOutput())-1-len(carried), 0))}
	for i := int64(0); i < most && goOn; i++ {
		condition := execute.Made(dtype.Bool, nil, []uint8{1})
		out, err := c.Body(g, slices.Concat([]*execute.Tensor{op.Int64(nil, []int64{i}), condition}, carried))
		if err != nil {
			return nil, err
		}
		if len(out) < 1+len(carried) {
			return nil, fmt.Errorf("its body has %d outputs", len(out))
		}
		if goOn, err = truth(out[0]); err != nil {
			return nil, err
		}
		carried = out[1 : 1+len(carried)]
		if err := scanned.add(c, out[1+len(carried):]); err != nil {
			return nil, err
		}
	}
	for k, parts := range scanned.values {
		t, err := stacked(c, parts, 0, false)
		if err != nil {
			return nil, err
		}
		if t == nil { // the body never ran
			t = empty(g.GetOutput()[1+len(carried)+k])
		}
		carried = append(carried, t)
	}
	return carried, nil
}

// collector keeps what a body returned in each turn, within the memory of a run.
type collector struct {
	values [][]*execute.Tensor // of each output
	bytes  int64
}

func (k *collector) add(c *op.Call, out []*execute.Tensor) error {
	for i, t := range out {
		k.values[i] = append(k.values[i], t)
		if t != nil {
			k.bytes += int64(t.Len() * t.Size())
		}
	}
	return c.Room(dtype.Uint8, []int64{k.bytes})
}

// empty is an output without elements.
func empty(info *onnxpb.ValueInfoProto) *execute.Tensor {
	typ := info.GetType().GetTensorType()
	dims := []int64{0}
	for _, d := range typ.GetShape().GetDim() {
		dims = append(dims, max(d.GetDimValue(), 0))
	}
	return &execute.Tensor{DType: dtype.DType(typ.GetElemType()), Dims: dims}
}

// stacked joins values along a new axis. Without values it is nil.
func stacked(c *op.Call, parts []*execute.Tensor, axis int64, reverse bool) (*execute.Tensor, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	a, err := op.Axis(axis, len(parts[0].Dims)+1)
	if err != nil {
		return nil, err
	}
	list := make([]*execute.Tensor, len(parts))
	for i, p := range parts {
		if p == nil || p.List != nil || len(p.Dims) != len(parts[0].Dims) {
			return nil, op.Unsupported("values of different shapes that are stacked")
		}
		list[i] = &execute.Tensor{DType: p.DType, Dims: slices.Insert(slices.Clone(p.Dims), a, 1), Data: p.Data, Text: p.Text}
	}
	if reverse {
		slices.Reverse(list)
	}
	dims := slices.Clone(list[0].Dims)
	dims[a] = int64(len(list))
	if err := c.Room(list[0].DType, dims); err != nil {
		return nil, err
	}
	return c.Concat(list, a)
}

// scan is a Scan whose numbers are checked.
type scan struct {
	body           *onnxpb.GraphProto
	states, inputs []*execute.Tensor
	axes           []int // of inputs
	back           []int64
	length         int64
}

func newScan(c *op.Call) (*scan, error) {
	n := int(c.Int("num_scan_inputs", 0))
	if n < 1 || n > len(c.In) || slices.Contains(c.In, nil) {
		return nil, op.Unsupported("%d scan inputs of %d", n, len(c.In))
	}
	s := &scan{states: c.In[:len(c.In)-n], inputs: c.In[len(c.In)-n:], back: c.Ints("scan_input_directions", make([]int64, n))}
	var err error
	if s.body, err = body(c, "body", len(c.In)); err != nil {
		return nil, err
	}
	list := c.Ints("scan_input_axes", make([]int64, n))
	if len(list) != n || len(s.back) != n {
		return nil, fmt.Errorf("%d scan_input_axes and %d scan_input_directions for %d inputs", len(list), len(s.back), n)
	}
	for i, t := range s.inputs {
		a, err := op.Axis(list[i], len(t.Dims))
		if err != nil {
			return nil, err
		}
		if s.axes = append(s.axes, a); i > 0 && t.Dims[a] != s.length {
			return nil, fmt.Errorf("scan inputs of length %d and %d", s.length, t.Dims[a])
		}
		s.length = t.Dims[a]
	}
	return s, nil
}

// step returns the inputs of the body for step i.
func (s *scan) step(c *op.Call, i int64) (in []*execute.Tensor, err error) {
	in = slices.Clone(s.states)
	for k, t := range s.inputs {
		at := i
		if s.back[k] != 0 {
			at = s.length - 1 - i
		}
		part, err := c.Slice(t, s.axes[k], at, 1)
		if err != nil {
			return nil, err
		}
		part.Dims = slices.Delete(slices.Clone(part.Dims), s.axes[k], s.axes[k]+1)
		in = append(in, part)
	}
	return in, nil
}

// runScan runs its body for each slice of its scan inputs.
func runScan(c *op.Call) ([]*execute.Tensor, error) {
	if c.Opset < 9 {
		return runScan8(c)
	}
	s, err := newScan(c)
	if err != nil {
		return nil, err
	}
	n := len(s.states)
	if len(s.body.GetOutput()) < n {
		return nil, fmt.Errorf("its body has %d outputs", len(s.body.GetOutput()))
	}
	outputs := len(s.body.GetOutput()) - n
	scanned := collector{values: make([][]*execute.Tensor, outputs)}
	for i := range s.length {
		in, err := s.step(c, i)
		if err != nil {
			return nil, err
		}
		out, err := c.Body(s.body, in)
		if err != nil {
			return nil, err
		}
		s.states = out[:n]
		if err := scanned.add(c, out[n:]); err != nil {
			return nil, err
		}
	}
	axes, back := c.Ints("scan_output_axes", make([]int64, outputs)), c.Ints("scan_output_directions", make([]int64, outputs))
	if len(axes) != outputs || len(back) != outputs {
		return nil, fmt.Errorf("%d scan_output_axes and %d scan_output_directions for %d outputs", len(axes), len(back), outputs)
	}
	results := slices.Clone(s.states)
	for k, parts := range scanned.values {
		t, err := stacked(c, parts, axes[k], back[k] != 0)
		if err != nil {
			return nil, err
		}
		if t == nil {
			t = empty(s.body.GetOutput()[n+k])
		}
		results = append(results, t)
	}
	return results, nil
}

// runScan8 is Scan of opset 8, for a batch of one.
func runScan8(c *op.Call) ([]*execute.Tensor, error) {
	in := slices.Clone(c.In)
	if len(in) < 2 || in[0] != nil || c.Attribute("directions") != nil {
		return nil, op.Unsupported("lengths or directions of opset 8")
	}
	for i, t := range in[1:] {
		if t == nil || len(t.Dims) < 1 || t.Dims[0] != 1 {
			return nil, op.Unsupported("a batch other than one in opset 8")
		}
		in[1+i] = &execute.Tensor{DType: t.DType, Dims: t.Dims[1:], Data: t.Data}
	}
	inner := *c
	inner.In, inner.Opset = in[1:], 9
	out, err := runScan(&inner)
	for i, t := range out {
		out[i] = &execute.Tensor{DType: t.DType, Dims: slices.Insert(slices.Clone(t.Dims), 0, 1), Data: t.Data}
	}
	return out, err
}
