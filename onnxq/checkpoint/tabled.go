package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/qlora"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// mostState bounds the description of a weight of bitsandbytes.
const mostState = 1 << 20

// state describes a weight of bitsandbytes.
type state struct {
	Type      string  `json:"quant_type"`
	Block     int64   `json:"blocksize"`
	Shape     []int64 `json:"shape"`
	OuterSize int64   `json:"nested_blocksize"`
	Offset    float32 `json:"nested_offset"`
}

// tabled reads a weight of 4 bits as bitsandbytes writes it. Blocks run through all elements, row by row.
//
//	weight                                   U8: two codes in a byte, the first one high
//	weight.quant_state.bitsandbytes__nf4     U8: a JSON object; __fp4 as well
//	weight.quant_map                         F32 [16]: values of the codes
//	weight.absmax                            F32 [blocks]; or U8, then
//	weight.nested_quant_map, nested_absmax   F32 [256], [blocks/256]: absmax is quant_map[code] · nested_absmax + nested_offset
func (c *checkpoint) tabled(module string) (*codes, error) {
	q := &codes{from: "bitsandbytes"}
	name := module + "weight"
	words, table, scales := c.use(q, name), c.use(q, name+".quant_map"), c.use(q, name+".absmax")
	text := c.use(q, name+".quant_state.bitsandbytes__nf4")
	if text == nil {
		text = c.use(q, name+".quant_state.bitsandbytes__fp4")
	}
	if words == nil || words.Type != "U8" || table == nil || table.elements() != 16 || text == nil || text.Type != "U8" || text.elements() > mostState {
		return nil, fmt.Errorf("it needs weight, weight.quant_map of 16 numbers, and weight.quant_state of nf4 or fp4 beside it")
	}
	data, err := io.ReadAll(text.file.Content(text.Tensor))
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("its quant_state: %w", err)
	}
	if len(s.Shape) != 2 || s.Shape[0] < 1 || s.Shape[1] < 1 || s.Block < 1 || s.Shape[0] > 2*words.elements()/s.Shape[1] || (s.Shape[0]*s.Shape[1]+1)/2 != words.elements() {
		return nil, fmt.Errorf("its quant_state of shape %v and blocks of %d does not fit %d bytes", s.Shape, s.Block, words.elements())
	}
	q.n, q.k, q.block = s.Shape[0], s.Shape[1], s.Block
	q.table = make([]float32, 16)
	if err := table.lazily().ReadAll(new(lazy.Arena), q.table, 0); err != nil {
		return nil, err
	}
	blocks := shapes.DivideUp(q.n*q.k, s.Block)
	absmax, err := c.absmax(q, name, scales, s, blocks)
	if err != nil {
		return nil, err
	}
	flat := lazy.Stored(dtype.Uint8, []int64{1, q.n * q.k}, &packed{r: words.content(), bits: 4, rows: 1, cols: q.n * q.k, pitch: words.elements(), order: []int64{1, 0}})
	if nf4, fp4 := qlora.NF4.Values(), qlora.FP4.Values(); slices.Equal(q.table, nf4[:]) {
		q.format = spec.NF4
	} else if slices.Equal(q.table, fp4[:]) {
		q.format = spec.FP4
	} else {
		q.why = "another table"
	}
	if q.k%s.Block == 0 {
		q.codes, q.scales = flat.Reshaped(s.Shape), absmax.Reshaped([]int64{q.n, q.k / s.Block})
		return q, nil
	}
	q.why = "blocks that begin in one row and end in the next"
	by, _ := lazy.MapBlocks(flat.Shape, []int64{1, blocks}, 1, s.Block)
	q.loose = lazy.Dequantized(lazy.LookedUp(q.table, flat, dtype.Float32), absmax.Reshaped([]int64{1, blocks}), nil, by, dtype.Float32).Reshaped(s.Shape)
	return q, nil
}

// absmax returns the scales of bitsandbytes, which may have codes themselves.
func (c *checkpoint) absmax(q *codes, name string, t *tensor, s state, blocks int64) (*lazy.Tensor, error) {
	if t.elements() != blocks {
		return nil, fmt.Errorf("%d scales: want %d", t.elements(), blocks)
	}
	if t.Type != "U8" {
		return t.lazily(), nil
	}
	outer, table := c.use(q, name+".nested_absmax"), c.use(q, name+".nested_quant_map")
	if outer == nil || table == nil || s.OuterSize < 1 || outer.elements() != shapes.DivideUp(blocks, s.OuterSize) || table.elements() != 256 {
		return nil, fmt.Errorf("its scales are codes: weight.nested_quant_map of 256 numbers and a weight.nested_absmax for each %d of them are missing", s.OuterSize)
	}
	values := make([]float32, 256)
	if err := table.lazily().ReadAll(new(lazy.Arena), values, 0); err != nil {
		return nil, err
	}
	by, _ := lazy.MapBlocks([]int64{1, blocks}, []int64{1, outer.elements()}, 1, s.OuterSize)
	row := lazy.LookedUp(values, t.lazily().Reshaped([]int64{1, blocks}), dtype.Float32)
	inner := lazy.Dequantized(row, outer.lazily().Reshaped([]int64{1, outer.elements()}), nil, by, dtype.Float32)
	all := inner.Minus(lazy.Constant(-s.Offset, dtype.Float32), lazy.OneScale)
	return lazy.Stored(dtype.Float32, all.Shape, &encoded{x: all, typ: dtype.Float32, name: name}), nil
}

// rows127 reads a weight of 8 bits as bitsandbytes writes it: weight I8 [N,K] and SCB F32 [N], the largest magnitude of each
// row, which code 127 stands for.
func (c *checkpoint) rows127(module string) (*codes, error) {
	t, ok := c.tensors[module+"weight"]
	if !ok || t.Type != "I8" || len(t.Shape) != 2 {
		return nil, nil
	}
	q := &codes{from: "bitsandbytes", format: spec.Int8, n: t.Shape[0], k: t.Shape[1], block: t.Shape[1]}
	q.codes = c.use(q, module+"weight").lazily()
	c.use(q, module+"weight_format")
	largest := c.use(q, module+"SCB")
	if largest.elements() != q.n || !largest.Type.DType().Float() {
		return nil, fmt.Errorf("%d numbers for %d rows", largest.elements(), q.n)
	}
	all := lazy.Dequantized(largest.lazily().Reshaped([]int64{q.n, 1}), lazy.Constant(1./127, dtype.Float32), nil, lazy.OneScale, dtype.Float32)
	q.scales = lazy.Stored(dtype.Float32, all.Shape, &encoded{x: all, typ: dtype.Float32, name: t.Name})
	return q, nil
}
