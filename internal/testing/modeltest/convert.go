package modeltest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/onnxq"
)

// LargestTile is the most elements that a worker holds at a time, with memory to spare.
const LargestTile = 2 << 20

// Convert converts a model, and returns the bytes of the output's files.
func Convert(t testing.TB, in, out string, opts onnxq.Options) []byte {
	opts.AllowFallback = true // models of tests have few weights, which a setting need not fit
	t.Helper()
	r, err := onnxq.Convert(context.Background(), in, out, opts)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, name := range []string{out, r.Data} {
		if name != "" {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
	}
	return all
}

// ConvertInTiles converts a model. Its workers may hold limit elements at a time.
func ConvertInTiles(t testing.TB, in *onnxq.Model, opts onnxq.Options, limit int64) (r *onnxq.Report, out string) {
	opts.AllowFallback = true
	t.Helper()
	p, err := in.Plan(opts)
	if err != nil {
		t.Fatal(err)
	}
	p.Stages().TileLimit = limit
	out = filepath.Join(t.TempDir(), "out.onnx")
	if r, err = p.Convert(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	CheckSizes(t, r)
	return r, out
}

// CheckSizes checks that as many bytes were written as were planned.
func CheckSizes(t testing.TB, r *onnxq.Report) {
	t.Helper()
	size := int64(0)
	for _, name := range []string{r.Output, r.Data} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size != r.Plan.OutBytes {
		t.Errorf("%d bytes were written, %d were planned", size, r.Plan.OutBytes)
	}
}
