package linalg

import "time"

// Rate measures how many products one worker adds up in a second, in a few milliseconds.
func Rate() (most float64) {
	const n, tries = 256, 5
	a, b, c := Of(make([]float32, n*n), n, n), Of(make([]float32, n*n), n, n), Of(make([]float32, n*n), n, n)
	var m Multiplier
	for range tries {
		start := time.Now()
		m.Add(c, 1, a, b)
		most = max(most, n*n*n/max(time.Since(start), 1).Seconds())
	}
	return most
}
