package checkpoint

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/coded"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// codes are a weight that a checkpoint stores as codes: (code - zero point) · scale, or a table's entry · scale. Mins are
// subtracted from that.
type codes struct {
	from   string // what wrote them
	format spec.Format
	k, n   int64
	block  int64 // elements of K that share a scale
	down   bool  // tensors are [K,N], [K/block,N]; else [N,K], [N,K/block]

	codes, scales, zeros, mins *lazy.Tensor // zeros and mins may be nil
	table                      []float32    // values of the codes, or nil
	whole                      float32      // scale of the scales, which are E4M3 then; or 0
	loose                      *lazy.Tensor // the elements, where a format of ours does not have the codes: why says so
	why                        string

	order []int32 // of act-order: indices of K, group by group; nil if they are in order, or groups differ in size

	uses []string // names of the tensors
}

// piece is a tensor of the checkpoint, or a weight in codes.
type piece struct {
	name  string
	plain *tensor
	codes *codes
	stack *stack // of experts; codes are its codes then, or nil

	first, count int64 // rows of plain that it is; count 0: all
}

// shape is the shape in the checkpoint, of weights [N,K].
func (p *piece) shape() []int64 {
	if p.codes != nil {
		return []int64{p.codes.n, p.codes.k}
	}
	return p.plain.Shape
}

// stacked reports whether the piece has matrices of several experts.
func (p *piece) stacked() bool { return p.plain != nil && len(p.plain.Shape) == 3 }

// cut leaves the rows of a weight in codes that the piece is.
func (p *piece) cut() error {
	if p.codes == nil {
		return nil
	}
	if p.codes.loose != nil {
		return fmt.Errorf("tensor %s: a part of a weight with %s is not read", msg.Quote(p.name), p.codes.why)
	}
	q, axis := *p.codes, 0
	if q.down {
		axis = 1
	}
	q.n, q.codes, q.scales = p.count, q.codes.Sliced(axis, p.first, 1, p.count), q.scales.Sliced(axis, p.first, 1, p.count)
	for _, t := range []**lazy.Tensor{&q.zeros, &q.mins} {
		if *t != nil {
			*t = (*t).Sliced(axis, p.first, 1, p.count)
		}
	}
	p.codes = &q
	return nil
}

// readers find weights in codes by the names of their tensors, which begin with the name of the module.
var readers = []struct {
	end  string // of the tensor that has the codes
	read func(c *checkpoint, module string) (*codes, error)
}{
	{"qweight", (*checkpoint).packedDown},
	{"weight_packed", (*checkpoint).compressed},
	{"weight.absmax", (*checkpoint).tabled},
	{"SCB", (*checkpoint).rows127},
	{"scales", (*checkpoint).affine},
	{"weight_scale_2", (*checkpoint).twoLevels},
	{"weight_scale", (*checkpoint).bytesScaled},
}

// coded returns the weight of that name if the checkpoint has it as codes, or nil.
func (c *checkpoint) coded(name string) (*codes, error) {
	module, ok := strings.CutSuffix(name, "weight")
	if !ok {
		return nil, nil
	}
	for _, r := range readers {
		if _, ok := c.tensors[module+r.end]; !ok {
			continue
		}
		q, err := r.read(c, module)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(module+r.end), err)
		}
		if q != nil {
			return q, q.check()
		}
	}
	return nil, nil
}

// use returns a tensor of a module, and remembers it. It is nil if it is not there.
func (c *checkpoint) use(q *codes, name string) *tensor {
	t, ok := c.tensors[name]
	if !ok {
		return nil
	}
	q.uses = append(q.uses, name)
	return &t
}

// lazily returns the elements of a tensor.
func (t *tensor) lazily() *lazy.Tensor {
	return lazy.Stored(t.Type.DType(), t.Shape, t.file.Content(t.Tensor))
}

// matrix returns the shape that a tensor of rows by columns has.
func (q *codes) matrix(along, n int64) []int64 {
	if q.down {
		return []int64{along, n}
	}
	return []int64{n, along}
}

// check returns an error unless the shapes belong together.
func (q *codes) check() error {
	groups := shapes.DivideUp(q.k, max(q.block, 1))
	want := q.matrix(groups, q.n)
	switch {
	case q.loose != nil:
		return nil
	case q.k < 1 || q.n < 1 || q.block < 1 || !slices.Equal(q.codes.Shape, q.matrix(q.k, q.n)):
		return fmt.Errorf("codes of %s of shape %v do not fit %d × %d", q.from, q.codes.Shape, q.n, q.k)
	case !slices.Equal(q.scales.Shape, want) || !q.scales.DType.Float() && !isFloat8(q.scales.DType):
		return fmt.Errorf("scales of %s of shape %v: want floats of shape %v", q.from, q.scales.Shape, want)
	case q.zeros != nil && !slices.Equal(q.zeros.Shape, want):
		return fmt.Errorf("zero points of %s of shape %v: want %v", q.from, q.zeros.Shape, want)
	case q.mins != nil && !slices.Equal(q.mins.Shape, want):
		return fmt.Errorf("biases of %s of shape %v: want %v", q.from, q.mins.Shape, want)
	}
	return nil
}

