package target

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/spec"
)

// These rules say when ONNX Runtime fuses a DequantizeLinear and the product behind it into
// MatMulNBits, and which fused products it computes wrongly. test/oracle/fusion.txt has the
// measurements; its test compares inspect with each of them.

// Decoded is a weight behind a DequantizeLinear.
type Decoded struct {
	Format  spec.Format
	DType   dtype.DType // of the decoded values
	Shape   []int64
	Axis    int   // axis of Shape along which blocks run
	Block   int   // block size or spec.PerChannel
	Zeros   bool  // there are zero points
	Opset   int64 // of the DequantizeLinear
	Nested  bool  // in the body of an If, Loop or Scan
	Product Product
	Other   string // why it has not a product as its only, direct reader; or ""
}

// Product is a MatMul or Gemm whose second factor is a weight. It is described in the state in
// which ONNX Runtime looks for a DequantizeLinear to fuse, after some other fusions.
type Product struct {
	WTransposed bool // a Transpose is between the DequantizeLinear and the product
	Gemm        bool // a Gemm, or a MatMul that ONNX Runtime fuses with an Add into a Gemm
	TransB      bool
	Scaled      bool // transA or alpha is set, or beta and a C
	C           Addend
	Transposed  bool   // a Transpose of the first factor or the result becomes part of the Gemm
	Moving      bool   // a Transpose of the result may move behind other operators and meet its inverse
	Clamped     string // a Relu or Clip that is the only reader of the result and has a single reader; or ""
}

// Addend is what a Gemm adds to a product.
type Addend int

const (
	NoAddend      Addend = iota
	Bias                 // a vector with one element per column
	Matrix               // anything else
	UnknownAddend        // unknown shapes: the addend may become the C of a Gemm
)

// FusedBlocks lists the block sizes with which ONNX Runtime fuses DequantizeLinear.
var FusedBlocks = []int{16, 32, 64, 128, 256}

// NearestFused returns the next smaller and the next larger of FusedBlocks.
func NearestFused(block int) (near []int) {
	i, _ := slices.BinarySearch(FusedBlocks, block)
	return FusedBlocks[max(i-1, 0):min(i+1, len(FusedBlocks))]
}

// Unfused returns why ONNX Runtime does not fuse the DequantizeLinear of a weight with the product
// that reads it, so that the weight is decoded at every run. It returns "" if they are fused.
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
		return "its scales are not along the reduction axis"
	case d.Block != spec.PerChannel && !slices.Contains(FusedBlocks, d.Block):
		return fmt.Sprintf("its block size is %d", d.Block)
	case p.TransB:
		return "its Gemm has transB"
	case p.Scaled:
		return "its Gemm has transA, alpha or beta"
	case p.C == Matrix:
		return "the addend of the product is not a vector with one element per column"
	case p.Transposed:
		return "its Gemm takes over a Transpose"
	case p.Clamped != "":
		return fmt.Sprintf("%s follows and has one reader", p.Clamped)
	}
	return ""
}

// Doubtful returns why the model does not determine whether ONNX Runtime fuses a weight that the
// known facts allow to fuse; or "".
func (d Decoded) Doubtful() string {
	switch {
	case d.Unfused() != "":
	case d.Product.C == UnknownAddend:
		return "the addend of the product may have two axes"
	case d.Product.Moving:
		return "a Transpose follows, which may move behind other operators"
	}
	return ""
}

// SpoiltIfFused reports whether ONNX Runtime computes wrongly with a fused matrix of the
// given number of columns.
func SpoiltIfFused(bits int, columns int64) bool { return bits == 2 && columns%4 != 0 }

// Refused reports whether ONNX Runtime, with its optimizations, fails to load a model in which a
// Transpose reads a decoded matrix. It transposes the codes instead, and fails for 2 bits. With a
// single column it may load the model and compute wrongly.
func Refused(bits int, zeros bool, block int) bool {
	return bits == 2 && zeros && block == spec.PerChannel
}

// Spoilt reports whether ONNX Runtime fuses the weight and then computes wrongly.
func (d Decoded) Spoilt() bool {
	return d.Unfused() == "" && !d.Product.WTransposed && SpoiltIfFused(d.Format.Bits(), d.Shape[1])
}

// ZeroedIfFused reports whether ONNX Runtime, if it fuses a weight, computes zeros. It does so for
// float16 in a body of If, Loop or Scan, because it sets accuracy_level 4 in the MatMulNBits. A
// MatMulNBits in the model itself is computed correctly there.
func ZeroedIfFused(typ dtype.DType, nested bool) bool { return nested && typ == dtype.Float16 }

// Zeroed reports whether ONNX Runtime fuses the weight and then computes zeros.
func (d Decoded) Zeroed() bool { return d.Unfused() == "" && ZeroedIfFused(d.DType, d.Nested) }
