package batch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"onnxquant/onnxq"
	"onnxquant/onnxq/batch"
	"onnxquant/testmodels"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	in := filepath.Join(folder, "in.onnx")
	if m, err := testmodels.Build("mlp", 1); err != nil || m.Write(in) != nil {
		panic(err)
	}
	opts := batch.Options{
		Folder: filepath.Join(folder, "out"),
		Convert: func(ctx context.Context, c batch.Call) (*batch.Result, error) {
			m, err := onnxq.Open(c.In)
			if err != nil {
				return nil, err
			}
			defer m.Close()
			p, err := m.Plan(onnxq.Options{Bits: 4, Block: 32})
			if err != nil {
				return nil, err
			}
			made, err := p.Convert(ctx, c.Out)
			if err != nil {
				return nil, err
			}
			return &batch.Result{Outputs: []string{made.Output}}, nil
		},
	}
	jobs := []batch.Job{{In: in, Out: "a.onnx"}, {In: in, Out: "b.onnx"}}
	for range 2 {
		s, err := batch.Run(context.Background(), jobs, opts)
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Done, "done,", s.Kept, "of them before")
	}
	// Output:
	// 2 done, 0 of them before
	// 2 done, 2 of them before
}
