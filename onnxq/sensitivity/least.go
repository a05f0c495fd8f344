package sensitivity

// leastCount returns the least n up to most that holds; most if none below does. It doubles n, and bisects. If n holds, so should larger ones;
// holds is last true, or not at all, for the result.
func leastCount(most int, holds func(n int) (bool, error)) (int, error) {
	fails, n := 0, 1
	for ; n < most; fails, n = n, min(2*n, most) {
		ok, err := holds(n)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
	}
	n = min(n, most)
	for n-fails > 1 {
		middle := (n + fails) / 2
		ok, err := holds(middle)
		switch {
		case err != nil:
			return 0, err
		case ok:
			n = middle
		default:
			fails = middle
		}
	}
	return n, nil
}
