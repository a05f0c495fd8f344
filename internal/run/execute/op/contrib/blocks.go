package contrib

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/linalg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// packed is a matrix of codes, several a byte from the low bits on. Blocks along a row share a scale.
type packed struct {
	rows, columns, bits, block int
	rowBytes                   int
	codes                      []byte
	scales                     []float32 // [rows, blocks]
	zeros                      *execute.Tensor
}

// newPacked checks the sizes. zeros may be nil, which stands for the middle of the codes; it has packed codes, or
// floats like the scales.
func newPacked(p packed, scales *execute.Tensor) (*packed, error) {
	if p.bits != 2 && p.bits != 4 && p.bits != 8 || p.rows < 1 || p.columns < 1 || p.block < 1 {
		return nil, op.Unsupported("%d bits, blocks of %d, a weight of %d × %d", p.bits, p.block, p.rows, p.columns)
	}
	if !scales.IsFloat() {
		return nil, op.BadType(scales)
	}
	if scales.Len() != p.rows*p.blocks() || len(p.codes) != p.rows*p.rowBytes {
		return nil, fmt.Errorf("%d bytes of codes and %d scales for a weight of %d × %d in blocks of %d", len(p.codes), scales.Len(), p.rows, p.columns, p.block)
	}
	p.scales = op.Floats(scales)
	if z := p.zeros; z != nil {
		if z.IsFloat() && z.Len() != len(p.scales) || !z.IsFloat() && (z.DType != dtype.Uint8 || z.Len() != p.rows*p.zeroBytes()) {
			return nil, fmt.Errorf("%d zero points of type %v for %d scales", z.Len(), z.DType, len(p.scales))
		}
	}
	return &p, nil
}

func (p *packed) blocks() int    { return (p.columns + p.block - 1) / p.block }
func (p *packed) zeroBytes() int { return (p.blocks()*p.bits + 7) / 8 }

// code is number i of packed codes.
func code(codes []byte, i, bits int) int {
	return int(codes[i*bits/8]>>(i*bits%8)) & (1<<bits - 1)
}

// decode sets x to some rows.
func (p *packed) decode(x []float32, first, rows int) {
	var floats []float32
	if p.zeros != nil && p.zeros.IsFloat() {
		floats = op.Floats(p.zeros)
	}
	blocks := p.blocks()
	for r := first; r < first+rows; r++ {
		codes := p.codes[r*p.rowBytes:][:p.rowBytes]
		out := x[(r-first)*p.columns:][:p.columns]
		for b := range blocks {
			zero := float32(int(1) << (p.bits - 1))
			switch {
			case floats != nil:
				zero = floats[r*blocks+b]
			case p.zeros != nil:
				zero = float32(code(p.zeros.Data[r*p.zeroBytes():], b, p.bits))
			}
			scale := p.scales[r*blocks+b]
			for k := b * p.block; k < min((b+1)*p.block, p.columns); k++ {
				out[k] = (float32(code(codes, k, p.bits)) - zero) * scale
			}
		}
	}
}

// atOnce is about the number of elements of a weight that are decoded at a time.
const atOnce = 1 << 22

