package modelfile

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"onnxquant/internal/onnxpb"
)

// Locations returns the files of external data that the model file r refers to, sorted. It reads the structure alone.
func Locations(r io.ReaderAt, size int64) ([]string, error) {
	var m onnxpb.ModelProto
	if _, err := cut(r, size, &m); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for where, t := range Tensors(&m) {
		if t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
			continue
		}
		e, err := ParseExternal(t)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrTensor, where, err)
		}
		found[e.Location] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}
