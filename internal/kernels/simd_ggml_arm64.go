//go:build arm64 && !purego

package kernels

// searchLanes is how many blocks are searched at once.
const searchLanes = 8

// lanes has blocks side by side: element i of all blocks, then element i+1.
type lanes [searchLanes * maxSearchBlock]float32

// load puts a block into a lane.
func (l *lanes) load(lane int, x []float32) {
	for i, v := range x {
		l[i*searchLanes+lane] = v
	}
}

// group is the input of one search: blocks side by side, and their weights.
type group struct{ x, w lanes }

// load loads blocks. The lanes behind the last block keep what they have.
func (g *group) load(x, w []float32, k Weighting, first, end, block int) {
	var buffer [maxSearchBlock]float32
	for i := first; i < end; i++ {
		at := i * block
		g.x.load(i-first, x[at:][:block])
		g.w.load(i-first, k.weights(&buffer, x, w, at, block))
	}
}

func searchable(block int) bool { return 0 < block && block <= maxSearchBlock }

func (s *AffineSearch) find(f AffineFits, x, w []float32) {
	const maxTries = 40
	if !searchable(s.Block) || s.Tries < 1 || s.Tries > maxTries {
		s.findGo(f, x, w)
		return
	}
	var (
		codes [1 + maxTries]float32
		g     group
		q     lanes
		state [9][searchLanes]float32
	)
	codes[0] = s.Last
	for try := range s.Tries {
		codes[1+try] = s.codes(try)
	}
	for first := 0; first < len(f.Scale); first += searchLanes {
		end := min(first+searchLanes, len(f.Scale))
		g.load(x, w, s.Weighting, first, end, s.Block)
		affineSearchNEON(&state[0][0], &g.x[0], &g.w[0], &q[0], s.Block, &codes[0], s.Tries, s.Last, s.Absolute)
		copy(f.Scale[first:end], state[0][:])
		copy(f.Min[first:end], state[1][:])
		copy(f.Inverse[first:end], state[2][:])
		copy(f.Low[first:end], state[3][:])
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
		found, in [searchLanes]float32
	)
	for try := range codes {
		codes[try] = s.extreme(try)
	}
	for first := 0; first < len(scale); first += searchLanes {
		end := min(first+searchLanes, len(scale))
		g.load(x, w, s.Weighting, first, end, s.Block)
		symmetricSearchNEON(&found[0], &in[0], &g.x[0], &g.w[0], s.Block, &codes[0], symmetricTries-1, s.Half, Negligible)
		copy(scale[first:end], found[:])
		copy(inverse[first:end], in[:])
	}
}

func recode(q []byte, x, scale, least []float32, block, zero, last int) {
	recodeNEON(&q[0], &x[0], &scale[0], &least[0], len(scale), block, int32(zero), int32(last))
}
