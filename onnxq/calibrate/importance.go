package calibrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"onnxquant/formats/gguf"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/rules"
)

// Importance has, for each column of the weights of products, the sum of the squares of the
// activations that it is multiplied by.
type Importance struct {
	Samples int
	Sums    map[string][]float64 // by weight
	Counts  map[string]int64     // by weight: rows of activations

	Warnings []string // problems of the data, one sentence each
}

// FindImportance finds the importance of the weights in the main graph that MatMul and Gemm read as
// their second input, perhaps through Transpose, Cast and Identity.
func FindImportance(ctx context.Context, path string, opts Options) (*Importance, error) {
	r, err := open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer r.model.Close()
	readers := products(r.model.Proto.GetGraph())
	if len(readers) == 0 {
		return nil, errors.New("no MatMul or Gemm of the main graph multiplies by a weight")
	}
	im := &Importance{Samples: r.data.Len(), Sums: map[string][]float64{}, Counts: map[string]int64{}}
	err = r.engine.Values(ctx, r.path, r.data, slices.Sorted(maps.Keys(readers)), observe.Options{Progress: r.progress("finding importance")}, func(v *execute.Tensor) error {
		return im.add(v, readers[v.Name])
	})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(im.Sums)) {
		for _, s := range im.Sums[name] {
			if math.IsNaN(s) || math.IsInf(s, 0) {
				return nil, fmt.Errorf("activations of weight %q are NaN or infinite", name)
			}
		}
	}
	im.Warnings, err = r.warnings()
	return im, err
}

// products lists weights by the activation that they are multiplied by.
func products(g *onnxpb.GraphProto) map[string][]string {
	stored, makers := map[string]bool{}, map[string]*onnxpb.NodeProto{}
	for _, t := range g.GetInitializer() {
		stored[t.GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, name := range n.Output {
			makers[name] = n
		}
	}
	weight := func(name string) string {
		for !stored[name] {
			n := makers[name]
			if n == nil || len(n.Input) == 0 || !slices.Contains([]string{"Transpose", "Cast", "Identity"}, n.GetOpType()) {
				return ""
			}
			name = n.Input[0]
		}
		return name
	}
	readers := map[string][]string{}
	for _, n := range g.GetNode() {
		if op := n.GetOpType(); op != "MatMul" && op != "Gemm" || len(n.Input) < 2 || transposed(n) {
			continue
		}
		if w := weight(n.Input[1]); w != "" && weight(n.Input[0]) == "" {
			readers[n.Input[0]] = append(readers[n.Input[0]], w)
		}
	}
	return readers
}

// transposed reports whether a Gemm transposes its activations.
func transposed(n *onnxpb.NodeProto) bool {
	return slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetName() == "transA" && a.GetI() != 0 })
}

// add adds the squares of activations for some weights.
func (im *Importance) add(v *execute.Tensor, weights []string) error {
	if len(v.Dims) == 0 || v.Len() == 0 || !v.IsFloat() {
		return nil
	}
	k := int(v.Dims[len(v.Dims)-1])
	sums := make([]float64, k)
	x := v.Float32s()
	for row := range slices.Chunk(x, k) {
		for i, a := range row {
			sums[i] += float64(a) * float64(a)
		}
	}
	for _, w := range weights {
		if im.Sums[w] == nil {
			im.Sums[w] = make([]float64, k)
		}
		if len(im.Sums[w]) != k {
			return fmt.Errorf("it has %d columns, but weight %q was multiplied by %d", k, w, len(im.Sums[w]))
		}
		for i, s := range sums {
			im.Sums[w][i] += s
		}
		im.Counts[w] += int64(len(x) / k)
	}
	return nil
}

// Write writes the importance as GGUF in the format of llama-imatrix: tensors W.in_sum2 and W.counts
// for each weight W, named by names. names may be nil.
func (im *Importance) Write(w io.Writer, names *rules.Names) error {
	metadata := []gguf.KeyValue{
		{Key: "general.type", Value: "imatrix"}, {Key: "imatrix.datasets", Value: []string{"calibration"}},
		{Key: "imatrix.chunk_count", Value: uint32(im.Samples)}, {Key: "imatrix.chunk_size", Value: uint32(1)},
	}
	var tensors []gguf.Tensor
	var values [][]float32
	for _, name := range slices.Sorted(maps.Keys(im.Sums)) {
		to := name
		if names != nil {
			if mapped, ok := names.For(name); ok {
				to = mapped
			}
		}
		sums := make([]float32, len(im.Sums[name]))
		for i, s := range im.Sums[name] {
			sums[i] = float32(s)
		}
		tensors = append(tensors, gguf.Tensor{Name: to + ".in_sum2", Type: gguf.F32, Shape: []int64{1, int64(len(sums))}},
			gguf.Tensor{Name: to + ".counts", Type: gguf.F32, Shape: []int64{1, 1}})
		values = append(values, sums, []float32{float32(im.Counts[name])})
	}
	layout, err := gguf.NewLayout(metadata, tensors)
	if err != nil {
		return err
	}
	var file image
	if err := layout.WriteHead(&file); err != nil {
		return err
	}
	for i, x := range values {
		raw, err := binary.Append(nil, binary.LittleEndian, x)
		if err != nil {
			return err
		}
		if _, err := layout.Content(&file, i).WriteAt(raw, 0); err != nil {
			return err
		}
	}
	_, err = w.Write(file)
	return err
}

// image is a file in memory.
type image []byte

func (f *image) WriteAt(b []byte, off int64) (int, error) {
	if n := int(off) + len(b); n > len(*f) {
		*f = append(*f, make([]byte, n-len(*f))...)
	}
	return copy((*f)[off:], b), nil
}
