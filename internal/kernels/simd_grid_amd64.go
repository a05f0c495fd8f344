//go:build amd64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run . -grids -pkg kernels -out ../simd_grid_amd64.s -stubs ../simd_grid_stubs_amd64.go"

func (s *GridSearch) find(x []float32, all bool) {
	rows, rounds, moves := len(x)/GridLanes, gridRounds(x), 1
	tries := GridTries(rows)
	if all {
		moves = 3
	}
	switch instructions {
	case avx512:
		gridSearchAVX512(&s.PerUnit[0], &x[0], rows, moves, tries, rounds, s.Steps, s.LeastZero, s.ToZero)
	case avx2:
		for lane := 0; lane < GridLanes; lane += 8 {
			gridSearchAVX2(&s.PerUnit[lane], &x[lane], rows, moves, tries, rounds, s.Steps, s.LeastZero, s.ToZero)
		}
	default:
		s.findGo(x, all)
	}
}

func addGridErrors(e *[GridLanes]float64, x []float32, grid, scale *[GridLanes]float32, zero *[GridLanes]byte, f Format) {
	if instructions == plainGo {
		addGridErrorsGo(e, x, grid, scale, zero, f)
		return
	}
	var least, greatest [GridLanes]int32
	for lane, z := range zero {
		from := magicBits - int32(z-byte(f.Lo))
		least[lane], greatest[lane] = from, from+f.Hi-f.Lo
	}
	rows := len(x) / GridLanes
	if instructions == avx512 {
		addGridErrorsAVX512(&e[0], &x[0], rows, &grid[0], &scale[0], &least[0], &greatest[0], int(f.Type))
		return
	}
	for lane := 0; lane < GridLanes; lane += 8 {
		addGridErrorsAVX2(&e[lane], &x[lane], rows, &grid[lane], &scale[lane], &least[lane], &greatest[lane], int(f.Type))
	}
}

func (w *WeightedSums) add(x []float32, weights []float64) {
	if instructions == plainGo {
		w.addGo(x, weights)
		return
	}
	for lane := 0; lane < GridLanes; lane += 8 {
		weighRoundedAVX2(&w.XQ[lane], &w.QQ[lane], &x[lane], &weights[0], len(weights), &w.Inverse[lane], &w.Least[lane], &w.Greatest[lane])
	}
}
