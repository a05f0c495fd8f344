package ggml_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/x448/float16"

	"onnxquant/formats/ggml"
	"onnxquant/onnxq"
	"onnxquant/testmodels"
)

// ternary is an encoding of one's own: blocks of 32 codes of 2 bits, -1, 0 or 1, behind a
// float16 scale.
var ternary = &ggml.Encoding{
	Name: "TERNARY", Type: 1000, Elements: 32, Bytes: 2 + 32/4,
	Encode: func(dst []byte, row, _ []float32) {
		for ; len(row) > 0; row, dst = row[32:], dst[10:] {
			sum := float32(0)
			for _, v := range row[:32] {
				sum += max(v, -v)
			}
			scale := float16.Fromfloat32(sum / 32)
			binary.LittleEndian.PutUint16(dst, scale.Bits())
			clear(dst[2:10])
			for i, v := range row[:32] {
				code := byte(0)
				switch half := scale.Float32() / 2; {
				case v > half:
					code = 1
				case v < -half:
					code = 3 // -1
				}
				dst[2+i/4] |= code << (i % 4 * 2)
			}
		}
	},
	Decode: func(row []float32, src []byte) {
		p := ggml.Parts{Codes: make([]byte, len(row)), Scales: make([]float32, len(row)/32)}
		splitTernary(p, src)
		for i, q := range p.Codes {
			row[i] = p.Scales[i/32] * float32(int8(q))
		}
	},
	Form: &ggml.Form{Bits: 2, Signed: true, Part: 32, Split: splitTernary},
}

func splitTernary(p ggml.Parts, src []byte) {
	for b := range p.Scales {
		block := src[10*b:]
		p.Scales[b] = float16.Frombits(binary.LittleEndian.Uint16(block)).Float32()
		for i := range 32 {
			p.Codes[32*b+i] = byte(int8(block[2+i/4]<<(6-i%4*2)) >> 6)
		}
	}
}

func init() {
	if err := ggml.Register(ternary); err != nil {
		log.Fatal(err)
	}
}

// An encoding of one's own is found by its name, and a format of the converter if it has
// a form.
func ExampleRegister() {
	e, _ := ggml.Lookup("ternary")
	w := make([]float32, 32)
	copy(w, []float32{8, -16, 1, 24, -15})
	packed := make([]byte, 10)
	if err := e.Quantize(packed, w, 32, nil, 1); err != nil {
		log.Fatal(err)
	}
	if err := e.Dequantize(w, packed, 32, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w[:5])

	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	in, out := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "out.onnx")
	m, err := testmodels.Build("mlp", 1)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Write(in); err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Format: "ternary"})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Println(t.Name, t.Format, 8*t.OutBytes*4/t.Bytes, "bits per weight")
	}
	// Output:
	// [2 -2 0 2 -2]
	// w0 ternary 2 bits per weight
	// w1 ternary 2 bits per weight
	// w2 ternary 2 bits per weight
}
