package checkpoint_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
)

func ExampleRead() {
	in, _, remove := modeltest.Example("mlp") // its bias b0 has 96 elements
	defer remove()
	header := `{"b0": {"dtype": "F16", "shape": [96], "data_offsets": [0, 192]}}`
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	path := filepath.Join(filepath.Dir(in), "b.safetensors")
	if err := os.WriteFile(path, append(file, make([]byte, 192)...), 0o600); err != nil {
		log.Fatal(err)
	}

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	read, err := checkpoint.Read(m, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(read.Tensors, "of", read.Of, "tensors")
	// Output: [b0] of 6 tensors
}
