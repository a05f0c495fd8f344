package shapes

// Squeeze removes axes, or without any the axes of length 1.
func Squeeze(old, axes []int64) (shape []int64, ok bool) {
	remove, ok := axisSet(axes, len(old))
	for i, d := range old {
		if !(remove[int64(i)] || len(axes) == 0 && d == 1) {
			shape = append(shape, d)
		}
	}
	return shape, ok
}

// Unsqueeze adds axes of length 1, at positions of the new shape.
func Unsqueeze(old, axes []int64) (shape []int64, ok bool) {
	rank := len(old) + len(axes)
	added, ok := axisSet(axes, rank)
	if !ok {
		return nil, false
	}
	for i := range int64(rank) {
		if added[i] {
			shape = append(shape, 1)
		} else {
			shape, old = append(shape, old[0]), old[1:]
		}
	}
	return shape, true
}

// axisSet is the set of some distinct axes of a tensor. Negative axes count from the end.
func axisSet(axes []int64, rank int) (set map[int64]bool, ok bool) {
	set = map[int64]bool{}
	for _, a := range axes {
		a = Axis(a, rank)
		if a < 0 || a >= int64(rank) || set[a] {
			return nil, false
		}
		set[a] = true
	}
	return set, true
}
