package recognize

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// gather folds a lookup: of a table's values by codes, or of the scale of each element's
// block.
func (f *Recognizer) gather(n *onnxpb.NodeProto) *Constant {
	data, index := f.input(n, 0).plain(), f.input(n, 1)
	if data == nil || index == nil || !data.Values.DType.Float() || data.Decoder != nil && !f.subtracted(n) || index.Decoder != nil {
		return nil
	}
	axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 0), len(data.Values.Shape))
	if index.Source != nil && lazy.CodeType(dtype.DType(index.Source.Tensor.GetDataType())) && len(data.Values.Shape) == 1 && data.Values.Size() <= maxTable {
		if bits := dtype.DType(index.Source.Tensor.GetDataType()).Bits(); bits <= 8 {
			return f.tableLookup(data, index)
		}
	}
	if len(index.Values.Shape) != 1 || index.Values.Stored == nil || axis < 0 || axis >= int64(len(data.Values.Shape)) {
		return nil
	}
	block, ok := blocksOf(index, data.Values.Shape[axis])
	if !ok {
		return nil
	}
	shape := slices.Clone(data.Values.Shape)
	shape[axis] = index.Values.Size()
	s, ok := lazy.MapBlocks(shape, data.Values.Shape, axis, block)
	if !ok {
		return nil
	}
	return &Constant{Values: data.Values.Spread(s, shape), Source: data.Source, factor: data.factor, blocked: blocking{axis, block}, Decoder: data.Decoder, cast: data.cast}
}

// subtracted reports whether the output of a node is only subtracted from other values, as mins are.
func (f *Recognizer) subtracted(n *onnxpb.NodeProto) bool {
	v := f.Graph.Made(n)
	return v != nil && !v.Output && len(v.Uses) > 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		return u.Node.GetOpType() != "Sub" || u.Input != 1
	})
}

// maxTable is the largest table: codes have at most 8 bits.
const maxTable = 256

// tableLookup folds a lookup of a table's values by codes.
func (f *Recognizer) tableLookup(data, index *Constant) *Constant {
	table := make([]float32, data.Values.Size())
	if err := data.Values.Read(&lazy.Arena{}, table, 0); err != nil {
		return nil
	}
	values := lazy.LookedUp(table, index.Values, data.Values.DType)
	d := &Decoder{Form: "Gather", Codes: index.Source, CodeType: dtype.DType(index.Source.Tensor.GetDataType()), PerTensor: true, unscaled: true, X: values, Table: table}
	return &Constant{Values: values, Source: index.Source, Decoder: d}
}

// blocksOf returns the block size of indices 0, …, 0, 1, …, 1, 2, …: how often each but
// the last occurs. It is not ok if they are not of this kind.
func blocksOf(index *Constant, count int64) (block int64, ok bool) {
	n := index.Values.Size()
	if count == 0 || n == 0 || index.Values.DType != dtype.Int64 && index.Values.DType != dtype.Int32 {
		return 0, false
	}
	for off := int64(0); off < n; {
		list, ok := graph.ReadIntegers(index.Values.Stored, index.Values.DType, off, min(n-off, lazy.MaxRead))
		if !ok {
			return 0, false
		}
		for i, v := range list {
			at := off + int64(i)
			if block == 0 && v == 1 {
				block = at
			}
			if block == 0 && v != 0 || block != 0 && v != at/block {
				return 0, false
			}
		}
		off += int64(len(list))
	}
	if block == 0 {
		block = n
	}
	return block, shapes.DivideUp(n, block) == count
}

// product folds a Mul of codes or a table's values by scales, or of two constants that are not decoded
// weights, such as scales by their scale.
func (f *Recognizer) product(n *onnxpb.NodeProto) *Constant {
	x, y := f.input(n, 0).plain(), f.input(n, 1).plain()
	if x == nil || y == nil || x.Values.DType != y.Values.DType || !x.Values.DType.Float() {
		return nil
	}
	if y.Decoder != nil || len(y.Values.Shape) > len(x.Values.Shape) || len(y.Values.Shape) == len(x.Values.Shape) && y.Values.Size() > x.Values.Size() {
		x, y = y, x
	}
	s, ok := lazy.MapBroadcast(x.Values.Shape, y.Values.Shape)
	if !ok || y.Decoder != nil || x.Decoder != nil && !x.Decoder.unscaled {
		return nil
	}
	made := lazy.Dequantized(x.Values, y.Values, nil, s, x.Values.DType)
	if x.Decoder == nil {
		c := &Constant{Values: made, Source: x.Source, blocked: x.blocked}
		if s.Single {
			if c.factor = y.Source; x.factor == nil && y.stored == y.Values && x.Values.DType == dtype.Float32 {
				c.stored, c.step = x.stored, y.stored
			}
		}
		if x.cast != nil && y.cast == nil {
			c.Decoder, c.loose = x.cast.scaled(x, y, s), s.Single
		}
		return c
	}
	d := *x.Decoder
	d.Form, d.unscaled = "Gather+Mul", false
	d.scaleBy(x, y, s)
	return &Constant{Values: made, Source: x.Source, Decoder: &d}
}

// scaleBy sets the scales that a Mul applies to values: x by y.
func (d *Decoder) scaleBy(x, y *Constant, s lazy.ScaleMap) {
	d.Scale, d.TensorScale, d.S, d.ScaleMap = y.Source, y.factor, y.Values, s
	d.blocking, d.PerTensor = y.blocked, s.Single
	if !s.Single && d.Block == 0 { // a block is the axis that Mul broadcasts
		for i, n := range x.Values.Shape {
			if from := len(y.Values.Shape) - len(x.Values.Shape) + i; from < 0 || y.Values.Shape[from] != n {
				d.blocking = blocking{int64(i), n}
			}
		}
	}
}

// difference folds a Sub that subtracts mins from a decoded weight, or zero points from codes.
func (f *Recognizer) difference(n *onnxpb.NodeProto) *Constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x != nil && y != nil && x.cast != nil && y.cast != nil {
		return x.withZeros(y)
	}
	if x == nil || y == nil || x.Decoder == nil || x.Decoder.unscaled || x.Decoder.Mins != nil || x.Values.DType != y.Values.DType {
		return nil
	}
	s, ok := lazy.MapBroadcast(x.Values.Shape, y.Values.Shape)
	if !ok {
		return nil
	}
	d := *x.Decoder
	d.Form += "+Sub"
	d.Mins, d.MinScale = y.Source, y.factor
	if y.Decoder != nil {
		d.MinScale = y.Decoder.Scale
	}
	return &Constant{Values: x.Values.Minus(y.Values, s), Source: x.Source, Decoder: &d}
}
