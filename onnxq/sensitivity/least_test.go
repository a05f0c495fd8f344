package sensitivity

import "testing"

// The least number is found, and no number is tried twice.
func TestLeastCount(t *testing.T) {
	for most := range 20 {
		for want := 1; want <= most+1; want++ {
			tried, last := map[int]bool{}, 0
			got, err := leastCount(most, func(n int) (bool, error) {
				if tried[n] || n < 1 || n >= most {
					t.Errorf("%d of %d: %d is tried", want, most, n)
				}
				if tried[n] = true; n >= want {
					last = n
				}
				return n >= want, nil
			})
			if err != nil || got != min(want, most) || last != 0 && last != got {
				t.Errorf("%d of %d: %d, last held %d, %v", want, most, got, last, err)
			}
		}
	}
}
