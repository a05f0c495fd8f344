package testmodels

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Big is a chain of MatMuls for measuring speed and memory: Layers weights,
// alternately [K,N] and [N,K].
type Big struct {
	Layers, K, N int
	Seed         uint64
	Float16      bool // instead of float32
	TransB       bool // Gemms with transB=1 instead of MatMuls, so weights are transposed
	Embedded     bool // weights in the model file, which may have at most 2 GiB
}

// Bytes returns the bytes of all weights.
func (b Big) Bytes() int64 { return int64(b.Layers) * b.weight() }

// weight returns the bytes of one weight.
func (b Big) weight() int64 {
	if b.Float16 {
		return 2 * int64(b.K) * int64(b.N)
	}
	return 4 * int64(b.K) * int64(b.N)
}

// WriteBig writes the model to path, and its weights to path + ".data" unless they are
// embedded. It needs memory for one buffer of weights only.
func WriteBig(path string, big Big) error {
	m := big.model(filepath.Base(path) + ".data")
	if big.Embedded {
		return create(path, func(w *bufio.Writer) error { return big.embed(w, m.Proto) })
	}
	if err := m.Write(path); err != nil {
		return err
	}
	return create(path+".data", func(w *bufio.Writer) error {
		weight := big.weights()
		for range big.Layers {
			weight(w) // Flush returns its error
		}
		return nil
	})
}

// model returns the structure. Weights are in the file location unless embedded.
func (big Big) model(location string) *Model {
	b := newBuilder(big.Seed, "big")
	dtype := float
	if big.Float16 {
		dtype = onnxpb.TensorProto_FLOAT16
	}
	b.input("x", dtype, "batch", big.K)
	value, k, n := "x", big.K, big.N
	for i := range big.Layers {
		w, y := "w"+strconv.Itoa(i), "y"+strconv.Itoa(i)
		t := &onnxpb.TensorProto{Name: &w, DataType: proto.Int32(int32(dtype)), Dims: []int64{int64(k), int64(n)}}
		if big.TransB {
			t.Dims = []int64{int64(n), int64(k)}
			b.node("Gemm", y, []string{value, w}, intAttr("transB", 1))
		} else {
			b.node("MatMul", y, []string{value, w})
		}
		if !big.Embedded {
			external(t, location, int64(i)*big.weight(), big.weight())
		}
		b.graph.Initializer = append(b.graph.Initializer, t)
		value, k, n = y, n, k
	}
	b.output(value, dtype, "batch", k)
	return b.model(21, 10)
}

// embed writes the model with the contents of its initializers. It writes the graph as
// the last field of the model, and initializers as the last fields of the graph: protobuf
// fields may be in any order.
func (big Big) embed(w io.Writer, m *onnxpb.ModelProto) error {
	const graphField, initializerField, rawField = 7, 5, 9
	graph := m.Graph
	initializers := graph.Initializer
	m.Graph, graph.Initializer = nil, nil
	head, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	body, err := proto.Marshal(graph)
	if err != nil {
		return err
	}
	size := int64(len(body))
	var tensors [][]byte // without their contents
	for _, t := range initializers {
		b, err := proto.Marshal(t)
		if err != nil {
			return err
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, rawField, protowire.BytesType), uint64(big.weight()))
		whole := protowire.AppendTag(nil, initializerField, protowire.BytesType)
		whole = protowire.AppendVarint(whole, uint64(int64(len(b))+big.weight()))
		whole = append(whole, b...)
		tensors = append(tensors, whole)
		size += int64(len(whole)) + big.weight()
	}
	head = protowire.AppendVarint(protowire.AppendTag(head, graphField, protowire.BytesType), uint64(size))
	w.Write(append(head, body...)) // Flush returns its error
	weight := big.weights()
	for _, t := range tensors {
		w.Write(t)
		weight(w)
	}
	return nil
}

// weights returns a function that writes one weight. It repeats the same random
// elements, because making new ones takes longer than writing.
func (big Big) weights() func(w io.Writer) {
	const maxElements = 1 << 22
	rng, sigma := newRand(big.Seed), fanInSigma(big.K)
	var elements []byte
	for range min(big.K*big.N, maxElements) {
		x := bell(rng.Uint64(), sigma)
		if big.Float16 {
			elements = appendAs(elements, x, onnxpb.TensorProto_FLOAT16)
		} else {
			elements = appendFloat(elements, x)
		}
	}
	return func(w io.Writer) {
		for left := big.weight(); left > 0; left -= int64(len(elements)) {
			w.Write(elements[:min(left, int64(len(elements)))])
		}
	}
}

// create writes a file through a buffer.
func create(path string, write func(w *bufio.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}
