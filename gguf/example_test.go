package gguf_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/gguf"
)

// A file is written: its head first, then the contents, in any order.
func ExampleNewLayout() {
	l, err := gguf.NewLayout(
		[]gguf.KeyValue{{Key: "general.architecture", Value: "example"}},
		[]gguf.Tensor{{Name: "bias", Type: gguf.F32, Shape: []int64{3}}},
	)
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(os.TempDir(), "example.gguf")
	f, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	defer f.Close()
	if err := l.WriteHead(f); err != nil {
		log.Fatal(err)
	}
	content, _ := binary.Append(nil, binary.LittleEndian, []float32{1, 2, 3})
	if _, err := l.Content(f, 0).WriteAt(content, 0); err != nil {
		log.Fatal(err)
	}

	g, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(g.Get("general.architecture"), g.Size == l.Size)
	for _, t := range g.Tensors {
		fmt.Println(t.Name, t.Type, t.Shape, t.Bytes())
	}
	// Output:
	// example true
	// bias F32 [3] 12
}
