package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/lazy"
)

// stored returns the stored elements of a tensor. Numbers are float32: reading a float64 beyond that is an error.
func (t tensor) stored() *lazy.Tensor {
	x := lazy.Stored(t.Type.DType(), t.Shape, t.file.Content(t.Tensor))
	if x.DType != dtype.Float64 {
		return x
	}
	read := x.Read
	x.Read = func(a *lazy.Arena, dst []float32, off int64) error {
		if err := read(a, dst, off); err != nil {
			return err
		}
		for i, v := range dst {
			if !math.IsInf(float64(v), 0) {
				continue
			}
			var raw [8]byte
			if err := buffer.ReadFull(x.Stored, raw[:], 8*(off+int64(i))); err != nil {
				return err
			}
			if was := math.Float64frombits(binary.LittleEndian.Uint64(raw[:])); !math.IsInf(was, 0) {
				return fmt.Errorf("it holds %v, which float32 does not reach", was)
			}
		}
		return nil
	}
	return x
}
