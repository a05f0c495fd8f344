//go:build amd64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run . -ggml -pkg kernels -out ../simd_ggml_amd64.s -stubs ../simd_ggml_stubs_amd64.go"

// maxLanes is how many blocks a search takes at once at most.
const maxLanes = 16

// lanes has blocks side by side: element i of all blocks, then element i+1.
type lanes [maxLanes * maxSearchBlock]float32

// searchable reports whether there is assembly for blocks of that size.
func searchable(block int) bool {
	return instructions >= avx2 && block%8 == 0 && 0 < block && block <= maxSearchBlock
}

// width returns how many blocks are searched at once.
func width() int {
	if instructions == avx512 {
		return 16
	}
	return 8
}

// load puts blocks side by side. Lanes without a block have zeros.
func (l *lanes) load(x []float32, block int) {
	whole := width() * block
	if len(x) < whole {
		var padded lanes
		copy(padded[:], x)
		x = padded[:whole]
	}
	if instructions == avx512 {
		transposeAVX512(&l[0], &x[0], block)
	} else {
		transposeAVX2(&l[0], &x[0], block)
	}
}

// weigh sets w to the weights of blocks x.
func (w *lanes) weigh(x *lanes, k Weighting, block int) {
	size := 4 * width() * block
	if instructions == avx512 {
		laneWeightsAVX512(&w[0], &x[0], size, int(k), float32(block))
	} else {
		laneWeightsAVX2(&w[0], &x[0], size, int(k), float32(block))
	}
}

// group is the input of one search: blocks side by side, and their weights.
type group struct{ x, w lanes }

// load loads blocks, and their weights if they are given.
func (g *group) load(x, w []float32, k Weighting, first, end, block int) {
	g.x.load(x[first*block:end*block], block)
	if k == Given {
		g.w.load(w[first*block:end*block], block)
	} else {
		g.w.weigh(&g.x, k, block)
	}
}

func (s *AffineSearch) find(f AffineFits, x, w []float32) {
	const maxTries = 40
	if !searchable(s.Block) || s.Tries < 1 || s.Tries > maxTries {
		s.findGo(f, x, w)
		return
	}
	var (
		codes                      [1 + maxTries]float32
		g                          group
		q                          [(maxSearchBlock + 1) * maxLanes]float32
		scale, least, inverse, low [maxLanes]float32
	)
	codes[0] = s.Last
	for try := range s.Tries {
		codes[1+try] = s.codes(try)
	}
	for first := 0; first < len(f.Scale); first += width() {
		end := min(first+width(), len(f.Scale))
		g.load(x, w, s.Weighting, first, end, s.Block)
		size := 4 * width() * s.Block
		if instructions == avx512 {
			affineSearchAVX512(&scale[0], &least[0], &inverse[0], &low[0], &g.x[0], &g.w[0], &q[0], size,
				&codes[0], s.Tries, s.Last, s.Absolute)
		} else {
			affineSearchAVX2(&scale[0], &least[0], &inverse[0], &low[0], &g.x[0], &g.w[0], &q[0], size,
				&codes[0], s.Tries, s.Last, s.Absolute)
		}
		copy(f.Scale[first:end], scale[:])
		copy(f.Min[first:end], least[:])
		copy(f.Inverse[first:end], inverse[:])
		copy(f.Low[first:end], low[:])
	}
}

func (s *SymmetricSearch) find(scale, inverse, x, w []float32) {
	if !searchable(s.Block) {
		s.findGo(scale, inverse, x, w)
		return
	}
	var (
		codes     [symmetricTries]float32
		g         group
		wx        lanes
		found, in [maxLanes]float32
	)
	for try := range codes {
		codes[try] = s.extreme(try)
	}
	for first := 0; first < len(scale); first += width() {
		end := min(first+width(), len(scale))
		g.load(x, w, s.Weighting, first, end, s.Block)
		size := 4 * width() * s.Block
		if instructions == avx512 {
			symmetricSearchAVX512(&found[0], &in[0], &g.x[0], &g.w[0], &wx[0], size,
				&codes[0], symmetricTries-1, s.Half, Negligible)
		} else {
			symmetricSearchAVX2(&found[0], &in[0], &g.x[0], &g.w[0], &wx[0], size,
				&codes[0], symmetricTries-1, s.Half, Negligible)
		}
		copy(scale[first:end], found[:])
		copy(inverse[first:end], in[:])
	}
}

func recode(q []byte, x, scale, least []float32, block, zero, last int) {
	if instructions == plainGo {
		recodeGo(q, x, scale, least, block, zero, last)
		return
	}
	recodeAVX2(&q[0], &x[0], &scale[0], &least[0], len(scale), block, int32(zero), int32(last))
}

func quantizeNibbles(dst []byte, x []float32) {
	if instructions == plainGo || len(x) == 0 {
		quantizeNibblesGo(dst, x)
		return
	}
	quantizeNibblesAVX2(&dst[0], &x[0], len(x)/smallBlock)
}

func quantizeBytes(dst []byte, x []float32) {
	if instructions == plainGo || len(x) == 0 {
		quantizeBytesGo(dst, x)
		return
	}
	quantizeBytesAVX2(&dst[0], &x[0], len(x)/smallBlock)
}
