package quantize_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/onnxq"
)

// convertAnyhow converts a model twice: with little memory in one thread, and with more memory in
// three. The bytes must be the same. It returns the error of the first weight.
func convertAnyhow(t *testing.T, in string, opts onnxq.Options) (mse float64) {
	t.Helper()
	var first []byte
	for i, threads := range []int{1, 3} {
		opts.Threads, opts.Memory = threads, int64(1+i*64<<20)
		out := filepath.Join(t.TempDir(), "out.onnx")
		opts.AllowFallback = true
		r, err := onnxq.Convert(context.Background(), in, out, opts)
		if err != nil {
			t.Fatalf("%+v: %v", opts, err)
		}
		mse = r.Tensors[0].MSE
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if !bytes.Equal(got, first) {
			t.Errorf("%+v: the bytes depend on memory and threads", opts)
		}
	}
	return mse
}
