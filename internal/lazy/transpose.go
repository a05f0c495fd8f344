package lazy

import (
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"weak"

	"onnxquant/internal/buffer"
	"onnxquant/internal/shapes"
)

// Transposed returns the elements with axis i of the result being axis perm[i] of a stored tensor
// with elements of whole bytes. perm is a permutation of the axes.
func (x *Tensor) Transposed(perm []int64) *Tensor {
	size := x.DType.Bits() / 8
	steps := make([]int64, len(x.Shape)) // bytes between neighbours along an axis of x
	for i, n := range slices.Backward(x.Shape) {
		steps[i], size = size, size*n
	}
	t := &transposition{r: x.Stored, unit: x.DType.Bits() / 8}
	var shape []int64
	for _, p := range perm {
		shape = append(shape, x.Shape[p])
		if x.Shape[p] > 1 {
			t.add(x.Shape[p], steps[p])
		}
	}
	if last := len(t.axes) - 1; last >= 0 && t.axes[last].step == t.unit {
		t.unit, t.axes = t.axes[last].n*t.unit, t.axes[:last]
	}
	if len(t.axes) == 0 {
		return x.Reshaped(shape)
	}
	return Stored(x.DType, shape, t)
}

// transposition reads units of bytes that remain together, in another order.
type transposition struct {
	r    io.ReaderAt
	unit int64
	axes []axis // in the order of reading; one of them has step unit
}

// axis is n indices that are step bytes apart in the original.
type axis struct{ n, step int64 }

// add appends an axis. It merges it with the previous one if they are adjacent in the original.
func (t *transposition) add(n, step int64) {
	if last := len(t.axes) - 1; last >= 0 && t.axes[last].step == n*step {
		t.axes[last] = axis{t.axes[last].n * n, step}
		return
	}
	t.axes = append(t.axes, axis{n, step})
}

// at returns where unit i begins.
func (t *transposition) at(i int64) (at int64) {
	for _, a := range slices.Backward(t.axes) {
		at += i % a.n * a.step
		i /= a.n
	}
	return at
}

// ReadAt implements io.ReaderAt.
func (t *transposition) ReadAt(dst []byte, off int64) (n int, err error) {
	for n < len(dst) && err == nil {
		i, within := off/t.unit, off%t.unit
		var took int
		if t.unit >= tooLong {
			took = int(min(t.unit-within, int64(len(dst)-n)))
			err = buffer.ReadFull(t.r, dst[n:n+took], t.at(i)+within)
		} else {
			took, err = t.row(dst[n:], i, within)
		}
		n, off = n+took, off+int64(took)
	}
	return n, err
}

// Bytes farther away than tooFar get a read of their own: that is faster than reading the gap. Units
// of tooLong bytes or more are read one by one.
const (
	tooFar  = 4 << 10
	tooLong = 1 << 10
)

// grid cuts the units into tiles. The order of reading is [outer, along, inner], where neighbours
// along lie next to each other in the original. A tile has height neighbours by width inner indices;
// in the original these are width stretches of height units.
type grid struct{ inner, along, width, height int64 }

const (
	tileBytes  = 1 << 20
	tileWidth  = 1 << 10 // inner indices
	leastBytes = 64      // shortest stretch that is read alone: a cache line
	mostBeside = 32      // tiles with the same neighbours
)

func (t *transposition) grid() grid {
	g := grid{inner: 1}
	k := len(t.axes) - 1
	for ; k > 0 && t.axes[k].step != t.unit; k-- {
		g.inner *= t.axes[k].n
	}
	g.along = t.axes[k].n
	g.width = min(g.inner, max(tileWidth, shapes.DivideUp(g.inner, mostBeside)))
	// Whoever reads in order comes to all tiles with the same neighbours in turn, again and again. All
	// must be kept, for each worker.
	beside := int64(keptBytes / (runtime.GOMAXPROCS(0) + 1))
	g.height = min(tileBytes/(g.width*t.unit), beside/(g.inner*t.unit))
	least := int64(1)
	if t.axes[len(t.axes)-1].step > tooFar {
		least = max(leastBytes/t.unit, 1)
	}
	g.height = min(max(g.height, least), g.along)
	return g
}

// row copies unit i, from some byte on, and the units behind it in the same row of its tile. It returns how many bytes it copied.
func (t *transposition) row(dst []byte, i, within int64) (int, error) {
	g := t.grid()
	outer, j, r := i/g.inner/g.along, i/g.inner%g.along, i%g.inner
	at := tilePlace{outer, j - j%g.height, r - r%g.width}
	g.width, g.height = min(g.width, g.inner-at.r), min(g.height, g.along-at.j)
	all, release, err := kept.get(tileKey{weak.Make(t), at}, g.width*g.height*t.unit, func(into []byte) error { return t.tile(into, g, at) })
	defer release()
	if err != nil {
		return 0, err
	}
	row := (j - at.j) * g.width
	return copy(dst, all[(row+r-at.r)*t.unit+within:(row+g.width)*t.unit]), nil
}

// tile reads a tile, of the size that g has, into made. Some stretches are read first, and then turned while they are
// in the caches.
func (t *transposition) tile(made []byte, g grid, at tilePlace) error {
	lent := gathers.Get().(*[]byte)
	defer gathers.Put(lent)
	var starts [1 << 10]int64 // starts of stretches in the bytes read
	stretch := g.height * t.unit
	batch := min(int64(len(starts)), max(gathered/stretch, 1))
	first := (at.outer*g.along+at.j)*g.inner + at.r
	for r := int64(0); r < g.width; {
		low, n, most := t.at(first+r), int64(1), min(batch, g.width-r)
		high := low + stretch
		for starts[0] = 0; n < most; n++ { // stretches near each other are read at once, with the gaps
			next := t.at(first + r + n)
			if next < high || next-high > tooFar || next+stretch-low > gathered {
				break
			}
			starts[n], high = next-low, next+stretch
		}
		all := buffer.Grow(lent, max(high-low, most*stretch))
		if err := buffer.ReadFull(t.r, all[:high-low], low); err != nil {
			return err
		}
		if n == 1 {
			for ; n < most; n++ {
				starts[n] = n * stretch
				if err := buffer.ReadFull(t.r, all[starts[n]:starts[n]+stretch], t.at(first+r+n)); err != nil {
					return err
				}
			}
		}
		for j := range g.height {
			t.gatherUnits(made[(j*g.width+r)*t.unit:], all[j*t.unit:], starts[:n])
		}
		r += n
	}
	return nil
}

// gatherUnits copies the units at the given places of from, one after another.
func (t *transposition) gatherUnits(to, from []byte, starts []int64) {
	switch t.unit {
	case 4:
		for k, at := range starts {
			binary.LittleEndian.PutUint32(to[4*k:], binary.LittleEndian.Uint32(from[at:]))
		}
	case 2:
		for k, at := range starts {
			binary.LittleEndian.PutUint16(to[2*k:], binary.LittleEndian.Uint16(from[at:]))
		}
	default:
		for k, at := range starts {
			copy(to[int64(k)*t.unit:][:t.unit], from[at:])
		}
	}
}
