package checkpoint

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/nvfp4"
	"onnxquant/spec"
)

// stack has a matrix, or a bias as a matrix of one column, for each expert: floats, or codes with scales and perhaps zero
// points, whose shapes are [experts, rows, K] and [experts, rows, blocks].
type stack struct {
	name    string
	uses    []string // names of tensors of the checkpoint
	tensors []*lazy.Tensor
	turned  bool   // tensors are [experts, K, rows]
	unclear bool   // only the shapes can tell turned
	codes   *codes // what the codes have in common, or nil
	decoded string // why tensors are floats although the checkpoint has codes
}

// content is the content of a tensor of the model of type typ; q are its codes, or nil.
func (s *stack) content(typ dtype.DType, q *codes) io.ReaderAt {
	if q != nil {
		return q.content(s.name, typ, q.down)
	}
	return s.tensors[0].Stored
}

// rowAxis is the axis of the rows.
func (s *stack) rowAxis() int {
	if s.turned {
		return 2
	}
	return 1
}

// with returns the stack after something was done to each tensor.
func (s *stack) with(do func(*lazy.Tensor) *lazy.Tensor) *stack {
	made := *s
	made.tensors = nil
	for _, t := range s.tensors {
		made.tensors = append(made.tensors, do(t))
	}
	return &made
}

// rows returns rows first, first+step, ….
func (s *stack) rows(first, step, count int64) *stack {
	return s.with(func(t *lazy.Tensor) *lazy.Tensor { return t.Sliced(s.rowAxis(), first, step, count) })
}

// half returns the gates or the values of both.
func (s *stack) half(own turns, values bool) *stack {
	n := s.tensors[0].Shape[s.rowAxis()] / 2
	first, step := int64(0), int64(1)
	if own == byRow {
		step = 2
	}
	if values {
		first = 1
		if own != byRow {
			first = n
		}
	}
	return s.rows(first, step, n)
}

// inTurns returns the rows of gates and values in another order.
func (s *stack) inTurns(own, want turns) *stack {
	if want == asStored || want == own {
		return s
	}
	made, _ := joinedParts(s.half(own, false), s.half(own, true), want == byRow) // of one stack: they are alike
	return made
}

// joinedParts joins the rows of gates and values.
func joinedParts(a, b *stack, rowByRow bool) (*stack, error) {
	differ := fmt.Errorf("%s and %s differ in shape or format", msg.Quote(a.name), msg.Quote(b.name))
	if a.turned != b.turned || len(a.tensors) != len(b.tensors) || (a.codes == nil) != (b.codes == nil) || a.codes != nil && !a.codes.like(b.codes) {
		return nil, differ
	}
	axis, made := a.rowAxis(), *a
	made.uses, made.tensors = slices.Concat(a.uses, b.uses), nil
	for i, t := range a.tensors {
		if !slices.Equal(t.Shape, b.tensors[i].Shape) {
			return nil, differ
		}
		made.tensors = append(made.tensors, joinedRows(t, b.tensors[i], axis, rowByRow))
	}
	return &made, nil
}

// joinedRows puts the rows of b behind those of a, or each behind one of a.
func joinedRows(a, b *lazy.Tensor, axis int, rowByRow bool) *lazy.Tensor {
	if !rowByRow {
		return lazy.Joined([]*lazy.Tensor{a, b}, axis)
	}
	apart := slices.Insert(slices.Clone(a.Shape), axis+1, 1)
	whole := slices.Clone(a.Shape)
	whole[axis] *= 2
	return lazy.Joined([]*lazy.Tensor{a.Reshaped(apart), b.Reshaped(apart)}, axis+1).Reshaped(whole)
}

// fits reports whether a stack has the shape of a tensor of the model, perhaps turned.
func (s *stack) fits(dims []int64, bias bool) bool {
	shape, have := shapeOf(dims, bias), s.tensors[0].Shape
	return slices.Equal(shape, have) || !bias && len(shape) == 3 && slices.Equal([]int64{shape[0], shape[2], shape[1]}, have)
}

