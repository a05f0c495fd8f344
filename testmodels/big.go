package testmodels

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Big is a chain of MatMuls for measuring speed and memory: Layers float32
// weights, by turns [K,N] and [N,K].
type Big struct {
	Layers, K, N int
	Seed         uint64
}

// Bytes is the size of the weights.
func (b Big) Bytes() int64 { return 4 * int64(b.Layers) * int64(b.K) * int64(b.N) }

// WriteBig writes the model to path and its weights to path + ".data",
// without ever holding more than a buffer of them.
func WriteBig(path string, big Big) error {
	b := newBuilder(big.Seed, "big")
	b.input("x", float, "batch", big.K)
	location := filepath.Base(path) + ".data"
	value, k, n := "x", big.K, big.N
	size := 4 * int64(k) * int64(n)
	for i := range big.Layers {
		w, y := "w"+strconv.Itoa(i), "y"+strconv.Itoa(i)
		t := &onnxpb.TensorProto{Name: &w, DataType: proto.Int32(int32(float)), Dims: []int64{int64(k), int64(n)}}
		external(t, location, int64(i)*size, size)
		b.graph.Initializer = append(b.graph.Initializer, t)
		b.node("MatMul", y, []string{value, w})
		value, k, n = y, n, k
	}
	b.output(value, float, "batch", k)
	if err := writeWeights(path+".data", big); err != nil {
		return err
	}
	return b.model(21, 10).Write(path)
}

func writeWeights(path string, big Big) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, rng, word := bufio.NewWriterSize(f, 1<<20), newRand(big.Seed), make([]byte, 0, 4)
	for i := range big.Layers {
		k := big.K
		if i%2 == 1 {
			k = big.N
		}
		sigma := fanInSigma(k)
		for range big.K * big.N {
			w.Write(appendFloat(word, bell(rng.Uint64(), sigma))) // an error stays until Flush
		}
	}
	return errors.Join(w.Flush(), f.Close())
}
