package mx_test

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/mx"
)

// A row in two blocks of four elements. Scales are powers of two, so that what lies
// beyond the largest element times its block's becomes that.
func Example() {
	w := []float32{6, -3, 0.5, 0, 7.5, 0.125, -0.25, 2.2}
	c := mx.Codec{Format: mx.MXFP4, Rule: mx.OCP, Type: dtype.Float32}
	amax, scale := make([]float32, 2), make([]float32, 2)
	q, y := make([]byte, len(w)), make([]float32, len(w))

	c.ObserveBlocks(nil, amax, w, len(w), 4)
	if !c.Scales(scale, nil, nil, amax) {
		fmt.Println("not finite")
		return
	}
	c.EncodeBlocks(q, w, scale, nil, len(w), 4)
	c.DecodeBlocks(y, q, scale, nil, len(w), 4)
	fmt.Println(scale, q)
	fmt.Println(y)
	// Output:
	// [1 1] [7 13 1 0 7 0 8 4]
	// [6 -3 0.5 0 6 0 -0 2]
}
