package qlora

import (
	"math"

	"onnxquant/formats/errstat"
	"onnxquant/internal/kernels"
)

// limits are the largest quotients of each code but the last, in ONNX Runtime and bitsandbytes: of NF4
// by code, of FP4 by magnitude.
var limits = [...][]float32{
	NF4: {
		-0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544,
		-0.23460740596055984, -0.13791173323988914, -0.045525018125772476, 0.03979014977812767,
		0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
		0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
	},
	FP4: {0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333},
}

// magnitudes are the codes of FP4, ordered by their values.
var magnitudes = [...]byte{0, 1, 6, 7, 4, 5, 2, 3}

// limited returns what finds codes by the limits of a table.
func limited(t Table) *kernels.Nearest {
	return kernels.NewNearestBy(tables[t].values[:], func(x float32) byte {
		switch {
		case t == NF4:
			return rank(t, x)
		case x < 0:
			return 8 + magnitudes[rank(t, -x)]
		}
		return magnitudes[rank(t, x)]
	})
}

// rank is the number of limits that are below x.
func rank(t Table, x float32) (n byte) {
	for _, limit := range limits[t] {
		if x > limit {
			n++
		}
	}
	return n
}

// pieceLen is the number of elements that are in memory as quotients at once.
const pieceLen = 512

// piece has buffers for some elements.
type piece struct{ inverse, quotient, one, decoded [pieceLen]float32 }

// quantize sets q to the codes of x with the given scales. p.inverse has the inverses of the scales,
// except of very small ones.
func (c Codec) quantize(p *piece, q []byte, x, scale []float32, errors *errstat.Stats) {
	quotient, one, decoded := p.quotient[:len(x)], p.one[:len(x)], p.decoded[:len(x)]
	for i, v := range x {
		quotient[i], one[i] = v*p.inverse[i], 1
		if math.IsInf(float64(p.inverse[i]), 0) {
			quotient[i] = v / scale[i]
		}
	}
	kernels.QuantizeNearestColumns(q, quotient, one, tables[c.Table].limited, 0, new(kernels.ErrorSums))
	c.DecodeColumns(decoded, q, scale, nil)
	errors.Add(x, decoded)
}

// inverseOf is what elements are multiplied by. A scale of 0 goes with elements of 0.
func inverseOf(scale float32) float32 {
	if scale == 0 {
		return 0
	}
	return 1 / scale
}

func (c Codec) reciprocalColumns(q []byte, x, scale []float32) (errors errstat.Stats) {
	kernels.CheckColumns(len(x), len(scale))
	var p piece
	for first := 0; first < len(scale); first += pieceLen {
		last := min(first+pieceLen, len(scale))
		for i, s := range scale[first:last] {
			p.inverse[i] = inverseOf(s)
		}
		for row := 0; row < len(x); row += len(scale) {
			c.quantize(&p, q[row+first:row+last], x[row+first:row+last], scale[first:last], &errors)
		}
	}
	return errors
}

func (c Codec) reciprocalBlocks(q []byte, x, scale []float32, k, block int) (errors errstat.Stats) {
	var p piece
	var scales [pieceLen]float32
	for i, b := range kernels.Blocks(len(x), k, block) {
		for at := range min(b.End-b.Start, pieceLen) {
			p.inverse[at], scales[at] = inverseOf(scale[i]), scale[i]
		}
		for at := b.Start; at < b.End; at += pieceLen {
			end := min(at+pieceLen, b.End)
			c.quantize(&p, q[at:end], x[at:end], scales[:end-at], &errors)
		}
	}
	return errors
}
