package quantutil_test

import (
	"fmt"

	"onnxquant/formats/dtype"
	. "onnxquant/quantutil"
)

func ExampleQuantTensor() {
	w, err := FromFloat32([]float32{
		0.7, 0.2,
		-0.3, 1.4,
		0.05, -0.6,
	}, 3, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Blocks of two rows, the last one short; 4 bits.
	wq, scale, _, err := QuantTensor(w, 2, 0, 1, false, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	back, err := DQTensor(wq, scale, 2, 0, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("codes ", wq.Data)
	fmt.Printf("scales %.3f of shape %v\n", scale.Data, scale.Shape)
	fmt.Printf("stand for %.2f\n", back.Data)
	// Output:
	// codes  [7 1 -3 7 7 -7]
	// scales [0.100 0.200 0.007 0.086] of shape [2 2]
	// stand for [0.70 0.20 -0.30 1.40 0.05 -0.60]
}

func ExamplePackWeightsToInt4() {
	wq, err := NewTensor(dtype.Int8, []float64{1, -1, 7, -8, 0, 2}, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	packed, err := PackWeightsToInt4(wq)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%x of shape %v\n", packed.Bytes(), packed.Shape)
	// Output: f18720 of shape [1 3]
}
