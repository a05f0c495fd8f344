package quantize

import (
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/int4"
	"onnxquant/internal/packing"
	"onnxquant/spec"
)

// Weight describes how a tensor is quantized and where its parts go. It must not change once a Run
// has it. The tensor is seen as [Outer, K, Inner]. K is the reduction axis; blocks along K share a
// scale.
type Weight struct {
	Name   string // for messages
	Source Source
	DType  dtype.DType // of the source

	Rounded *Rounded // how Source rounds float32 elements, or nil

	Outer, K, Inner int64
	Block           int64 // elements per block; Block == K: one block for the whole axis

	Codec      Codec          // nil for the blockwise formats
	Encoding   *ggml.Encoding // for the blockwise formats, else nil
	Algorithm  spec.Algorithm // how codes and scales are chosen
	Range      spec.Range     // clipping range of integer formats rounded to nearest
	Importance []float32      // importance of each index of K, for the blockwise formats; nil: all equal

	PositiveScales bool // no scale may be negative
	FloatZeros     bool // zero points have the type and the layout of the scales

	Found       *Found  // codes and scales found before the conversion, or nil
	TensorScale float32 // scale of the scales of Found in formats of two levels; 0: that of the elements

	Bits      int         // of a code
	Offset    bool        // signed codes and zero points are stored unsigned, plus 2^(Bits-1)
	ScaleType dtype.DType // of the stored scales
	TwoLevel  bool        // the tensor has a scale for its scales

	CodesAt, ScalesAt, ZerosAt packing.Placement
	Details                    []Detail // further tensors, in the blockwise formats

	// Given returns scales and zero points that depend on more than this weight. They are not
	// written. It sets those of some blocks of the weight, starting with block first. If Given is nil,
	// they are computed from the elements.
	Given func(scales []float32, zeros []byte, first int64) error
}

// Source has the elements of a weight.
type Source interface {
	// ReadRows reads rows of n bytes into dst, one after another. Row i is at off + i·stride.
	ReadRows(dst []byte, off, rows, n, stride int64) error
}

// Rounded describes elements that are rounded from float32. Other weights may read the same float32
// elements.
type Rounded struct {
	From  Source // float32 elements
	Round func(x []float32)
}

// origin returns the source to read, and the type of its elements.
func (w *Weight) origin() (Source, dtype.DType) {
	if w.Rounded != nil {
		return w.Rounded.From, dtype.Float32
	}
	return w.Source, w.DType
}

// Detail is a further tensor of a blockwise format, besides codes and scales. It has one element
// for each block or part of a block.
type Detail struct {
	Kind DetailKind
	At   packing.Placement
	Part int64 // elements of the weight per element of the detail
}

// DetailKind says what a detail contains.
type DetailKind int

const (
	Mins       DetailKind = iota // float16
	PartScales                   // 8-bit codes
	PartMins                     // 8-bit codes
)

// size is the number of bytes per element.
func (d Detail) size() int64 {
	if d.Kind == Mins {
		return 2
	}
	return 1
}

// Parts has one T for each tensor of a quantized weight, such as the tensor itself, its place in a
// file or its content. A tensor that the weight lacks has the zero T.
type Parts[T any] struct {
	Codes, Scales, Zeros T
	TensorScale          T // scale of the scales
	Mins                 T // float32 numbers, subtracted last
	Details              []T
}

// Map applies f to each part.
func Map[T, U any](p Parts[T], f func(T) U) Parts[U] {
	m := Parts[U]{Codes: f(p.Codes), Scales: f(p.Scales), Zeros: f(p.Zeros), TensorScale: f(p.TensorScale), Mins: f(p.Mins)}
	for _, d := range p.Details {
		m.Details = append(m.Details, f(d))
	}
	return m
}

// All lists the parts.
func (p Parts[T]) All() []T {
	return append([]T{p.Codes, p.Scales, p.Zeros, p.TensorScale, p.Mins}, p.Details...)
}

// Sinks are where parts are written, Contents where they are read. A part with a nil sink is not
// written.
type (
	Sinks    = Parts[io.WriterAt]
	Contents = Parts[io.ReaderAt]
)

// Blocks is the number of blocks along K.
func (w *Weight) Blocks() int64 { return (w.K-1)/w.Block + 1 }

// Elements is the number of elements.
func (w *Weight) Elements() int64 { return w.Outer * w.K * w.Inner }

// SourceBytes is the size of the elements in the source.
func (w *Weight) SourceBytes() int64 { return w.DType.Bytes(w.Elements()) }

// search returns the search that narrows the ranges of blocks, or nil for minmax.
func (w *Weight) search(c Codec) int4.Search {
	integers, ok := c.(int4.Codec)
	if !ok {
		return nil
	}
	switch w.Range.Kind {
	case spec.RangeMSE:
		return integers.LeastError()
	case spec.Percentile:
		return integers.Percentile(w.Range.Percent)
	}
	return nil
}
