package calibrate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// counting are samples that count the nodes of the models that run on them.
type counting struct {
	*calibrate.Data
	whole bool // values are not kept
	lost  bool // the values of a later sample are lost once
	nodes int
	once  sync.Once
}

func (c *counting) Run(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	for _, p := range parts {
		if c.whole && p.To != "" {
			return onnxq.ErrNotKept
		}
		if c.lost && p.From != "" {
			c.once.Do(func() { os.Truncate(filepath.Join(p.From, "7"), 20) })
		}
		if p.Path == "" {
			continue
		}
		m, err := modelfile.Open(p.Path)
		if err != nil {
			return err
		}
		c.nodes += len(m.Proto.Graph.Node)
		m.Close()
	}
	return c.Data.Run(ctx, parts, wanted, do)
}

// Values between layers are kept: the nodes that run grow with the depth of the model, not with its square,
// and the codes are those of runs from the inputs on.
func TestLinearInDepth(t *testing.T) {
	const depth, width = 12, 64
	widths := make([]int, depth+1)
	for i := range widths {
		widths[i] = width
	}
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(testmodels.MLP(1, widths...).Write(in), modeltest.WriteSamples(samples, 20, width)); err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []spec.Algorithm{spec.Best, spec.GPTQ} {
		convert := func(c *counting) []byte {
			c.Data = calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
			out := filepath.Join(folder, "out.onnx")
			err := c.Data.Open(t.Context())
			if err == nil {
				_, err = onnxq.Convert(t.Context(), in, out, onnxq.Options{Block: 32, Algorithm: algorithm, Calibration: c, Memory: 1 << 20})
			}
			content, readErr := os.ReadFile(out)
			if err = errors.Join(err, readErr); err != nil {
				t.Fatal(err)
			}
			return content
		}
		parts, whole, lost := &counting{}, &counting{whole: true}, &counting{lost: true}
		want := convert(whole)
		if got := convert(parts); !bytes.Equal(got, want) {
			t.Errorf("%s: the bytes depend on whether values are kept", algorithm)
		}
		if got := convert(lost); !bytes.Equal(got, want) {
			t.Errorf("%s: the bytes depend on whether values are lost", algorithm)
		}
		all := 3 * depth // nodes of the model
		if most := (3 + 4) * all; parts.nodes > most || algorithm == spec.Best && whole.nodes < 2*most {
			t.Errorf("%s: %d nodes run in parts, at most %d are wanted; %d from the inputs on", algorithm, parts.nodes, most, whole.nodes)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "*~*")); len(left) > 0 {
			t.Errorf("%s: left: %v", algorithm, left)
		}
	}
}
