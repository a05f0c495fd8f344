package execute

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"onnxquant/formats/dtype"
)

// A Runner computes the outputs of models.
type Runner interface {
	// Name returns the name and version of the runtime, for messages.
	Name() string

	// Run returns the outputs of the model at path, in the order of its graph.
	Run(ctx context.Context, path string, inputs []*Tensor) ([]*Tensor, error)
}

// ErrUnsupported is wrapped by errors about models that package evaluate cannot run.
var ErrUnsupported = errors.New("not supported")

// MaxBytes limits the size of a tensor made in a run, and of all inputs together.
const MaxBytes = 256 << 20

// Types without a name in modelfile.
const (
	Bool   = modelfile.DType(onnxpb.TensorProto_BOOL)
	Int16  = modelfile.DType(onnxpb.TensorProto_INT16)
	Int64  = modelfile.DType(onnxpb.TensorProto_INT64)
	Uint16 = modelfile.DType(onnxpb.TensorProto_UINT16)
	Uint32 = modelfile.DType(onnxpb.TensorProto_UINT32)
	Uint64 = modelfile.DType(onnxpb.TensorProto_UINT64)
)

// Tensor is a value of a graph.
type Tensor struct {
	Name  string
	DType dtype.DType
	Dims  []int64
	Data  []byte // little-endian, in row-major order
}

// New makes a tensor of zeros.
func New(typ dtype.DType, dims []int64) (*Tensor, error) {
	n, err := dtype.Elements(dims)
	if err != nil {
		return nil, err
	}
	if dtype.Bits() < 8 {
		return nil, fmt.Errorf("%w: elements of type %v", ErrUnsupported, dtype)
	}
	if n > MaxBytes/(dtype.Bits()/8) {
		return nil, fmt.Errorf("%w: a tensor with dims %v is larger than %d MiB", ErrUnsupported, dims, MaxBytes>>20)
	}
	return &Tensor{DType: typ, Dims: dims, Data: make([]byte, typ.Bytes(n))}, nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return len(t.Data) / t.Size() }

// Size returns the bytes per element.
func (t *Tensor) Size() int { return int(t.DType.Bits() / 8) }

// IsFloat reports whether the elements are floating-point.
func (t *Tensor) IsFloat() bool { return t.DType.Float() }

// Float32s returns the elements of a float16, bfloat16 or float32 tensor.
func (t *Tensor) Float32s() []float32 {
	x := make([]float32, t.Len())
	t.DType.Decode(x, t.Data)
	return x
}

// Float64s converts the elements to float64, whatever their type.
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

// Int64s returns the elements of a tensor of integers or bools. UINT64 elements
// keep their bits.
func (t *Tensor) Int64s() []int64 {
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

// FromFloat32s makes a float16, bfloat16 or float32 tensor and rounds x to its type.
func FromFloat32s(dtype modelfile.DType, dims []int64, x []float32) (*Tensor, error) {
	t, err := sized(dtype, dims, len(x))
	if err != nil {
		return nil, err
	}
	typ.Encode(t.Data, x)
	return t, nil
}

// FromFloat64s makes a tensor of any floating-point type and rounds x to it.
func FromFloat64s(dtype modelfile.DType, dims []int64, x []float64) (*Tensor, error) {
	if dtype != modelfile.Float64 {
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

// FromInt64s makes a tensor of integers or bools. Values that do not fit wrap around.
func FromInt64s(dtype modelfile.DType, dims []int64, x []int64) (*Tensor, error) {
	t, err := sized(dtype, dims, len(x))
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

// sized is New for n elements.
func sized(dtype modelfile.DType, dims []int64, n int) (*Tensor, error) {
	t, err := New(dtype, dims)
	if err == nil && t.Len() != n {
		return nil, fmt.Errorf("%d elements for dims %v", n, dims)
	}
	return t, err
}
