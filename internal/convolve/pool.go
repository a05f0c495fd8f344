package convolve

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/work"
)

// MaxPool sets y [channels, out] to the largest elements of the windows of x [channels, in]. least is less than all
// of them. NaN is larger than numbers.
func MaxPool[T Number](ctx context.Context, g *Geometry, workers, channels int, y, x []T, least T) error {
	return Pool(ctx, g, workers, channels, y, x, least, func(y, row []T) {
		for i, v := range row {
			y[i] = max(y[i], v)
		}
	})
}

// SumPool sets y [channels, out] to the sums of the windows of x [channels, in].
func SumPool[T Number](ctx context.Context, g *Geometry, workers, channels int, y, x []T) error {
	return Pool(ctx, g, workers, channels, y, x, 0, func(y, row []T) {
		for i, v := range row {
			y[i] += v
		}
	})
}

// Pool combines the elements of the windows of x [channels, in], one tap after another, into y [channels, out],
// which begins with start. Elements outside of the image are start, too.
func Pool[T Number](ctx context.Context, g *Geometry, workers, channels int, y, x []T, start T, combine func(y, row []T)) error {
	in, out := volume(g.In), volume(g.Out)
	return work.Each(ctx, workers, channels, func(_ context.Context, row *[]T, i int) error {
		result := y[i*out:][:out]
		fill(result, start)
		buffer.Grow(row, int64(out))
		for t := range g.Taps() {
			Row(g, *row, x[i*in:][:in], t, 0, start)
			combine(result, *row)
		}
		return nil
	})
}

// MaxPlaces is MaxPool that also sets places to where the elements lie in the channel: the first of the largest.
func MaxPlaces[T Number](g *Geometry, channels int, y []T, places []int64, x []T, least T) {
	in, out := volume(g.In), volume(g.Out)
	index := make([]int64, in)
	for i := range index {
		index[i] = int64(i)
	}
	row, from := make([]T, out), make([]int64, out)
	fill(y, least)
	fill(places, -1)
	for i := range channels {
		for t := range g.Taps() {
			Row(g, row, x[i*in:][:in], t, 0, least)
			Row(g, from, index, t, 0, -1)
			for k, v := range row {
				if at := i*out + k; from[k] >= 0 && (places[at] < 0 || v > y[at]) {
					y[at], places[at] = v, from[k]
				}
			}
		}
	}
}
