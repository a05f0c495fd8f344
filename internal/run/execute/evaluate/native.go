package evaluate

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// arithmetic computes with tensors of one floating-point type, whose shapes fit.
type arithmetic interface {
	// elementwise applies an operator to one tensor, or to two of the same shape.
	elementwise(op string, in ...*execute.Tensor) (*execute.Tensor, error)

	// matMul multiplies matrices [m, k] and [k, n], whatever the dims of the tensors are.
	matMul(a, b *execute.Tensor, m, k, n int64) (*execute.Tensor, error)

	// correlate slides kernels [m, c, h, w] over images [n, c, y, x] to an output with these
	// dims.
	correlate(images, kernels *execute.Tensor, steps, dims []int64) (*execute.Tensor, error)

	// maxPool finds the largest element of each window of an image, for an output with these
	// dims.
	maxPool(images *execute.Tensor, kernel, steps, dims []int64) (*execute.Tensor, error)
}

// native is the arithmetic of the Go engine: matrix products are gonum's.
type native struct{}

var functions = map[string]func(x float64) float64{
	"Abs":     math.Abs,
	"Ceil":    math.Ceil,
	"Cos":     math.Cos,
	"Exp":     math.Exp,
	"Floor":   math.Floor,
	"Log":     math.Log,
	"Neg":     func(x float64) float64 { return -x },
	"Relu":    func(x float64) float64 { return max(x, 0) },
	"Sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"Sin":     math.Sin,
	"Sqrt":    math.Sqrt,
	"Tanh":    math.Tanh,
}

// combinations of two float32 numbers, computed in float64. Rounding the result to float32 gives the
// same as computing in float32.
var combinations = map[string]func(x, y float64) float64{
	"Add": func(x, y float64) float64 { return x + y },
	"Sub": func(x, y float64) float64 { return x - y },
	"Mul": func(x, y float64) float64 { return x * y },
	"Div": func(x, y float64) float64 { return x / y },
}

func (native) elementwise(op string, in ...*execute.Tensor) (*execute.Tensor, error) {
	if len(in) == 1 {
		return mapFloats(in[0], functions[op])
	}
	return combine(in[0], in[1], combinations[op])
}

// piece is the number of elements that are computed as float64 at a time.
const piece = 4096

// mapFloats applies f to each element.
func mapFloats(t *execute.Tensor, f func(x float64) float64) (*execute.Tensor, error) {
	if !t.IsFloat() {
		return nil, unsupported("elements of type %v", t.DType)
	}
	return combine(t, t, func(x, _ float64) float64 { return f(x) })
}

// combine applies f to each pair of elements of two tensors of the same shape.
func combine(a, b *execute.Tensor, f func(x, y float64) float64) (*execute.Tensor, error) {
	out, err := execute.New(a.DType, a.Dims)
	if err != nil {
		return nil, err
	}
	for i := 0; i < a.Len(); i += piece {
		x := part(a, i, piece).Float64s()
		y := x
		if b != a {
			y = part(b, i, piece).Float64s()
		}
		for j := range x {
			x[j] = f(x[j], y[j])
		}
		done, err := execute.FromFloat64s(a.DType, []int64{int64(len(x))}, x)
		if err != nil {
			return nil, err
		}
		copy(out.Data[i*a.Size():], done.Data)
	}
	return out, nil
}

// part returns up to n elements from the i-th on, which are not copied.
func part(t *execute.Tensor, i, n int) *execute.Tensor {
	size := t.Size()
	return &execute.Tensor{DType: t.DType, Data: t.Data[i*size : min((i+n)*size, len(t.Data))]}
}

func (native) matMul(a, b *execute.Tensor, m, k, n int64) (*execute.Tensor, error) {
	dims := []int64{m, n}
	if a.DType == dtype.Float64 {
		c := make([]float64, m*n)
		multiply(int(m), int(k), int(n), a.Float64s(), b.Float64s(), c, int(n))
		return execute.FromFloat64s(a.DType, dims, c)
	}
	c := make([]float32, m*n)
	multiply(int(m), int(k), int(n), a.Float32s(), b.Float32s(), c, int(n))
	return execute.FromFloat32s(a.DType, dims, c)
}

