package kernels

// QuantizeFloatColumns sets each q to the code of its x (see Code), and adds the errors of the decoded
// values, Values[q]*(scale*factor) rounded to t, to sums. Each row of x has len(scale) elements;
// scales are multiplied by factor. Elements are finite, and no code represents an infinity.
func QuantizeFloatColumns(q []byte, x, scale []float32, factor float32, f *MiniFloat, t Type, sums *ErrorSums) {
	CheckColumns(len(x), len(scale))
	if len(x) > 0 {
		quantizeFloatColumns(q[:len(x)], x, scale, factor, f, t, sums)
	}
}

// QuantizeFloatBlocks does as QuantizeFloatColumns with a scale for each block of
// x, see Blocks.
func QuantizeFloatBlocks(q []byte, x, scale []float32, factor float32, k, block int, f *MiniFloat, t Type, sums *ErrorSums) {
	for first, r := range runs(len(x), k, block) {
		quantizeFloatBlocks(q[r.start:r.end], x[r.start:r.end], scale[first:first+r.blocks], factor, block, f, t, sums)
	}
}

// QuantizeFloatBlock does as QuantizeFloatBlocks for a single block, which is all of x.
func QuantizeFloatBlock(q []byte, x, scale []float32, factor float32, f *MiniFloat, t Type, sums *ErrorSums) {
	if len(x) > 0 {
		quantizeFloatBlocks(q[:len(x)], x, scale[:1], factor, len(x), f, t, sums)
	}
}

// QuantizeNearestColumns sets each q to the index of the value nearest to x/scale and adds the errors
// of the decoded values, Values[q]*scale rounded to t, to sums. Each row of x has len(scale) elements.
// Elements larger than their scale are clamped to it.
func QuantizeNearestColumns(q []byte, x, scale []float32, n *Nearest, t Type, sums *ErrorSums) {
	CheckColumns(len(x), len(scale))
	if len(x) > 0 {
		quantizeNearestColumns(q[:len(x)], x, scale, n, t, sums)
	}
}

// QuantizeNearestBlocks does as QuantizeNearestColumns with a scale for each block
// of x, see Blocks.
func QuantizeNearestBlocks(q []byte, x, scale []float32, k, block int, n *Nearest, t Type, sums *ErrorSums) {
	for first, r := range runs(len(x), k, block) {
		quantizeNearestBlocks(q[r.start:r.end], x[r.start:r.end], scale[first:first+r.blocks], block, n, t, sums)
	}
}

// QuantizeNearestBlock does as QuantizeNearestBlocks for a single block, which is all of x.
func QuantizeNearestBlock(q []byte, x, scale []float32, n *Nearest, t Type, sums *ErrorSums) {
	if len(x) > 0 {
		quantizeNearestBlocks(q[:len(x)], x, scale[:1], len(x), n, t, sums)
	}
}

// A quantizer sets each q to the code of its x, and y to what that represents.
type quantizer interface {
	quantize(q []byte, y, x, scale []float32)
}

func (f *MiniFloat) quantize(q []byte, y, x, scale []float32) {
	q, y, scale = q[:len(x)], y[:len(x)], scale[:len(x)]
	for i, v := range x {
		code := f.signed(f.round(min(abs(v/scale[i]), f.most)), v)
		q[i], y[i] = code, f.Values[code]*scale[i]
	}
}

func (n *Nearest) quantize(q []byte, y, x, scale []float32) {
	q, y, scale = q[:len(x)], y[:len(x)], scale[:len(x)]
	for i, v := range x {
		code := n.code(v, scale[i])
		q[i], y[i] = code, n.Values[code]*scale[i]
	}
}

// quantizeColumnsBy is the plain loop over rows of len(scale) columns.
func quantizeColumnsBy(by quantizer, q []byte, x, scale []float32, factor float32, t Type, sums *ErrorSums) {
	var p piece
	for at := 0; at < len(x); at += len(scale) {
		for i := 0; i < len(scale); i += pieceLen {
			n := min(pieceLen, len(scale)-i)
			for j, s := range scale[i : i+n] {
				p.scale[j] = s * factor
			}
			p.quantizeBy(by, q[at+i:at+i+n], x[at+i:at+i+n], t, sums)
		}
	}
}

// quantizeBlocksBy is the plain loop over blocks of one row.
func quantizeBlocksBy(by quantizer, q []byte, x, scale []float32, factor float32, block int, t Type, sums *ErrorSums) {
	var p piece
	for b, s := range scale {
		at := b * block
		end := at + min(block, len(x)-at)
		fill(p.scale[:min(block, pieceLen)], s*factor)
		for ; at < end; at += pieceLen {
			n := min(pieceLen, end-at)
			p.quantizeBy(by, q[at:at+n], x[at:at+n], t, sums)
		}
	}
}

// quantizeBy quantizes x by the first of the piece's scales.
func (p *piece) quantizeBy(by quantizer, q []byte, x []float32, t Type, sums *ErrorSums) {
	y := p.decoded[:len(x)]
	by.quantize(q, y, x, p.scale[:len(x)])
	round(y, t)
	sums.addGo(x, y)
}
