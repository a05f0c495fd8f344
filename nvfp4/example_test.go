package nvfp4_test

import (
	"fmt"

	"onnxquant/nvfp4"
)

// A weight of one row, in two blocks of four.
func Example() {
	w := []float32{6, -3, 0.5, 0, 0.0625, 0.125, -0.25, 0.375}
	t, err := nvfp4.Encode(w, 8, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := t.Decode()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("tensor scale %.5f, block scales %#x, codes %x\n", t.TensorScale, t.Scales, t.Packed)
	fmt.Printf("%.4g\n", y)
	// Output:
	// tensor scale 0.00223, block scales 0x7e5e, codes d701427e
	// [6 -3 0.5 0 0.0625 0.125 -0.25 0.375]
}
