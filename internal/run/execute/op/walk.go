package op

// Walk visits the elements of several tensors of the same shape, each with strides of its own.
type Walk struct {
	dims  []int64
	steps [][]int64 // of each tensor
}

// NewWalk merges axes that all tensors can walk as one.
func NewWalk(dims []int64, steps ...[]int64) *Walk {
	w := &Walk{steps: make([][]int64, len(steps))}
	for i, d := range dims {
		if d == 1 {
			continue
		}
		last := len(w.dims) - 1
		merge := last >= 0
		for k := range steps {
			merge = merge && w.steps[k][last] == steps[k][i]*d
		}
		if merge {
			w.dims[last] *= d
		} else {
			w.dims = append(w.dims, d)
			last++
		}
		for k := range steps {
			w.steps[k] = append(w.steps[k][:last], steps[k][i])
		}
	}
	if len(w.dims) == 0 {
		w.dims = []int64{Product(dims)} // 1, or 0
		for k := range steps {
			w.steps[k] = []int64{0}
		}
	}
	return w
}

// Step is the distance of neighbours of a tensor within a run.
func (w *Walk) Step(k int) int { return int(w.steps[k][len(w.dims)-1]) }

// Runs calls do for each run of n elements along the last axis, with the place of the first element in each
// tensor.
func (w *Walk) Runs(do func(at []int, n int)) {
	if Product(w.dims) == 0 {
		return
	}
	last := len(w.dims) - 1
	index, at := make([]int64, last), make([]int, len(w.steps))
	for {
		do(at, int(w.dims[last]))
		axis := last - 1
		for ; axis >= 0; axis-- {
			index[axis]++
			for k := range at {
				at[k] += int(w.steps[k][axis])
			}
			if index[axis] < w.dims[axis] {
				break
			}
			for k := range at {
				at[k] -= int(w.steps[k][axis] * w.dims[axis])
			}
			index[axis] = 0
		}
		if axis < 0 {
			return
		}
	}
}
