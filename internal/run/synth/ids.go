package synth

import (
	"math/rand/v2"

	"onnxquant/formats/dtype"
)

// integers makes the whole numbers of an input.
func (in *input) integers(rng *rand.Rand, n int) []int64 {
	x := make([]int64, n)
	last := int64(1)
	if k := len(in.dims); k > 0 {
		last = max(in.dims[k-1], 1)
	}
	switch in.kind {
	case ids:
		return in.words(rng, n, int(last))
	case zeros:
		return x
	}
	for i := range x {
		switch in.kind {
		case ones:
			x[i] = 1
		case positions:
			x[i] = in.past + int64(i)%last
			if in.rows > 0 {
				x[i] %= in.rows
			}
		case segments: // two halves
			if 2*(int64(i)%last) >= last {
				x[i] = 1
			}
		case length:
			x[i] = in.length
		case constant:
			x[i] = int64(in.constant[i%len(in.constant)])
		default:
			x[i] = rng.Int64N(2)
		}
	}
	return x
}

// words makes ids as in text: few of them often, many of them once. Each sequence has a vocabulary of
// its own, which is drawn from the whole table.
func (in *input) words(rng *rand.Rand, n, sequence int) []int64 {
	rows := in.rows
	if !in.typ.Float() {
		rows = min(rows, int64(1)<<(min(in.typ.Bits(), 63)-1)-1)
		if in.typ == dtype.Uint8 {
			rows = min(in.rows, 256)
		}
	}
	x := make([]int64, n)
	if rows >= 256 && rows <= 260 {
		return asText(rng, x)
	}
	least := int64(0)
	if rows > 16 {
		least = 4 // the first ones are often special
	}
	var own []int64
	for i := range x {
		if i%sequence == 0 || own == nil {
			own = own[:0]
			for range max(sequence/2, 2) {
				own = append(own, least+rng.Int64N(rows-least))
			}
		}
		k := int(float64(len(own)) * rng.Float64() * rng.Float64()) // the first ones are more frequent
		x[i] = own[k]
	}
	return x
}

// asText fills x with the bytes of a text of letters, digits and punctuation.
func asText(rng *rand.Rand, x []int64) []int64 {
	const letters = "eeeeeetttttaaaaooooiiiinnnnsssshhhrrrddllluuccmmffyywwgppbbvk"
	const others = "0123456789.,;:()=\"'-_/<>\n"
	for i := 0; i < len(x); {
		for range 1 + rng.IntN(9) {
			if i < len(x) {
				x[i] = int64(letters[rng.IntN(len(letters))])
				i++
			}
		}
		if i < len(x) && rng.IntN(4) == 0 {
			x[i] = int64(others[rng.IntN(len(others))])
			i++
		}
		if i < len(x) {
			x[i] = ' '
			i++
		}
	}
	return x
}
