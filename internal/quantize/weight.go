package quantize

import (
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/int4"
	"onnxquant/internal/packing"
	"onnxquant/onnxq/spec"
)

// Weight says how a tensor is quantized. It is seen as [Outer, K, Inner]: K is the
// reduction axis, and blocks of its elements share a scale.
type Weight struct {
	Name   string // for messages
	Source Source
	DType  dtype.DType // of the elements

	Outer, K, Inner int64
	Block           int64 // elements of a block; K if there is one for the whole axis

	Codec      Codec          // nil in the blockwise formats
	Encoding   *ggml.Encoding // of the blockwise formats, else nil
	Range      spec.Range     // of the blocks, in integer formats
	Importance []float32      // of each index of K, in the blockwise formats; nil: all count the same

	Bits      int         // of a code
	Offset    bool        // signed codes are stored plus half their range, as unsigned ones
	ScaleType dtype.DType // of the stored scales
	TwoLevel  bool        // scales are scaled by one number of the whole tensor

	CodesAt, ScalesAt, ZerosAt packing.Placement
	Details                    []Detail // further tensors, in the blockwise formats
}

// Source holds the elements of a weight.
type Source interface {
	// ReadRows reads rows of n bytes each, the first at off and each stride behind
	// the one before, to dst, one after the other.
	ReadRows(dst []byte, off, rows, n, stride int64) error
}

// Detail is a tensor that a blockwise format has beside codes and scales, with an
// element for each block or for each part of one.
type Detail struct {
	Kind DetailKind
	At   packing.Placement
	Part int64 // elements of the weight for each element of the detail
}

// DetailKind says what a detail holds.
type DetailKind int

const (
	Mins       DetailKind = iota // float16
	PartScales                   // 8-bit codes
	PartMins                     // 8-bit codes
)

// size is the number of bytes of an element.
func (d Detail) size() int64 {
	if d.Kind == Mins {
		return 2
	}
	return 1
}

// Parts are the tensors that a weight becomes, or what stands for each of them: its
// place in a file, its content. A zero T stands for a tensor that the weight does not
// have.
type Parts[T any] struct {
	Codes, Scales, Zeros T
	TensorScale          T // the one number that scales are scaled by
	Details              []T
}

// Map returns what f makes of each part.
func Map[T, U any](p Parts[T], f func(T) U) Parts[U] {
	m := Parts[U]{Codes: f(p.Codes), Scales: f(p.Scales), Zeros: f(p.Zeros), TensorScale: f(p.TensorScale)}
	for _, d := range p.Details {
		m.Details = append(m.Details, f(d))
	}
	return m
}

// All lists the parts.
func (p Parts[T]) All() []T {
	return append([]T{p.Codes, p.Scales, p.Zeros, p.TensorScale}, p.Details...)
}

// Sinks take the parts of a weight, Contents give them back. A part that is nil is not
// written.
type (
	Sinks    = Parts[io.WriterAt]
	Contents = Parts[io.ReaderAt]
)

// Blocks is the number of blocks along K.
func (w *Weight) Blocks() int64 { return (w.K-1)/w.Block + 1 }

// Elements is the number of elements.
func (w *Weight) Elements() int64 { return w.Outer * w.K * w.Inner }

// SourceBytes is the size of the content that the weight is read from.
func (w *Weight) SourceBytes() int64 { return w.DType.Bytes(w.Elements()) }

// search returns what narrows the ranges of blocks, nil if they keep their extremes.
func (w *Weight) search(c Codec) int4.Search {
	integers, ok := c.(int4.Codec)
	if !ok {
		return nil
	}
	switch w.Range.Kind {
	case spec.MSE:
		return integers.LeastError()
	case spec.Percentile:
		return integers.Percentile(w.Range.Percent)
	}
	return nil
}
