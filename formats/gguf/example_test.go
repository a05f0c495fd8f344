package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/formats/gguf"
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

// What is no GGUF file is told.
func ExampleRead() {
	raw := []byte("GGUF\x07\x00\x00\x00")
	_, err := gguf.Read(bytes.NewReader(raw), int64(len(raw)))
	fmt.Println(errors.Is(err, gguf.ErrFormat))
	// Output: true
}

func ExampleTypeName() {
	fmt.Println(gguf.TypeName(uint32(1)), gguf.TypeName([]string{"a"}))
	// Output: uint32 []string
}

// A type is that of blocks: so many elements in so many bytes.
func ExampleType() {
	elements, size := gguf.Q6_K.Block()
	fmt.Println(gguf.Q6_K, elements, size)
	// Output: Q6_K 256 210
}
