//go:build arm64 && !purego

package kernels

func (s *GridSearch) find(x []float32, all bool) {
	rows, moves := len(x)/GridLanes, 1
	if all {
		moves = 3
	}
	for lane := 0; lane < GridLanes; lane += 8 {
		gridSearchNEON(&s.PerUnit[lane], &x[lane], rows, moves, GridTries(rows), gridRounds(x), s.Steps, s.LeastZero, s.ToZero)
	}
}

func addGridErrors(e *[GridLanes]float64, x []float32, grid, scale *[GridLanes]float32, zero *[GridLanes]byte, f Format) {
	var least, greatest [GridLanes]int32
	for lane, z := range zero {
		from := magicBits - int32(z-byte(f.Lo))
		least[lane], greatest[lane] = from, from+f.Hi-f.Lo
	}
	for lane := 0; lane < GridLanes; lane += 8 {
		addGridErrorsNEON(&e[lane], &x[lane], len(x)/GridLanes, &grid[lane], &scale[lane], &least[lane], &greatest[lane], int(f.Type))
	}
}

func (w *WeightedSums) add(x []float32, weights []float64) { w.addGo(x, weights) }
