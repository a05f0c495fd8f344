package linalg

import (
	"sync"
	"time"

	"onnxquant/internal/work"
)

// Rate measures how many products one worker adds up in a second of processor time, in a few milliseconds. Of some tries
// it takes the fastest, which others have not interrupted.
func Rate() (most float64) {
	p := newProbe()
	const tries = 5
	for range tries {
		start := time.Now()
		p.add()
		most = max(most, probeProducts/max(time.Since(start), 1).Seconds())
	}
	return most
}

// Free measures which share of the time of some processors this process gets, beside what else runs on the machine.
// It takes d. 0: unknown.
func Free(processors int, d time.Duration) float64 {
	var workers sync.WaitGroup
	start, before := time.Now(), work.Spent()
	for range processors {
		workers.Go(func() {
			p := newProbe()
			for time.Since(start) < d {
				p.add()
			}
		})
	}
	workers.Wait()
	return min(float64(work.Spent()-before)/float64(processors)/float64(time.Since(start)), 1)
}

const (
	probeSize     = 256
	probeProducts = probeSize * probeSize * probeSize
)

// probe is a product of matrices that stay in the caches.
type probe struct {
	m       Multiplier
	a, b, c Matrix
}

func newProbe() *probe {
	square := func() Matrix { return Of(make([]float32, probeSize*probeSize), probeSize, probeSize) }
	return &probe{Multiplier{}, square(), square(), square()}
}

func (p *probe) add() { p.m.Add(p.c, 1, p.a, p.b) }
