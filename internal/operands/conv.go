package operands

import "fmt"

// Convolution is a Conv. Its rows are the patches of the input that the kernel covers, one for each
// position of the output. Each group is a part.
type Convolution struct {
	Groups             int64
	Kernel             []int64 // of each spatial axis, like the fields below
	Strides, Dilations []int64
	Before, After      []int64 // padding
	Same               string  // auto_pad: SAME_UPPER or SAME_LOWER, in place of the padding; or ""
}

// Parts is the number of groups.
func (c Convolution) Parts() int { return int(c.Groups) }

// Rows implements Operation.
func (c Convolution) Rows(input, _ Value, k int) (Rows, error) {
	spatial := len(c.Kernel)
	if len(input.Dims) != spatial+2 {
		return nil, fmt.Errorf("it has %d axes, not %d", len(input.Dims), spatial+2)
	}
	p := &patches{Convolution: c, image: input.Dims[2:], data: input.Data, row: make([]float32, k), at: make([]int64, spatial)}
	p.channels, p.positions, p.pixels, p.covered = input.Dims[1], 1, 1, 1
	for i, n := range p.image {
		extent := (c.Kernel[i]-1)*c.Dilations[i] + 1
		before, out := c.Before[i], (n+c.Before[i]+c.After[i]-extent)/c.Strides[i]+1
		if c.Same != "" {
			out = (n + c.Strides[i] - 1) / c.Strides[i]
			pads := max((out-1)*c.Strides[i]+extent-n, 0)
			if before = pads / 2; c.Same == "SAME_LOWER" {
				before = pads - pads/2
			}
		}
		p.out, p.before = append(p.out, max(out, 0)), append(p.before, before)
		p.positions *= max(out, 0)
		p.pixels *= n
		p.covered *= c.Kernel[i]
	}
	if p.channels*p.covered != int64(k) {
		return nil, fmt.Errorf("its %d channels do not fit a kernel with rows of %d", p.channels, k)
	}
	return p, nil
}

// patches are the rows of a Convolution.
type patches struct {
	Convolution
	data      []float32
	image     []int64 // lengths of the spatial axes of the input
	out       []int64 // and of the output
	before    []int64
	channels  int64
	pixels    int64 // of an image
	positions int64 // of the kernel on an image
	covered   int64 // elements of the kernel for a channel

	row []float32
	at  []int64 // the position
}

func (p *patches) Len() int {
	if p.channels*p.pixels == 0 {
		return 0
	}
	return len(p.data) / int(p.channels*p.pixels) * int(p.positions)
}

func (p *patches) Input(i int) []float32 {
	image, position := int64(i)/p.positions, int64(i)%p.positions
	for axis := len(p.out) - 1; axis >= 0; axis-- {
		p.at[axis] = position%p.out[axis]*p.Strides[axis] - p.before[axis]
		position /= p.out[axis]
	}
	data := p.data[image*p.channels*p.pixels:][:p.channels*p.pixels]
	for e := range p.covered {
		pixel := p.pixel(e)
		for channel := range p.channels {
			v := float32(0)
			if pixel >= 0 {
				v = data[channel*p.pixels+pixel]
			}
			p.row[channel*p.covered+e] = v
		}
	}
	return p.row
}

// pixel returns the pixel under an element of the kernel, or -1 outside of the image.
func (p *patches) pixel(element int64) int64 {
	pixel, step := int64(0), int64(1)
	for axis := len(p.image) - 1; axis >= 0; axis-- {
		at := p.at[axis] + element%p.Kernel[axis]*p.Dilations[axis]
		element /= p.Kernel[axis]
		if at < 0 || at >= p.image[axis] {
			return -1
		}
		pixel += at * step
		step *= p.image[axis]
	}
	return pixel
}

func (p *patches) Output(i int, product Value, to []float32) []float32 {
	image, position := int64(i)/p.positions, int64(i)%p.positions
	for channel := range to {
		to[channel] = product.Data[(image*int64(len(to))+int64(channel))*p.positions+position]
	}
	return to
}