// multiply sets c to the product of a [m, k] and b [k, n]. Rows of c are stride elements apart.
func multiply[T float32 | float64](m, k, n int, a, b, c []T, stride int) {
	columns := blas.NoTrans
	if !finite(b) {
		// gonum does not multiply zeros of a, and 0·∞ is NaN. It does if b is transposed.
		columns, b = blas.Trans, transposed(b, k, n)
	}
	rows, width := k, n
	if columns == blas.Trans {
		rows, width = n, k
	}
	switch c := any(c).(type) {
	case []float32:
		blas32.Gemm(blas.NoTrans, columns, 1, blas32.General{Rows: m, Cols: k, Stride: k, Data: any(a).([]float32)},
			blas32.General{Rows: rows, Cols: width, Stride: width, Data: any(b).([]float32)}, 0, blas32.General{Rows: m, Cols: n, Stride: stride, Data: c})
	case []float64:
		blas64.Gemm(blas.NoTrans, columns, 1, blas64.General{Rows: m, Cols: k, Stride: k, Data: any(a).([]float64)},
			blas64.General{Rows: rows, Cols: width, Stride: width, Data: any(b).([]float64)}, 0, blas64.General{Rows: m, Cols: n, Stride: stride, Data: c})
	}
}

// finite reports whether no element is NaN or infinite.
func finite[T float32 | float64](x []T) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

func transposed[T float32 | float64](x []T, rows, columns int) []T {
	y := make([]T, len(x))
	for i := range rows {
		for j := range columns {
			y[j*rows+i] = x[i*columns+j]
		}
	}
	return y
}

func (native) correlate(images, kernels *execute.Tensor, steps, dims []int64) (*execute.Tensor, error) {
	if row := float64(dims[3]) * float64(product(kernels.Dims[1:])) * 8; row > execute.MaxBytes {
		return nil, unsupported("a convolution that takes %.0f MiB", row/(1<<20))
	}
	if images.DType == dtype.Float64 {
		return execute.FromFloat64s(images.DType, dims, correlated(images.Float64s(), kernels.Float64s(), images.Dims, kernels.Dims, steps, dims))
	}
	return execute.FromFloat32s(images.DType, dims, correlated(images.Float32s(), kernels.Float32s(), images.Dims, kernels.Dims, steps, dims))
}

// patchElements is about the number of elements of the patches that one matrix product takes.
const patchElements = 1 << 18

// correlated multiplies the kernels (one a row) by patches of an image (one a column). A patch is the
// part of the image that the kernel covers for one element of the output. Some rows of an output are
// computed at a time.
func correlated[T float32 | float64](x, k []T, image, kernel, steps, dims []int64) []T {
	width, size := int(dims[3]), int(kernel[1]*kernel[2]*kernel[3])
	y := make([]T, product(dims))
	rows := max(1, patchElements/(width*size))
	patches := make([]T, 0, min(rows, int(dims[2]))*width*size)
	channels, plane := int(dims[1]), int(dims[2]*dims[3])
	for i := range int(image[0]) {
		one := x[i*int(product(image[1:])):]
		out := y[i*channels*plane:]
		for first := 0; first < int(dims[2]); first += rows {
			n := min(rows, int(dims[2])-first)
			patches = appendPatches(patches[:0], one, image, kernel, steps, first, n, width)
			multiply(channels, size, n*width, k, patches, out[first*width:], plane)
		}
	}
	return y
}

// appendPatches appends the patches of n rows of outputs: for each element of the kernel, the elements
// of the image under it.
func appendPatches[T any](patches, x []T, image, kernel, steps []int64, first, n, width int) []T {
	height, across := int(image[2]), int(image[3])
	for c := range int(kernel[1]) {
		for ky := range int(kernel[2]) {
			for kx := range int(kernel[3]) {
				for row := first; row < first+n; row++ {
					line := x[(c*height+row*int(steps[0])+ky)*across+kx:]
					if steps[1] == 1 {
						patches = append(patches, line[:width]...)
						continue
					}
					for i := range width {
						patches = append(patches, line[i*int(steps[1])])
					}
				}
			}
		}
	}
	return patches
}

func (native) maxPool(images *execute.Tensor, kernel, steps, dims []int64) (*execute.Tensor, error) {
	height, across := int(images.Dims[2]), int(images.Dims[3])
	y := make([]float64, 0, product(dims))
	for i := range int(dims[0] * dims[1]) {
		x := part(images, i*height*across, height*across).Float64s()
		for row := range int(dims[2]) {
			for column := range int(dims[3]) {
				largest := math.Inf(-1)
				for ky := range int(kernel[0]) {
					at := (row*int(steps[0])+ky)*across + column*int(steps[1])
					for _, v := range x[at : at+int(kernel[1])] {
						largest = max(largest, v)
					}
				}
				y = append(y, largest)
			}
		}
	}
	return execute.FromFloat64s(images.DType, dims, y)
}
