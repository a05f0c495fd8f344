package execute

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// A Runner computes the outputs of models.
type Runner interface {
	// Name names the engine for people.
	Name() string

	// Session opens the model at path. The end of the context ends its runs.
	Session(ctx context.Context, path string) (Session, error)

	// Run returns the outputs of the model at path, in the order of its graph. An
	// error that wraps ErrUnsupported says that the runner cannot run this model.
	Run(ctx context.Context, path string, inputs []*Tensor) ([]*Tensor, error)
}

// A Session is a model that was opened to run many times.
type Session interface {
	// Run returns the named values, which are outputs or values inside the model's graph; without
	// names, all outputs.
	Run(inputs []*Tensor, values ...string) ([]*Tensor, error)
	Close()
}

// ErrUnsupported is wrapped by errors about models that package evaluate cannot run.
var ErrUnsupported = errors.New("not supported")

// MaxBytes bounds a tensor that a run makes, and all its inputs together.
const MaxBytes = 256 << 20

// Tensor is a value of a graph.
type Tensor struct {
	Name  string
	DType dtype.DType
	Dims  []int64
	Data  []byte // little-endian, in row major order

	Text []string  // the elements of a tensor of STRING, which has no Data
	List []*Tensor // the elements of a sequence, which has neither; nil elsewhere
}

// New makes a tensor of zeros.
func New(typ dtype.DType, dims []int64) (*Tensor, error) {
	n, err := bounded(typ, dims)
	switch {
	case err != nil:
		return nil, err
	case typ == dtype.String:
		return &Tensor{DType: typ, Dims: dims, Text: make([]string, n)}, nil
	}
	return &Tensor{DType: typ, Dims: dims, Data: make([]byte, n*size(typ))}, nil
}

// Elements returns the number of elements of a tensor that models exchange with others, or an error if a
// tensor may not be as large or has no whole bytes.
func Elements(typ dtype.DType, dims []int64) (int64, error) {
	if _, err := dtype.Elements(dims); err == nil && typ.Bits() < 8 {
		return 0, fmt.Errorf("%w: elements of type %v", ErrUnsupported, typ)
	}
	return bounded(typ, dims)
}

// Bytes returns the memory that a tensor takes in a run, or an error if a tensor may not be as large.
func Bytes(typ dtype.DType, dims []int64) (int64, error) {
	n, err := bounded(typ, dims)
	return n * size(typ), err
}

func bounded(typ dtype.DType, dims []int64) (int64, error) {
	n, err := dtype.Elements(dims)
	if err != nil {
		return 0, err
	}
	if typ.Bits() == 0 && typ != dtype.String {
		return 0, fmt.Errorf("%w: elements of type %v", ErrUnsupported, typ)
	}
	if n > MaxBytes/size(typ) {
		return 0, fmt.Errorf("%w: a tensor with dims %v is larger than %d MiB", ErrUnsupported, dims, MaxBytes>>20)
	}
	return n, nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	if t.DType == dtype.String {
		return len(t.Text)
	}
	return len(t.Data) / t.Size()
}

// Size returns the bytes of an element. An element of less than 8 bits has a byte for itself.
func (t *Tensor) Size() int { return int(size(t.DType)) }

// size counts a string as 16 bytes.
func size(typ dtype.DType) int64 {
	if typ == dtype.String {
		return 16
	}
	return max(typ.Bits()/8, 1)
}

// IsFloat reports whether the elements are floating-point numbers.
func (t *Tensor) IsFloat() bool { return t.DType.Float() }

// Float32s returns the elements of a tensor of a floating-point type as float32.
func (t *Tensor) Float32s() []float32 {
	x := make([]float32, t.Len())
	t.DType.Decode(x, t.Data)
	return x
}

// TakeFloat32s is Float32s for a tensor that is not used afterwards: the result reuses its memory if
// possible.
func (t *Tensor) TakeFloat32s() []float32 {
	if t.DType == dtype.Float32 {
		if x := kernels.Floats(t.Data); x != nil {
			return x
		}
	}
	return t.Float32s()
}

// Float64s returns the elements, whatever their type, as float64.
func (t *Tensor) Float64s() []float64 {
	x := make([]float64, t.Len())
	switch {
	case t.DType == dtype.Float64:
		for i := range x {
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
		}
	case t.IsFloat():
		for i, v := range t.Float32s() {
			x[i] = float64(v)
		}
	default:
		for i, v := range t.Int64s() {
			x[i] = float64(v)
			if t.DType == dtype.Uint64 {
				x[i] = float64(uint64(v))
			}
		}
	}
	return x
}

// Int64s returns the elements of a tensor of integers or booleans. Elements of type UINT64 keep their
// bits.
func (t *Tensor) Int64s() []int64 {
	if t.DType == dtype.Int64 || t.DType == dtype.Uint64 {
		return slices.Clone(Numbers[int64](t))
	}
	x := make([]int64, t.Len())
	size := t.Size()
	shift := 64 - 8*size
	signed := t.DType.Signed()
	for i := range x {
		v := uint64(0)
		for j := size - 1; j >= 0; j-- {
			v = v<<8 | uint64(t.Data[i*size+j])
		}
		x[i] = int64(v)
		if signed {
			x[i] = int64(v<<shift) >> shift
		}
	}
	return x
}

// FromFloat32s makes a tensor of a floating-point type, to which the elements are
// rounded.
func FromFloat32s(typ dtype.DType, dims []int64, x []float32) (*Tensor, error) {
	t, err := sized(typ, dims, len(x))
	if err != nil {
		return nil, err
	}
	typ.Encode(t.Data, x)
	return t, nil
}

// FromFloat64s makes a tensor of any floating-point type.
func FromFloat64s(typ dtype.DType, dims []int64, x []float64) (*Tensor, error) {
	if typ != dtype.Float64 {
		narrow := make([]float32, len(x))
		for i, v := range x {
			narrow[i] = float32(v)
		}
		return FromFloat32s(typ, dims, narrow)
	}
	t, err := sized(typ, dims, len(x))
	if err != nil {
		return nil, err
	}
	for i, v := range x {
		binary.LittleEndian.PutUint64(t.Data[8*i:], math.Float64bits(v))
	}
	return t, nil
}

// FromInt64s makes a tensor of integers or truth values. What does not fit wraps
// around.
func FromInt64s(typ dtype.DType, dims []int64, x []int64) (*Tensor, error) {
	t, err := sized(typ, dims, len(x))
	if err != nil {
		return nil, err
	}
	size := t.Size()
	for i, v := range x {
		for j := range size {
			t.Data[i*size+j] = byte(v >> (8 * j))
		}
	}
	return t, nil
}

func sized(typ dtype.DType, dims []int64, n int) (*Tensor, error) {
	t, err := New(typ, dims)
	if err == nil && t.Len() != n {
		return nil, fmt.Errorf("%d elements for dims %v", n, dims)
	}
	return t, err
}