// runMatMulNBits decodes some rows of the weight after others, and multiplies by their transpose.
func runMatMulNBits(c *op.Call) ([]*execute.Tensor, error) {
	x, codes, bias := c.In[0], c.In[1], c.Input(5)
	n, k, bits, block := int(c.Int("N", 0)), int(c.Int("K", 0)), int(c.Int("bits", 4)), int(c.Int("block_size", 0))
	if c.Input(4) != nil || c.Is("weight_prepacked") {
		return nil, op.Unsupported("g_idx or weight_prepacked")
	}
	if !x.IsFloat() || codes.DType != dtype.Uint8 || k < 1 || block < 1 || len(x.Dims) == 0 || x.Dims[len(x.Dims)-1] != int64(k) || bias != nil && bias.Len() != n {
		return nil, fmt.Errorf("dims %v of type %v for a weight of %d × %d", x.Dims, x.DType, n, k)
	}
	p := packed{rows: n, columns: k, bits: bits, block: block, codes: codes.Data, zeros: c.Input(3)}
	p.rowBytes = p.blocks() * (block * bits / 8)
	w, err := newPacked(p, c.In[2])
	if err != nil {
		return nil, err
	}
	rows := x.Len() / k
	if err := c.Spend(float64(rows+20) * float64(n) * float64(k)); err != nil {
		return nil, err
	}
	dims := slices.Clone(x.Dims)
	dims[len(dims)-1] = int64(n)
	return op.One(c.NewFloats(x.DType, dims, func(y []float32) error {
		start := linalg.Matrix{Column: 1}
		if bias != nil {
			start.Data = op.Floats(bias)
		}
		left := linalg.Of(op.Floats(x), rows, k)
		some := min(n, max(1, atOnce/k))
		decoded := make([]float32, some*k)
		for j := 0; j < n; j += some {
			m := min(some, n-j)
			w.decode(decoded, j, m)
			part := linalg.Of(y, rows, n).Part(0, j, rows, m)
			if err := linalg.AddProducts(c.Context(), op.Workers(), []linalg.Product{{C: part, A: left, B: linalg.Of(decoded, m, k).T(), Fresh: true, Start: start.Part(0, j, rows, m)}}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// runGatherBlockQuantized gathers codes, scales and zero points, and decodes what it gathered.
func runGatherBlockQuantized(c *op.Call) ([]*execute.Tensor, error) {
	data, indices, zeros := c.In[0], c.In[1], c.Input(3)
	bits, block := int(c.Int("bits", 4)), c.Int("block_size", 128)
	rank := len(data.Dims)
	g, err := op.Axis(c.Int("gather_axis", 0), rank)
	if err != nil {
		return nil, err
	}
	q, err := op.Axis(c.Int("quantize_axis", 1), rank)
	if err != nil {
		return nil, err
	}
	bytes := data.DType == dtype.Uint8
	switch {
	case g == q || g == rank-1 && bytes || block < 1 || len(c.In[2].Dims) != rank || zeros != nil && len(zeros.Dims) != rank:
		return nil, op.Unsupported("gather_axis %d, quantize_axis %d, block_size %d", g, q, block)
	case !bytes && data.DType != dtype.Int4 && data.DType != dtype.Uint4 || bits != 2 && bits != 4 && bits != 8:
		return nil, op.Unsupported("%d bits of type %v", bits, data.DType)
	}
	// The parts of the table for the indices.
	parts := []*execute.Tensor{data, c.In[2], zeros}
	for i, t := range parts {
		if t == nil {
			continue
		}
		if err := c.Room(dtype.Float32, slices.Concat(t.Dims[:g], indices.Dims, t.Dims[g+1:])); err != nil {
			return nil, err
		}
		if parts[i], err = c.Gather(t, indices, g); err != nil {
			return nil, err
		}
	}
	if q > g {
		q += len(indices.Dims) - 1
	}
	data, scales := parts[0], parts[1]
	dims, codes, offset := data.Dims, data.Int64s(), int64(0)
	last := len(dims) - 1
	per := int64(1)
	if bytes {
		per, offset = int64(8/bits), int64(1)<<(bits-1)
		dims = slices.Clone(dims)
		dims[last] *= per
		codes = unpacked(data.Data, bits)
	}
	_, axis, inner := op.Sizes(dims, q)
	along := (axis + int(block) - 1) / int(block)
	want := slices.Clone(dims)
	want[q] = int64(along)
	if !slices.Equal(scales.Dims, want) {
		return nil, fmt.Errorf("scales with dims %v for dims %v in blocks of %d along axis %d", scales.Dims, dims, block, q)
	}
	var shifts []int64
	width, packedWidth := 0, 0
	if z := parts[2]; z != nil {
		shifts, width = z.Int64s(), int(want[last])
		packedWidth = width
		if bytes {
			shifts, packedWidth = unpacked(z.Data, bits), int(z.Dims[last]*per)
		}
		if packedWidth < width || len(shifts)/max(packedWidth, 1) != scales.Len()/max(width, 1) {
			return nil, fmt.Errorf("zero points with dims %v for scales with dims %v", z.Dims, scales.Dims)
		}
	}
	factors := op.Floats(scales)
	return op.One(c.NewFloats(scales.DType, dims, func(y []float32) error {
		for i := range y {
			at := (i/inner/axis*along+i/inner%axis/int(block))*inner + i%inner
			zero := offset
			if shifts != nil {
				zero = shifts[at/width*packedWidth+at%width]
			}
			y[i] = float32(codes[i]-zero) * factors[at]
		}
		return nil
	}))
}

func unpacked(codes []byte, bits int) []int64 {
	list := make([]int64, len(codes)*8/bits)
	for i := range list {
		list[i] = int64(code(codes, i, bits))
	}
	return list
}
