package write

import (
	"io"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/written"
)

// Record makes room in the metadata for hashes of what is written. It must be called after Collect and
// before Place. It returns by how many bytes the model grows. list: a hash of each tensor, if they are few.
func (o *Output) Record(list bool) int64 {
	contents := int64(0)
	for _, p := range o.Contents {
		contents += p.Size
	}
	o.recorded = true
	return written.Reserve(o.proto, contents, list)
}

// Forget removes the record of the input. It must be called before Place.
func (o *Output) Forget() { written.Remove(o.proto) }

// Seal writes the record: the sums of what was written, and the hash of the structure. It does nothing
// without Record.
func (o *Output) Seal(w io.WriterAt) error {
	if !o.recorded {
		return nil
	}
	next := 0 // content: they are in the order of the structure
	sums := func(_ int, t *onnxpb.TensorProto) (uint32, bool) {
		if next == len(o.tensors) || o.tensors[next] != t {
			return 0, false
		}
		next++
		return o.sums[next-1].CRC32(), true
	}
	written.Put(o.proto, written.Of(o.proto, sums, written.In(o.proto).Tensors != nil))
	return o.Rename(w, o.names)
}
