package fp8_test

import (
	"fmt"

	"onnxquant/formats/fp8"
)

func ExampleFormat() {
	for _, x := range []float32{1, -0.3, 500} {
		code := fp8.E4M3FN.Encode(x, true)
		fmt.Printf("%v is %#02x, which stands for %v\n", x, code, fp8.E4M3FN.Decode(code))
	}
	fmt.Println(fp8.E4M3FN.Encode(500, false) == 0x7f) // NaN, unless it saturates
	// Output:
	// 1 is 0x38, which stands for 1
	// -0.3 is 0xaa, which stands for -0.3125
	// 500 is 0x7e, which stands for 448
	// true
}
