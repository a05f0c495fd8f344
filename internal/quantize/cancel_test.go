package quantize

import (
	"context"
	"errors"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/spec"
)

// A canceled search stops before the end of its tile.
func TestCancelStopsSearches(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	const limit = 1 << 20
	w := &Weight{Outer: 1, K: 64, Inner: 48, Block: 32, DType: dtype.Float32, Codec: int4.Codec{Bits: 4, Signed: true}, Bits: 4, Range: spec.Range{Kind: spec.RangeMSE}}
	tl := slices.Collect(w.tiles(limit))[0]
	b := &Buffers{}
	for i := range buffer.Grow(&b.x, tl.size()) {
		b.x[i] = float32(i%13) - 6
	}
	b.makeRoom(tl)
	if err := tl.narrow(ctx, b, w.search(w.Codec), tl.chunks(limit)); !errors.Is(err, context.Canceled) {
		t.Errorf("the search for ranges ends with %v", err)
	}
	e, _ := ggml.Lookup("Q4_K")
	if err := EncodeRows(ctx, e, make([]byte, e.Bytes), make([]float32, e.Elements), e.Elements, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the search for blocks ends with %v", err)
	}
}
