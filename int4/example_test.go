package int4_test

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
)

// A weight [4, 3] that arrives row by row, in blocks of two rows.
func Example() {
	weight := [][]float32{
		{0.7, 2.8, -7},
		{-0.3, 1.4, 2},
		{0.1, 0, 1},
		{-0.7, 0, 3.5},
	}
	codec := int4.Codec{Bits: 4, Signed: true, Type: dtype.Float32}
	packed := make([]byte, int4.PackedLen(12, codec.Bits))
	for b := 0; b < len(weight); b += 2 {
		block := weight[b : b+2]
		amax, scale := make([]float32, 3), make([]float32, 3)
		for _, row := range block {
			codec.ObserveColumns(nil, amax, row)
		}
		if !codec.Scales(scale, nil, nil, amax) {
			fmt.Println("the weight holds a number that is not finite")
			return
		}
		codes := make([]byte, 6)
		for r, row := range block {
			codec.EncodeColumns(codes[3*r:], row, scale, nil)
		}
		fmt.Printf("scales %.4g codes %d\n", scale, signed(codes))
		int4.Pack(packed[b*3/2:], codes, codec.Bits)
	}
	fmt.Printf("packed %x\n", packed)
	// Output:
	// scales [0.1 0.4 1] codes [7 7 -7 -3 4 2]
	// scales [0.1 1e-05 0.5] codes [1 0 2 -7 0 7]
	// packed 77d924019270
}

// A weight of one row at once, in two blocks of four.
func ExampleEncode() {
	w := []float32{0.7, -0.3, 0.1, -0.7, 2.8, 1.4, 0, 0}
	t, err := int4.Encode(w, 8, 4, int4.Codec{Bits: 4, Signed: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := t.Decode()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("scales %.4g, codes %x\n%.4g\n", t.Scales, t.Packed, y)
	// Output:
	// scales [0.1 0.4], codes d7914700
	// [0.7 -0.3 0.1 -0.7 2.8 1.6 0 0]
}

func signed(codes []byte) []int8 {
	s := make([]int8, len(codes))
	for i, c := range codes {
		s[i] = int8(c)
	}
	return s
}
