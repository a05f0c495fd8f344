package sensitivity_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
)

func ExampleOpen() {
	in, _, remove := modeltest.Example("mlp")
	defer remove()
	data := filepath.Join(filepath.Dir(in), "x.npy") // a sample of input x
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 64), }\n"
	raw := "\x93NUMPY\x01\x00" + string(rune(len(header))) + "\x00" + header
	for range 64 {
		raw += "\x00\x00\x80\x3f" // 1
	}
	if err := os.WriteFile(data, []byte(raw), 0o600); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := sensitivity.Open(ctx, in, calibrate.Options{Data: []string{data}, Engine: "go"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	a, err := analyze.Model(ctx, m, analyze.Options{Damage: s, MaxSize: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("all in float does no damage:", *a.Damage)
	// Output: all in float does no damage: 0
}
