package target

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/onnxq/spec"
)

// This file knows when ONNX Runtime fuses a DequantizeLinear with the product behind it into
// MatMulNBits, and which of those it computes wrongly. test/oracle/fusion.txt has the
// measurements; its test asks inspect about each of them.

// Decoded is a weight that a DequantizeLinear decodes.
type Decoded struct {
	Format  spec.Format
	DType   dtype.DType // of its values
	Shape   []int64
	Axis    int   // of Shape, along which the blocks run
	Block   int   // or spec.PerChannel
	Zeros   bool  // it has zero points
	Opset   int64 // of its DequantizeLinear
	Nested  bool  // it lies in a body of If, Loop or Scan
	Product Product
	Other   string // why no product reads it as it is, and alone; or ""
}

// Product is a MatMul or Gemm that has a weight as its second factor. It is described as it
// is when ONNX Runtime looks for a DequantizeLinear to fuse: other fusions come before.
type Product struct {
	WTransposed bool // a Transpose lies between the DequantizeLinear and the product
	Gemm        bool // also if it is a MatMul that becomes a Gemm with the Add behind it
	TransB      bool
	Scaled      bool // it has transA or alpha, or beta for its C
	C           Addend
	Transposed  bool   // a Transpose of its first factor or result, which becomes part of the Gemm
	Moving      bool   // a Transpose of its result meets its inverse if the Gemm behind gets another form
	Clamped     string // the Relu or Clip that alone reads the result, if it has a single reader itself
}

// Addend is what a Gemm adds to a product.
type Addend int

const (
	NoAddend      Addend = iota
	Bias                 // a vector with one element per column
	Matrix               // anything else
	UnknownAddend        // what is added becomes the C of a Gemm or not: the shapes are not known
)

// FusedBlocks lists the block sizes with which ONNX Runtime fuses DequantizeLinear.
var FusedBlocks = []int{16, 32, 64, 128, 256}

// NearestFused returns the next smaller and the next larger of FusedBlocks.
func NearestFused(block int) (near []int) {
	i, _ := slices.BinarySearch(FusedBlocks, block)
	return FusedBlocks[max(i-1, 0):min(i+1, len(FusedBlocks))]
}

// Unfused returns why ONNX Runtime does not fuse the DequantizeLinear of a weight with the
// product that reads it, and so decodes the weight at every run. It is "" if it does.
func (d Decoded) Unfused() string {
	p := d.Product
	switch {
	case !d.Format.Scaled():
		return fmt.Sprintf("its format is %s", d.Format)
	case d.DType != dtype.Float32 && d.DType != dtype.Float16:
		return fmt.Sprintf("its values are %s", d.DType)
	case d.Other != "":
		return d.Other
	case len(d.Shape) != 2:
		return fmt.Sprintf("it has %d axes", len(d.Shape))
	case p.WTransposed && (d.Block != spec.PerChannel || d.Format == spec.Int4 || d.Format.Bits() == 2):
		return "a Transpose lies between it and its product"
	case p.WTransposed && d.Format == spec.Int8 && !d.Zeros && d.Opset < 21:
		return "a Transpose lies between it and its product, and the opset is below 21"
	case (d.Axis != 0) != p.WTransposed:
		return "its scales are not along the axis that is summed over"
	case d.Block != spec.PerChannel && !slices.Contains(FusedBlocks, d.Block):
		return fmt.Sprintf("its block size is %d", d.Block)
	case p.TransB:
		return "its Gemm has transB"
	case p.Scaled:
		return "its Gemm has transA, alpha or beta"
	case p.C == Matrix:
		return "what is added to the product is not a vector with one element per column"
	case p.Transposed:
		return "its Gemm takes over a Transpose"
	case p.Clamped != "":
		return fmt.Sprintf("%s follows, and has one reader", p.Clamped)
	}
	return ""
}

// Doubtful returns why the model does not tell whether ONNX Runtime fuses a weight that, for what it tells,
// it fuses; or "".
func (d Decoded) Doubtful() string {
	switch {
	case d.Unfused() != "":
	case d.Product.C == UnknownAddend:
		return "what is added to the product may have two axes"
	case d.Product.Moving:
		return "a Transpose follows, which may move behind other operators"
	}
	return ""
}

// SpoiltIfFused reports whether ONNX Runtime computes wrongly with a fused matrix of the
// given number of columns.
func SpoiltIfFused(bits int, columns int64) bool { return bits == 2 && columns%4 != 0 }

// Refused reports whether ONNX Runtime, with its optimizations, fails to load a model in which a
// Transpose reads a decoded matrix: it turns the codes instead, which it cannot do with 2 bits. A few
// it turns, and then computes wrongly with a single column.
func Refused(bits int, zeros bool, block int) bool {
	return bits == 2 && zeros && block == spec.PerChannel
}

// Spoilt reports whether ONNX Runtime fuses the weight and then computes wrongly.
func (d Decoded) Spoilt() bool {
	return d.Unfused() == "" && !d.Product.WTransposed && SpoiltIfFused(d.Format.Bits(), d.Shape[1])
}

// ZeroedIfFused reports whether ONNX Runtime, if it fuses a weight, computes zeros: of float16 in a body
// of If, Loop or Scan, with the accuracy_level 4 that it gives to the MatMulNBits. A MatMulNBits of the
// model computes there as it should.
func ZeroedIfFused(typ dtype.DType, nested bool) bool { return nested && typ == dtype.Float16 }

// Zeroed reports whether ONNX Runtime fuses the weight and then computes zeros.
func (d Decoded) Zeroed() bool { return d.Unfused() == "" && ZeroedIfFused(d.DType, d.Nested) }
