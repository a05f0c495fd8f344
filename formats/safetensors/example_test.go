package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"

	"onnxquant/formats/safetensors"
)

func ExampleRead() {
	header := `{"w": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}`
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	b = append(b, 0x80, 0x3f, 0x00, 0xc0) // 1 and -2

	f, err := safetensors.Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		log.Fatal(err)
	}
	w := f.Tensor("w")
	raw, err := io.ReadAll(f.Content(w))
	if err != nil {
		log.Fatal(err)
	}
	x := make([]float32, 2)
	w.Type.DType().Decode(x, raw)
	fmt.Println(w.Shape, x)
	// Output: [1 2] [1 -2]
}
