package checkpoint_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/onnxq/checkpoint"
)

// A float64 that float32 does not reach is refused, whatever the type of the model's tensor. Infinity is not a number beyond.
func TestFloat64Beyond(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16} {
		for x, want := range map[float64]string{
			-1e200: "it holds -1e+200, which float32 does not reach", math.Inf(1): "",
		} {
			w := stored{name: "model.layers.0.mlp.up_proj.weight", typ: "F64", shape: []int64{24, 16}}.with(dtype.Float64, ramp(24*16))
			binary.LittleEndian.PutUint64(w.data[8*77:], math.Float64bits(x))
			path := filepath.Join(t.TempDir(), "w.safetensors")
			write(t, path, w)
			m := model(t, typ, 24)
			if _, err := checkpoint.Read(m, path, nil); err != nil {
				t.Fatal(err)
			}
			refused(t, m, want)
		}
	}
}
