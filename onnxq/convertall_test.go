package onnxq_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// several are the options of several conversions of one model.
var several = []onnxq.Options{
	{Block: 32},
	{Bits: 8, Block: spec.PerChannel, Activations: spec.Dynamic},
	{Bits: 4, Block: 16, Style: spec.NBits, ZeroPoint: true, FloatType: spec.Float16},
	{FloatType: spec.Float16, Format: spec.Float},
	{Format: spec.NVFP4, Ops: []string{"all"}},
	{Format: spec.NF4, Ops: []string{"all"}, ExternalData: spec.ExternalAlways},
	{Bits: 4, Block: 32, Style: spec.NBits, Algorithm: spec.MSE},
	{Bits: 4, Block: 32, Style: spec.NBits, Algorithm: spec.HQQ, ZeroPoint: true},
	{Format: "q4_k", Algorithm: spec.MSE},
}

// Conversions together write the bytes that each writes alone. A failing one leaves the others
// alone.
func TestConvertAll(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			m, folder := modeltest.Open(t, modeltest.Build(t, kind.Name)), t.TempDir()
			var together []onnxq.Output
			var telling sync.Mutex
			for i, opts := range several {
				opts.Progress = func(int64, int64) {
					if !telling.TryLock() {
						t.Error("calls of Progress overlap")
						return
					}
					time.Sleep(time.Millisecond) // to give another call the chance to overlap
					telling.Unlock()
				}
				opts.AllowFallback = true
				plan, err := m.Plan(opts)
				if err != nil {
					t.Fatal(err)
				}
				together = append(together, onnxq.Output{Plan: plan, Path: filepath.Join(folder, string(rune('a'+i))+".onnx")})
			}
			nowhere := onnxq.Output{Plan: together[0].Plan, Path: filepath.Join(folder, "none", "a.onnx")}
			again := onnxq.Output{Plan: together[0].Plan, Path: folder + "/./a.onnx"}
			made := onnxq.ConvertAll(context.Background(), slices.Concat([]onnxq.Output{nowhere}, together, []onnxq.Output{again}))
			if err := made[0].Err; !errors.Is(err, os.ErrNotExist) {
				t.Errorf("no folder: %v", err)
			}
			if err := made[len(made)-1].Err; !errors.Is(err, onnxq.ErrTarget) {
				t.Errorf("a name that another output has: %v", err)
			}
			for i, o := range together {
				if made[i+1].Err != nil {
					t.Fatal(made[i+1].Err)
				}
				alone := filepath.Join(t.TempDir(), filepath.Base(o.Path))
				opts := several[i]
				opts.AllowFallback = true
				want, err := onnxq.Convert(context.Background(), m.Graph().File.Path(), alone, opts)
				if err != nil {
					t.Fatal(err)
				}
				if r := made[i+1].Report; !slices.Equal(r.Plan.Warnings, want.Plan.Warnings) {
					t.Errorf("%s: warnings %q, want %q", o.Path, r.Plan.Warnings, want.Plan.Warnings)
				}
				for _, name := range modeltest.List(t, filepath.Dir(alone)) {
					a, err1 := os.ReadFile(filepath.Join(filepath.Dir(alone), name))
					b, err2 := os.ReadFile(filepath.Join(folder, name))
					if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
						t.Errorf("%s: %v, equal: %v", name, err, bytes.Equal(a, b))
					}
				}
			}
		})
	}
}

// The weights of all outputs are read in the order of the file, by one reader.
func TestConvertAllReadsOnce(t *testing.T) {
	const side = 1 << 10
	var some []onnxq.Options
	for _, opts := range several {
		// nvfp4 reads the whole weight first, for its scale. Searches take long.
		if opts.Format != spec.NVFP4 && opts.Algorithm == "" {
			some = append(some, opts)
		}
	}
	log := convertLogged(t, side, some)
	first := log.at[0]
	seen := map[int64]bool{}
	for _, at := range log.at {
		weight := (at - first) / (4 * side * side)
		seen[weight] = true
		if seen[weight+1] {
			t.Fatalf("weight %d is read after the next one", weight)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d weights are read, want 3", len(seen))
	}
}

// Outputs with blocks in columns read the same parts of a weight and share the reads. float16
// models convert what others read.
func TestConvertAllSharesReads(t *testing.T) {
	const side = 1 << 10
	log := convertLogged(t, side, []onnxq.Options{
		{Bits: 4, Block: 32, Style: spec.NBits, Algorithm: spec.RTNofORT, FloatType: spec.Float16},
		{Bits: 4, Block: 32, Style: spec.NBits, Algorithm: spec.RTNofORT},
		{Format: spec.NF4, Block: 64, Style: spec.NBits},
	})
	if want := int64(3 * 4 * side * side); log.bytes != want {
		t.Errorf("%d bytes are read, want %d: each weight once", log.bytes, want)
	}
}

// convertLogged converts a model of three square weights with several options, with one worker.
func convertLogged(t *testing.T, side int64, several []onnxq.Options) *reads {
	var tensors modeltest.Tensors
	for _, name := range []string{"u", "v", "w"} {
		tensors = append(tensors, modeltest.Floats(name, side, side))
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, modeltest.Nodes{
		modeltest.Node("MatMul", "p", "x u"), modeltest.Node("MatMul", "q", "p w"), modeltest.Node("MatMul", "y", "q v"),
	})))
	log := &reads{}
	for _, v := range m.Graph().Values {
		content, err := m.Graph().File.Payload(v.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Graph().File.Replace(v.Tensor, logged{content, log}); err != nil {
			t.Fatal(err)
		}
	}
	var outputs []onnxq.Output
	for i, opts := range several {
		opts.Threads = 1
		plan, err := m.Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		outputs = append(outputs, onnxq.Output{Plan: plan, Path: filepath.Join(t.TempDir(), string(rune('a'+i))+".onnx")})
	}
	*log = reads{} // planning may have looked at some
	for _, made := range onnxq.ConvertAll(context.Background(), outputs) {
		if made.Err != nil {
			t.Fatal(made.Err)
		}
	}
	return log
}

// reads has the offsets that were read in a file, in order, and the number of bytes.
type reads struct {
	at    []int64
	bytes int64
}

// logged logs reads of a content.
type logged struct {
	modelfile.Placed
	log *reads
}

func (l logged) ReadAt(b []byte, off int64) (int, error) {
	l.log.at = append(l.log.at, l.Place(off).Offset)
	l.log.bytes += int64(len(b))
	return l.Placed.ReadAt(b, off)
}
