package quantize

import (
	"context"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/packing"
	"onnxquant/spec"
)

// A weight that no float16 scale reaches stays in float.
func TestBlockwiseBeyondFloat16(t *testing.T) {
	for _, format := range []spec.Format{"q8_0", "q4_k"} {
		e := format.Encoding()
		w := &Weight{DType: dtype.Float32, Outer: 1, K: 64, Inner: 96, Block: int64(e.Elements), Encoding: e, CodesAt: packing.InOrder(1, 64, 96)}
		b := &Buffers{}
		tile := slices.Collect(w.tiles(2 << 20))[0]
		buffer.Grow(&b.x, min(tile.scales*tile.Block, tile.n))
		b.x[0] = 1e38
		_, decoded, err := b.encodeBlocks(context.Background(), tile)
		if err != nil || decoded != nil {
			t.Errorf("%s: 1e38 has a scale: %v, %v", format, decoded, err)
		}
		if kernels.AbsMax(0, b.x) != 1e38 {
			t.Error("the elements have changed")
		}
	}
}
