package onnxq_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	folder := t.TempDir()
	opts := onnxq.Options{Block: 32, Progress: func(done, total int64) { cancel() }, Threads: 1}
	_, err := onnxq.Convert(ctx, modeltest.Build(t, "mlp"), filepath.Join(folder, "out.onnx"), opts)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if names := modeltest.List(t, folder); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// cancellingReader cancels at one of its reads and counts the reads after it.
type cancellingReader struct {
	io.ReaderAt
	ctx         context.Context
	cancel      func()
	at          int64
	reads, late atomic.Int64
}

func (r *cancellingReader) ReadAt(b []byte, off int64) (int, error) {
	if r.ctx.Err() != nil {
		r.late.Add(1)
	}
	if r.reads.Add(1) == r.at {
		r.cancel()
	}
	return r.ReaderAt.ReadAt(b, off)
}

// After a cancellation no read begins, except one for each other worker.
func TestCancelStopsReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.WriteBig(path, testmodels.Big{Layers: 1, K: 1 << 16, N: 32}); err != nil {
		t.Fatal(err)
	}
	const at, threads = 5, 2
	for _, opts := range []onnxq.Options{
		{},
		{Range: spec.Range{Kind: spec.RangeMSE}},
		{Block: spec.PerChannel}, // reads every tile in several chunks, twice
		{Format: spec.NVFP4},     // reads the whole tensor first
		{Format: "q4_k"},
		{Exclude: []string{"*"}}, // copies everything
	} {
		opts.Threads, opts.Memory = threads, 1<<20
		ctx, cancel := context.WithCancel(context.Background())
		m := modeltest.Open(t, path)
		r := &cancellingReader{ctx: ctx, cancel: cancel, at: at}
		for _, w := range modelfile.Tensors(m.Graph().File.Proto) {
			p, err := m.Graph().File.Payload(w)
			if err != nil {
				t.Fatal(err)
			}
			r.ReaderAt = p
			if err := m.Graph().File.Replace(w, r); err != nil {
				t.Fatal(err)
			}
		}
		p, err := m.Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if _, err := p.Convert(ctx, filepath.Join(folder, "out.onnx")); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: error %v", opts, err)
		}
		if n := r.late.Load(); n > threads-1 {
			t.Errorf("%+v: %d threads began %d reads after the cancellation", opts, threads, n)
		}
		if names := modeltest.List(t, folder); len(names) > 0 {
			t.Errorf("%+v: left %v", opts, names)
		}
	}
}

// Progress never decreases and ends at the total of all reads.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		kind string
		opts onnxq.Options
	}{
		{"embedding", onnxq.Options{Ops: []string{"all"}}},
		{"embedding", onnxq.Options{Ops: []string{"all"}, NoVerify: true}},
		{"mlp", onnxq.Options{Format: spec.NVFP4}}, // reads twice
		{"mlp", onnxq.Options{Block: 16, Memory: 1}},
		{"nan", onnxq.Options{Block: 32}}, // plans again
		{"plain", onnxq.Options{}},
	} {
		var last, total int64
		c.opts.Progress = func(d, n int64) {
			if d < last || d > n {
				t.Errorf("%s: %d of %d after %d", c.kind, d, n, last)
			}
			last, total = d, n
		}
		m := modeltest.Open(t, modeltest.Build(t, c.kind))
		p, err := m.Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		report, err := p.Convert(context.Background(), filepath.Join(t.TempDir(), "out.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		_, least := p.Stages().FloatBytes()
		if !c.opts.NoVerify {
			for _, w := range report.Plan.Tensors {
				if w.Decision == onnxq.Quantize {
					least += w.OutBytes / 2 // at most half are scales
				}
			}
		}
		if last != total || total < least {
			t.Errorf("%s, %+v: ended at %d of %d, %d at least", c.kind, c.opts, last, total, least)
		}
	}
}
