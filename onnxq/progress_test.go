package onnxq

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"onnxquant/formats/ggml"
	"onnxquant/internal/modelfile"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	folder := t.TempDir()
	opts := Options{Block: 32, Progress: func(done, total int64) { cancel() }, Threads: 1}
	_, err := Convert(ctx, built(t, "mlp"), filepath.Join(folder, "out.onnx"), opts)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if names := listing(t, folder); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// slowReader calls a function at one of its reads.
type slowReader struct {
	io.ReaderAt
	reads atomic.Int64
	at    int64
	do    func()
}

func (r *slowReader) ReadAt(b []byte, off int64) (int, error) {
	if r.reads.Add(1) == r.at {
		r.do()
	}
	time.Sleep(time.Millisecond)
	return r.ReaderAt.ReadAt(b, off)
}

// After a cancellation nothing more is read: at most what other workers had begun to.
func TestCancelStopsReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.WriteBig(path, testmodels.Big{Layers: 1, K: 1 << 16, N: 32}); err != nil {
		t.Fatal(err)
	}
	const at, threads = 5, 2
	for _, opts := range []Options{
		{},
		{Range: "mse"},
		{Block: spec.PerChannel}, // every tile in several chunks, twice
		{Format: spec.NVFP4},     // the whole tensor beforehand
		{Format: "q4_k"},
		{Exclude: []string{"*"}}, // copied
	} {
		opts.Threads, opts.Memory = threads, 1<<20
		ctx, cancel := context.WithCancel(context.Background())
		m := opened(t, path)
		r := &slowReader{at: at, do: cancel}
		for _, w := range modelfile.Tensors(m.file.Proto) {
			p, err := m.file.Payload(w)
			if err != nil {
				t.Fatal(err)
			}
			r.ReaderAt = p
			if err := m.file.Replace(w, r); err != nil {
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
		if n := r.reads.Load(); n > at+threads-1 {
			t.Errorf("%+v: %d reads, cancelled at read %d of %d threads", opts, n, at, threads)
		}
		if names := listing(t, folder); len(names) > 0 {
			t.Errorf("%+v: left %v", opts, names)
		}
	}
}

// Searches, which take long, do not go to the end of a tile.
func TestCancelStopsSearches(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := opened(t, built(t, "mlp")).Plan(Options{Range: "mse"})
	if err != nil {
		t.Fatal(err)
	}
	w := p.conv.to.weights[0]
	tl := slices.Collect(w.tiles(greatestTile))[0]
	b := &buffers{}
	if err := b.load(tl, tl.chunks(greatestTile)[0]); err != nil {
		t.Fatal(err)
	}
	b.prepare(tl)
	b.ctx = ctx
	if err := tl.narrow(b, tl.chunks(greatestTile)); !errors.Is(err, context.Canceled) {
		t.Errorf("the search for ranges ends with %v", err)
	}
	e, _ := ggml.Lookup("Q4_K")
	if err := b.encode(e, make([]byte, e.Bytes), make([]float32, e.Elements), e.Elements, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the search for blocks ends with %v", err)
	}
}

// Progress never goes back, and ends at a total of all that was read.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		kind string
		opts Options
	}{
		{"embedding", Options{Ops: []string{"all"}}},
		{"embedding", Options{Ops: []string{"all"}, NoVerify: true}},
		{"mlp", Options{Format: spec.NVFP4}}, // reads twice
		{"mlp", Options{Block: 16, Memory: 1}},
		{"nan", Options{Block: 32}}, // begins anew
		{"plain", Options{}},
	} {
		var last, total int64
		c.opts.Progress = func(d, n int64) {
			if d < last || d > n {
				t.Errorf("%s: %d of %d after %d", c.kind, d, n, last)
			}
			last, total = d, n
		}
		m := opened(t, built(t, c.kind))
		p, err := m.Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		report, err := p.Convert(context.Background(), filepath.Join(t.TempDir(), "out.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		least := p.quantized
		if !c.opts.NoVerify {
			for _, w := range report.Plan.Tensors {
				if w.Decision == Quantize {
					least += w.OutBytes / 2 // scales do not count
				}
			}
		}
		if last != total || total < least {
			t.Errorf("%s, %+v: ended at %d of %d, %d at least", c.kind, c.opts, last, total, least)
		}
	}
}