// laidFor returns the stack as a piece for a value of the model. The shape of square matrices does not tell their order: readers do.
func (s *stack) laidFor(x *graph.Graph, v *graph.Value, dims []int64, bias bool) (*piece, error) {
	have := s.tensors[0].Shape
	other := !slices.Equal(shapeOf(dims, bias), have)
	if !bias && have[1] == have[2] {
		turned, known := readsTurned(x, v)
		if !known || s.unclear {
			return nil, fmt.Errorf("their matrices %d × %d are square, and no MatMul of the model, or no other shape of the checkpoint, tells rows from columns; a null in --names keeps the model's own", have[1], have[2])
		}
		other = turned != s.turned
	}
	made := s
	if other {
		made = s.with(func(t *lazy.Tensor) *lazy.Tensor { return t.Transposed([]int64{0, 2, 1}) })
		made.turned = !s.turned
	}
	if made.codes == nil {
		return &piece{name: s.name, stack: made}, nil
	}
	q := *made.codes
	q.uses, q.down, q.codes, q.scales = s.uses, made.turned, made.tensors[0], made.tensors[1]
	if len(made.tensors) > 2 {
		q.zeros = made.tensors[2]
	}
	return &piece{name: s.name, stack: made, codes: &q}, nil
}

// whole returns a part of experts that is one tensor.
func (c *checkpoint) whole(v *graph.Value, t tensor, bias bool) (*stack, error) {
	shape := t.Shape
	if bias && len(shape) == 2 {
		shape = slices.Concat(shape, []int64{1})
	}
	if len(shape) != 3 {
		return nil, fmt.Errorf("tensor %s has the shape %v: want three axes, of experts, rows and columns", msg.Quote(t.Name), t.Shape)
	}
	all, err := c.elements(v, piece{name: t.Name, plain: &t}, dtype.DType(v.Tensor.GetDataType()))
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", msg.Quote(t.Name), err)
	}
	return &stack{name: t.Name, uses: []string{t.Name}, tensors: []*lazy.Tensor{all.Reshaped(shape)}}, nil
}

// turned reports whether a checkpoint has the matrices of a module as [K, rows]. The two matrices of an expert tell; unclear: they do
// not.
func (c *checkpoint) turned(module string) (turned, unclear bool) {
	first, second := c.tensors[module+"."+gateUpProj], c.tensors[module+"."+downProj]
	if first.Tensor == nil || second.Tensor == nil || len(first.Shape) != 3 || len(second.Shape) != 3 {
		return false, true
	}
	a, b := first.Shape, second.Shape
	turned = a[1] == b[2] && a[2] == 2*b[1]
	return turned, !turned && (a[2] != b[1] || a[1] != 2*b[2])
}

// layer returns a part of all experts that is one module, as MLX has it, or nil: [experts, rows, K] as floats or as codes.
func (c *checkpoint) layer(v *graph.Value, module, part, kind string) (*stack, error) {
	for _, module := range []string{module, strings.TrimSuffix(module, "experts") + "switch_mlp"} {
		t, ok := c.tensors[module+part+kind]
		switch {
		case !ok:
			continue
		case t.Type != "U32":
			return c.whole(v, t, kind == ".bias")
		case len(t.Shape) != 3:
			return nil, fmt.Errorf("tensor %s has the shape %v: want three axes, of experts, rows and words", msg.Quote(t.Name), t.Shape)
		}
		q, err := c.affineOf(module+part+".", t)
		if err == nil {
			err = q.check()
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(t.Name), err)
		}
		all, err := c.elements(v, piece{name: t.Name, codes: q}, dtype.DType(v.Tensor.GetDataType()))
		if err != nil {
			return nil, err
		}
		shape := []int64{t.Shape[0], t.Shape[1], q.k}
		return &stack{name: t.Name, uses: q.uses, tensors: []*lazy.Tensor{all.Reshaped(shape)}, decoded: q.from + biasesOfExperts}, nil
	}
	return nil, nil
}

const biasesOfExperts = " with biases of experts"

