package compare

import (
	"math"
	"slices"
)

// ends has the elements at the largest and the smallest value of a block, where codes clip, apart from the others.
type ends struct {
	known       bool
	hi, lo      float64 // the values
	top, bottom clip
	inside      float64 // largest error of an element that does not clip
}

// clip has the elements beyond the largest or the smallest value.
type clip struct {
	squares float64 // sum of squared errors
	largest float64 // error
}

func (c *clip) add(err float64) {
	c.squares += err * err
	c.largest = max(c.largest, err)
}

// add adds an element w that became v.
func (e *ends) add(w, v float64) {
	short := w - v
	switch {
	case e.known && v < e.hi && v > e.lo: // most elements
		e.inside = max(e.inside, math.Abs(short))
		return
	case !e.known:
		e.known, e.hi, e.lo = true, v, v
	case v > e.hi:
		e.inside, e.hi, e.top = max(e.inside, e.top.largest), v, clip{}
	case v < e.lo:
		e.inside, e.lo, e.bottom = max(e.inside, e.bottom.largest), v, clip{}
	}
	switch {
	case v == e.hi && short > 0:
		e.top.add(short)
	case v == e.lo && short < 0:
		e.bottom.add(-short)
	default:
		e.inside = max(e.inside, math.Abs(short))
	}
}

// suspicion returns how large the largest error inside of the range of a block is, in units of the root mean square of
// the other errors.
func (b *block) suspicion() float64 {
	largest := b.ends.inside
	if b.N < shortBlock || largest == 0 {
		return 0
	}
	rest := max(b.SumSqErr-largest*largest, 0) / float64(b.N-1)
	return min(largest/math.Sqrt(rest), math.MaxFloat32)
}

// suspects are the blocks of a weight with the largest suspicion.
type suspects []suspect

type suspect struct {
	at        int64 // position of the first element
	suspicion float64
}

const (
	suspicious   = 3.0
	mostSuspects = 16
	longestBlock = 1 << 20 // elements of a block that are looked at
)

func (s *suspects) add(b *block, at int64) {
	x := suspect{at, b.suspicion()}
	if x.suspicion < suspicious {
		return
	}
	if len(*s) < mostSuspects {
		*s = append(*s, x)
		return
	}
	least := slices.IndexFunc(*s, func(o suspect) bool { return o.suspicion < x.suspicion })
	if least >= 0 {
		(*s)[least] = x
	}
}

// stray returns how far an element is from the nearest of the values in its block, beyond what it must be: its excess.
// The unit is what is usual in the block. Rounding leaves 0. Codes that make up for errors of others leave some units, the
// code of another element many.
func (m *matcher) stray(e *measurement) (stray float64, err error) {
	if len(e.suspects) == 0 {
		return 0, nil
	}
	kept := map[int64]*pairs{}
	for _, s := range e.suspects {
		kept[s.at] = &pairs{}
	}
	start := int64(0)
	add := func(w, v []float32, at int64) {
		for i := range w {
			p := kept[start+(at+int64(i)-start)%e.blocks.inner]
			if p != nil && len(p.w) < longestBlock && isFinite(w[i]) && isFinite(v[i]) {
				p.w, p.v = append(p.w, w[i]), append(p.v, v[i])
			}
		}
	}
	if err := m.walk(e, add, func(_, end int64) { start = end }); err != nil {
		return 0, err
	}
	for _, p := range kept {
		stray = max(stray, p.stray())
	}
	return stray, nil
}

func (p *pairs) stray() float64 {
	values := slices.Compact(slices.Sorted(slices.Values(p.v)))
	if len(values) < 2 {
		return 0
	}
	n := len(p.w)
	errs, far, sum := make([]float64, n), 0.0, 0.0
	for i, w := range p.w {
		least := math.Inf(1)
		errs[i] = math.Abs(float64(p.v[i]) - float64(w))
		at, _ := slices.BinarySearch(values, w)
		for _, v := range values[max(at-1, 0):min(at+1, len(values))] {
			least = min(least, math.Abs(float64(v)-float64(w)))
		}
		far, sum = max(far, errs[i]-least), sum+errs[i]-least
	}
	slices.Sort(errs)
	// The median error of rounding is a quarter of a step. Codes that make up for errors have an excess in many elements.
	gap := float64(values[len(values)-1]-values[0]) / float64(len(values)-1)
	return far / (max(errs[n/2], gap/4) + 2*(sum-far)/float64(n))
}
