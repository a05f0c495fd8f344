package scaletune

import (
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/quantize"
)

// counted counts how often it is read.
type counted struct {
	memory
	reads int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	return c.memory.ReadAt(b, off)
}

// Layers share the memory of codes and elements: codes without room are read again.
func TestSharedMemory(t *testing.T) {
	codec := int4.Codec{Bits: 4, Signed: true, Type: dtype.Float32, Scale: dtype.Float32}
	w := &quantize.Weight{DType: dtype.Float32, Outer: 2, K: 8, Inner: 1, Block: 8, Codec: codec}
	b := &buffers{codes: w.Elements() * 3 / 2}
	x := make([]float32, w.Elements())
	for i, again := range []bool{false, true} {
		codes := &counted{memory: make(memory, w.Elements())}
		l, err := newLayer(Layer{w, &quantize.Found{Codes: codes, Scales: make(memory, 8), Zeros: make(memory, 2)}}, b)
		if err != nil {
			t.Fatal(err)
		}
		before := codes.reads
		for range 2 {
			if err := l.decode(x); err != nil {
				t.Fatal(err)
			}
		}
		if n := codes.reads - before; (n > 0) != again {
			t.Errorf("layer %d: codes are read %d times more", i, n)
		}
		if l.buffers != b || int64(len(b.raw)) != w.SourceBytes() {
			t.Errorf("layer %d has memory of its own", i)
		}
	}
}