func isFloat8(t dtype.DType) bool {
	_, ok := lazy.Float8Types[t]
	return ok
}

// like reports whether two weights can be joined along their outputs and remain codes.
func (q *codes) like(o *codes) bool {
	return q.loose == nil && o.loose == nil && q.format == o.format && q.k == o.k && q.block == o.block && q.down == o.down &&
		(q.zeros == nil) == (o.zeros == nil) && (q.mins == nil) == (o.mins == nil) && slices.Equal(q.table, o.table) && q.whole == o.whole && q.scales.DType == o.scales.DType
}

// alongside joins weights along their outputs.
func alongside(list []*codes) *codes {
	whole := *list[0]
	var all [4][]*lazy.Tensor
	whole.n = 0
	for _, q := range list {
		whole.n += q.n
		for i, t := range []*lazy.Tensor{q.codes, q.scales, q.zeros, q.mins} {
			all[i] = append(all[i], t)
		}
	}
	axis := 0
	if whole.down {
		axis = 1
	}
	whole.codes, whole.scales = lazy.Joined(all[0], axis), lazy.Joined(all[1], axis)
	if whole.zeros != nil {
		whole.zeros = lazy.Joined(all[2], axis)
	}
	if whole.mins != nil {
		whole.mins = lazy.Joined(all[3], axis)
	}
	return &whole
}

// laid returns the weight with its tensors laid [K,N], or [N,K].
func (q *codes) laid(down bool) *codes {
	if q.down == down {
		return q
	}
	turn := func(x *lazy.Tensor) *lazy.Tensor {
		if x == nil {
			return nil
		}
		if len(x.Shape) == 3 { // of experts
			return x.Transposed([]int64{0, 2, 1})
		}
		return x.Transposed([]int64{1, 0})
	}
	other := *q
	other.down, other.codes, other.scales, other.zeros, other.mins = down, turn(q.codes), turn(q.scales), turn(q.zeros), turn(q.mins)
	return &other
}

// floats returns the elements, in the order of the tensors.
func (q *codes) floats() *lazy.Tensor {
	if q.loose != nil {
		return q.loose
	}
	axis, of := q.axis(), q.codes
	if q.table != nil {
		of = lazy.LookedUp(q.table, of, dtype.Float32)
	}
	scales := q.scales
	if q.whole != 0 {
		scales = lazy.Dequantized(scales, lazy.Constant(q.whole, dtype.Float32), nil, lazy.OneScale, dtype.Float32)
	}
	by, _ := lazy.MapBlocks(of.Shape, scales.Shape, axis, q.block)
	all := lazy.Dequantized(of, scales, q.zeros, by, dtype.Float32)
	if q.mins != nil {
		all = all.Minus(q.mins, by)
	}
	return all
}

// axis is the axis of the tensors along which blocks run.
func (q *codes) axis() int64 {
	last := int64(len(q.codes.Shape)) - 1
	if q.down {
		return last - 1
	}
	return last
}

// content returns the content of a tensor of the model, of type typ, which has the weight as [K,N] or [N,K].
func (q *codes) content(name string, typ dtype.DType, down bool) io.ReaderAt {
	if q.loose != nil {
		e := &encoded{x: q.loose, typ: typ, name: name}
		if q.down == down {
			return e
		}
		return lazy.Stored(typ, q.loose.Shape, e).Transposed([]int64{1, 0}).Stored
	}
	if q.down != down {
		turned, _ := q.content(name, typ, q.down).(*coded.Content)
		c := q.laid(down).content(name, typ, down)
		if c, ok := c.(*coded.Content); ok {
			c.Turned = turned
		}
		return c
	}
	if typ != dtype.Float32 && typ != dtype.Float64 && q.whole == 0 { // the scales of the output have the type of the weight
		rounded := *q
		rounded.scales = lazy.Stored(typ, q.scales.Shape, &encoded{x: q.scales, typ: typ, name: name})
		q = &rounded
	}
	elements := &encoded{x: q.floats(), typ: typ, name: name}
	if q.why != "" {
		return elements
	}
	c := &coded.Content{
		ReaderAt: elements, From: q.from, Format: q.format, Block: q.block, ZeroPoint: q.zeros != nil, ScaleType: q.scales.DType, TensorScale: q.whole, Axis: int(q.axis()),
		Codes: q.codes.Stored, Scales: &encoded{x: q.scales, typ: dtype.Float32, name: name}, Zeros: noBytes{},
	}
	if q.zeros != nil {
		c.Zeros = q.zeros.Stored
	}
	if q.mins != nil {
		c.Mins = q.mins.Stored
	}
	return c
}
