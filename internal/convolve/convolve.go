package convolve

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

// Shape has the numbers of a convolution besides its geometry.
type Shape struct {
	Geometry
	Images, Groups int
	From, To       int // channels of an image and of an output, of all groups
}

// direct is the largest number of output channels of a group that are computed one by one, without a
// matrix product.
const direct = 3

// Convolve sets y [images, to, out] to the convolution of x [images, from, in] with kernels [to, from/groups, taps], and a number
// for each channel of y. biases may be nil.
func (s *Shape) Convolve(ctx context.Context, workers int, y, x, kernel, biases []float32) error {
	from, to, in, out := s.From/s.Groups, s.To/s.Groups, volume(s.In), volume(s.Out)
	inner := from * s.Taps()
	if to <= direct {
		return work.Each(ctx, workers, s.Images*s.To, func(_ context.Context, row *[]float32, i int) error {
			image, m := i/s.To, i%s.To
			channels := x[(image*s.From+m/to*from)*in:]
			buffer.Grow(row, int64(out))
			if biases == nil {
				clear(y[i*out:][:out])
			} else {
				fill(y[i*out:][:out], biases[m])
			}
			for k, factor := range kernel[m*inner:][:inner] {
				s.addTap(y[i*out:][:out], factor, channels[k/s.Taps()*in:][:in], k%s.Taps(), *row)
			}
			return nil
		})
	}
	products := make([]linalg.Product, s.Images*s.Groups)
	for i := range products {
		group := i % s.Groups
		channels := x[i*from*in:][:from*in]
		p := linalg.Product{C: linalg.Of(y[i*to*out:], to, out), A: linalg.Of(kernel[group*to*inner:], to, inner), Fresh: true}
		if biases != nil {
			p.Start = linalg.Matrix{Data: biases[group*to:], Rows: to, Columns: out, Row: 1}
		}
		if s.pointwise() {
			p.B = linalg.Of(channels, from, in)
		} else {
			p.Row = func(row []float32, k, j int) { Row(&s.Geometry, row, channels[k/s.Taps()*in:][:in], k%s.Taps(), j, 0) }
		}
		products[i] = p
	}
	return linalg.AddProducts(ctx, workers, products)
}

// addTap adds a multiple of the elements of a channel under a tap to those of an output. row is memory for these.
func (s *Shape) addTap(y []float32, factor float32, channel []float32, tap int, row []float32) {
	if s.Stride[2] > 1 || s.Out[2] < 16 {
		Row(&s.Geometry, row, channel, tap, 0, 0)
		kernels.AddMultiple(y, factor, row)
		return
	}
	s.eachLine(len(y), tap, 0, func(at, n, from int) {
		if from >= 0 {
			kernels.AddMultiple(y[at:at+n], factor, channel[from:from+n])
		}
	})
}

// Exactly is Convolve for other numbers, without matrix products.
func Exactly[T Number](s *Shape, y, x, kernel []T) {
	from, to, in, out := s.From/s.Groups, s.To/s.Groups, volume(s.In), volume(s.Out)
	inner := from * s.Taps()
	row := make([]T, out)
	for i := range s.Images * s.To {
		image, m := i/s.To, i%s.To
		channels := x[(image*s.From+m/to*from)*in:]
		sums := y[i*out:][:out]
		for k, factor := range kernel[m*inner:][:inner] {
			Row(&s.Geometry, row, channels[k/s.Taps()*in:][:in], k%s.Taps(), 0, 0)
			for j, v := range row {
				sums[j] += T(factor * v)
			}
		}
	}
}

// pointwise reports whether each window is one element of the image, in order.
func (s *Shape) pointwise() bool {
	ones := [3]int{1, 1, 1}
	return s.Kernel == ones && s.Stride == ones && s.Before == [3]int{} && s.In == s.Out
}

// Transpose adds the transposed convolution of y [images, to, out] with kernels [to, from/groups, taps] to
// x [images, from, in]. The geometry is that of the convolution that it transposes.
func (s *Shape) Transpose(ctx context.Context, workers int, x, y, kernel []float32) error {
	from, to, in, out := s.From/s.Groups, s.To/s.Groups, volume(s.In), volume(s.Out)
	taps, inner := s.Taps(), from*s.Taps()
	return work.Each(ctx, workers, s.Images*s.From, func(ctx context.Context, rows *[]float32, i int) error {
		image, group, m := i/s.From, i%s.From/from, i%s.From%from
		clear(buffer.Grow(rows, int64(taps*out)))
		// Row t of the product is what the channels of y give to tap t of this channel of x.
		part := kernel[group*to*inner+m*taps:]
		p := linalg.Product{
			C: linalg.Of(*rows, taps, out), B: linalg.Of(y[(image*s.To+group*to)*out:], to, out),
			A: linalg.Matrix{Data: part, Rows: taps, Columns: to, Row: 1, Column: inner},
		}
		if err := linalg.AddProducts(ctx, 1, []linalg.Product{p}); err != nil {
			return err
		}
		for t := range taps {
			AddRow(&s.Geometry, x[i*in:][:in], (*rows)[t*out:][:out], t, 0)
		}
		return nil
	})
}
