package compare

import (
	"math"
	"slices"
)

// nearest adds up the errors of a weight, and the errors after rounding each element to the nearest
// value of its block.
type nearest struct {
	open    []pairs // blocks side by side
	most    int     // elements of a block that are kept
	shifted bool    // blocks have offsets too
	is      float64 // sum of squared errors
	left    float64 // the same with the nearest values
}

// pairs has elements of a block with their decoded values.
type pairs struct{ w, v []float32 }

// rounded reports whether about every element of a weight has the nearest of the values that occur in
// its block. Then its scales are right, even if not the best: codes made with other scales would not
// be the nearest. Only the first elements of long blocks are checked.
func (m *matcher) rounded(e *measurement) (bool, error) {
	const least, most, all, about = 16, 1 << 12, 1 << 20, 1.12 // 0.5 dB
	n := &nearest{open: make([]pairs, e.blocks.inner), most: max(least, min(most, int(all/e.blocks.inner))), shifted: e.shifted}
	err := m.walk(e, func(w, v []float32, at int64) { n.add(w, v, int(at%e.blocks.inner)) }, func(_, _ int64) { n.close() })
	return n.is <= about*n.left, err
}

// add keeps elements v that became of w, of which the first one belongs to open block k.
func (n *nearest) add(w, v []float32, k int) {
	for i := range w {
		if p := &n.open[k]; len(p.w) < n.most && isFinite(w[i]) && isFinite(v[i]) {
			p.w, p.v = append(p.w, w[i]), append(p.v, v[i])
		}
		if k++; k == len(n.open) {
			k = 0
		}
	}
}

func isFinite(x float32) bool { return x-x == 0 }

// close adds up the errors of the open blocks, and empties them.
func (n *nearest) close() {
	for i := range n.open {
		p := &n.open[i]
		if len(p.w) >= shortBlock {
			p.addTo(n)
		}
		p.w, p.v = p.w[:0], p.v[:0]
	}
}

// addTo adds the errors of a block. Few values may all be near with any scale. No error is said to be left if
// one of these is not among the elements that it stands for.
func (p *pairs) addTo(n *nearest) {
	values := slices.Compact(slices.Sorted(slices.Values(p.v)))
	known := !fitsAny(values, n.shifted) || !slices.ContainsFunc(values, p.outside)
	for i, w := range p.w {
		now, least := float64(p.v[i])-float64(w), math.Inf(1)
		n.is += now * now
		at, _ := slices.BinarySearch(values, w)
		for _, v := range values[max(at-1, 0):min(at+1, len(values))] {
			least = min(least, math.Abs(float64(v)-float64(w)))
		}
		if known {
			n.left += least * least
		}
	}
}

// fitsAny reports whether sorted values have one magnitude besides 0. With offsets, it reports whether
// they are at most two, or three at equal distances.
func fitsAny(values []float32, shifted bool) bool {
	const same = 1e-3
	if shifted {
		n := len(values)
		return n <= 2 || n == 3 && math.Abs(float64(values[0]+values[2]-2*values[1])) <= same*float64(values[2]-values[0])
	}
	largest := max(-values[0], values[len(values)-1])
	return !slices.ContainsFunc(values, func(v float32) bool { return v != 0 && v != largest && v != -largest })
}

// outside reports whether all elements that became v or -v are larger, or all smaller, by more than
// the rounding of a scale. fp8-e4m3 rounds scales most coarsely.
func (p *pairs) outside(v float32) bool {
	const rounding = 0.07
	largest := max(v, -v)
	slack, above, below := rounding*largest, v != 0, v != 0
	for i, w := range p.w {
		if x := p.v[i]; x == v || x == -v {
			if x < 0 {
				w = -w
			}
			above, below = above && w > largest+slack, below && w < largest-slack
		}
	}
	return above || below
}
