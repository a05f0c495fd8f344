package form

import (
	"encoding/binary"
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/quantize"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// The blockwise formats are the encodings of package ggml that can be expressed as codes and
// scales. Blocks run along the reduction axis, are encoded as a whole and then split into
// tensors. With k elements along the axis, b in a block and p in a part of it:
//
//	codes        [k], INT or UINT of 2, 4 or 8 bits, the fewest that they fit in
//	scale, min   [k/b] FLOAT16
//	part_scale   [k/p] INT8 or UINT8, in nested forms
//	part_min     [k/p] UINT8
//
// A short last block is padded with zeros, which are not stored.

// blockwise adds the tensors and nodes that decode blocks:
//
//	scale ── Cast ── DequantizeLinear(part_scale) ──┐
//	                        codes ── DequantizeLinear ── Sub ── w
//	min ── Cast ── DequantizeLinear(part_min) ── Gather ──┘
//
// Only nested forms have part_scale and part_min. Forms without mins lack the second row and Sub.
func (b *building) blockwise() {
	w := b.w
	f := w.encoding.Form
	block, part := int64(w.encoding.Elements), int64(f.Part)
	parts := shapes.DivideUp(w.K, part)
	b.tensors.Codes = b.Tensor(w.Name+w.Choice.Format.Traits().Suffix, w.codeType(), w.view())
	b.tensors.Scales = b.Tensor(w.Name+"_scale", dtype.Float16, w.along(w.Blocks))
	if f.Values != nil {
		b.lookup(b.tensors.Scales.GetName(), dtype.Float16)
		return
	}
	ofParts := func(t *onnxpb.TensorProto, name string, codes dtype.DType) string {
		value := b.Value(t.GetName(), "Cast", []string{t.GetName()}, IntAttr("to", int64(dtype.Float32)))
		if !f.Nested {
			return value
		}
		c := b.detail(name, codes, part)
		return b.Value(c.GetName(), "DequantizeLinear", []string{c.GetName(), value}, w.sharing(w.Blocks, block/part)...)
	}
	scaleCodes := dtype.Uint8
	if f.Signed {
		scaleCodes = dtype.Int8
	}
	inputs := []string{b.tensors.Codes.GetName(), ofParts(b.tensors.Scales, "_part_scale", scaleCodes)}
	if !f.Mins {
		b.result(dtype.Float32, "DequantizeLinear", inputs, w.sharing(parts, part)...)
		return
	}
	value := b.Value(w.Name, "DequantizeLinear", inputs, w.sharing(parts, part)...)
	least := ofParts(b.detail("_min", dtype.Float16, block), "_part_min", dtype.Uint8)
	if parts > 1 { // Sub broadcasts a single min
		least = b.Value(least, "Gather", []string{least, b.blockIndex(w.K, part)}, IntAttr("axis", int64(w.axis())))
	}
	b.result(dtype.Float32, "Sub", []string{value, least})
}

// detail adds a tensor in which each element belongs to part elements of the weight.
func (b *building) detail(name string, typ dtype.DType, part int64) *onnxpb.TensorProto {
	t := b.Tensor(b.w.Name+name, typ, b.w.along(shapes.DivideUp(b.w.K, part)))
	b.tensors.Details = append(b.tensors.Details, t)
	return t
}

// detail describes a tensor of building.detail in the terms of package quantize.
type detail struct {
	kind quantize.DetailKind
	part int64
}

// details lists the tensors that blockwise adds with building.detail, in the same order.
func (w *Weight) details() (list []detail) {
	if w.encoding == nil || w.Choice.Style == spec.NBits || w.encoding.Form.Values != nil {
		return nil
	}
	f := w.encoding.Form
	block, part := int64(w.encoding.Elements), int64(f.Part)
	if f.Nested {
		list = append(list, detail{quantize.PartScales, part})
	}
	if f.Mins {
		list = append(list, detail{quantize.Mins, block})
		if f.Nested {
			list = append(list, detail{quantize.PartMins, part})
		}
	}
	return list
}

// sharing returns the attributes of a DequantizeLinear with n scales, for blocks of block elements.
func (w *Weight) sharing(n, block int64) []*onnxpb.AttributeProto {
	if len(w.view()) == 1 && n == 1 {
		return nil
	}
	return []*onnxpb.AttributeProto{IntAttr("axis", int64(w.axis())), IntAttr("block_size", block)}
}

// blockIndex returns the name of a constant with the block number of each element.
func (b *Builder) blockIndex(k, block int64) string {
	var raw []byte
	for i := range k {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(i/block))
	}
	return b.Constant(fmt.Sprintf("blocks_of_%d", block), dtype.Int32, []int64{k}, raw)
}