// eachExpert stacks matrices of experts: as codes if all have one format.
func (c *checkpoint) eachExpert(v *graph.Value, name string, list []piece) (*stack, error) {
	s := &stack{name: name}
	for _, p := range list {
		if p.codes != nil {
			s.uses = append(s.uses, p.codes.uses...)
		} else {
			s.uses = append(s.uses, p.name, p.name+"_scale", p.name+"_scale_inv")
		}
	}
	parts := make([][]*lazy.Tensor, 1)
	if q := together(list); q != nil && q.why == "" && q.mins == nil {
		first := *list[0].codes
		s.codes, s.turned, parts = &first, first.down, make([][]*lazy.Tensor, 2)
		for _, p := range list {
			parts[0], parts[1] = append(parts[0], p.codes.codes), append(parts[1], p.codes.scales)
		}
		if first.zeros != nil {
			parts = append(parts, nil)
			for _, p := range list {
				parts[2] = append(parts[2], p.codes.zeros)
			}
		}
	} else {
		for _, p := range list {
			t, err := c.floatsOf(v, p)
			if err != nil {
				return nil, err
			}
			parts[0] = append(parts[0], t)
			if p.codes != nil {
				s.decoded = p.codes.from + " with experts of several formats"
				switch {
				case p.codes.why != "":
					s.decoded = p.codes.from + " with " + p.codes.why
				case p.codes.mins != nil:
					s.decoded = p.codes.from + biasesOfExperts
				}
			}
		}
	}
	for _, list := range parts {
		var stacked []*lazy.Tensor
		for _, t := range list {
			if !slices.Equal(t.Shape, list[0].Shape) {
				return nil, fmt.Errorf("experts %s differ in shape: %v and %v", msg.Quote(name), list[0].Shape, t.Shape)
			}
			stacked = append(stacked, t.Reshaped(slices.Concat([]int64{1}, t.Shape)))
		}
		s.tensors = append(s.tensors, lazy.Joined(stacked, 0))
	}
	return s, nil
}

// MXFP4 has 32 codes in a block, and a power of two as its scale.
const mxBlock = 32

// blocksOf returns the matrices of gpt-oss in MXFP4, or nil:
//
//	NAME_blocks  U8 [experts, rows, K/32, 16]  two codes of E2M1 in a byte, the first one low
//	NAME_scales  U8 [experts, rows, K/32]      powers of two, plus 127
func (c *checkpoint) blocksOf(v *graph.Value, name string) (*stack, error) {
	words, ok := c.tensors[name+"_blocks"]
	if !ok {
		return nil, nil
	}
	scales, ok := c.tensors[name+"_scales"]
	if s := words.Shape; !ok || len(s) != 4 || s[3] != mxBlock/2 || !slices.Equal(scales.Shape, s[:3]) || words.Type != "U8" || scales.Type != "U8" {
		return nil, fmt.Errorf("tensors %s_blocks and _scales are not as gpt-oss has them: U8 [experts, rows, blocks, 16] and U8 [experts, rows, blocks]", msg.Quote(name))
	}
	e, n, k := words.Shape[0], words.Shape[1], words.Shape[2]*mxBlock
	q := &codes{from: "MXFP4", format: spec.MXFP4, n: n, k: k, block: mxBlock, table: make([]float32, 16)}
	for i := range q.table {
		q.table[i] = nvfp4.DecodeE2M1(byte(i))
	}
	powers := make([]float32, 256)
	for i := range powers {
		powers[i] = float32(math.Ldexp(1, i-127))
	}
	powers[255] = float32(math.NaN())
	of := lazy.LookedUp(powers, scales.lazily(), dtype.Float32)
	grid := &packed{r: words.content(), bits: 4, rows: e * n, cols: k, pitch: k / 2}
	q.codes = lazy.Stored(dtype.Uint8, []int64{e, n, k}, grid)
	q.scales = lazy.Stored(dtype.Float32, scales.Shape, &encoded{x: of, typ: dtype.Float32, name: name})
	return &stack{name: name, uses: []string{name + "_blocks", name + "_scales"}, codes: q, tensors: []*lazy.Tensor{q.codes, q.scales}}, nil
}
