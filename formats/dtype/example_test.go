package dtype_test

import (
	"fmt"

	"onnxquant/formats/dtype"
)

func Example() {
	raw := make([]byte, dtype.Float16.Bytes(3))
	dtype.Float16.Encode(raw, []float32{1, -2, 0.1})
	x := make([]float32, 3)
	dtype.Float16.Decode(x, raw)
	fmt.Printf("%x %g\n", raw, x)
	fmt.Println(dtype.Int4, dtype.Int4.Bits(), "bits,", dtype.Int4.Bytes(9), "bytes for 9, from opset", dtype.Int4.Opset())
	// Output:
	// 003c00c0662e [1 -2 0.099975586]
	// INT4 4 bits, 5 bytes for 9, from opset 21
}
