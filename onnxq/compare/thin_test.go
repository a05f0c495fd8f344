package compare

import (
	"fmt"
	"testing"
)

// Of very many weights, those with the largest error times size keep their details.
func TestThin(t *testing.T) {
	m := &matcher{result: &Match{}}
	const n = MostDetails + 100
	for i := range n {
		m.result.Weights = append(m.result.Weights, WeightMatch{Name: fmt.Sprint(i), SQNR: 20, OutBytes: int64(i * 7919 % n), Detail: &Detail{}})
		m.detailed = append(m.detailed, i)
	}
	for range 2 {
		m.thin()
		for _, w := range m.result.Weights {
			if costly := w.OutBytes >= n-MostDetails; costly != (w.Detail != nil) {
				t.Fatalf("%d of %d bytes has a detail: %v", w.OutBytes, n, !costly)
			}
		}
	}
}
