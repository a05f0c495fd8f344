package onnxq

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/spec"
)

// output is a model that is to be written: its structure, and what goes into
// the gaps that its tensors leave.
type output struct {
	proto    *onnxpb.ModelProto
	contents []content
	tensors  []*onnxpb.TensorProto // contents[i] is that of tensors[i]
	layout   *modelfile.Layout
	data     dataLayout
}

// content is what goes into one gap.
type content struct {
	size int64
	copy *modelfile.Payload // of the input; nil for what is made anew
}

// sink is the place in a file where a tensor's content goes.
type sink struct {
	file *os.File
	base int64
}

// longWrite is the size from which on what is written goes to the disk at once.
const longWrite = 64 << 10

func (s sink) WriteAt(b []byte, off int64) (int, error) {
	n, err := s.file.WriteAt(b, s.base+off)
	if n >= longWrite {
		modelfile.WriteBack(s.file, s.base+off, int64(n))
	}
	return n, err
}

// dataLayout places contents in the external data file.
type dataLayout struct {
	size    int64
	offsets []int64 // of each content; -1 for those in the model file
}

// limits of protobuf and of external data.
const (
	maxEmbedded  = 1<<31 - 1
	pageSize     = 4 << 10
	largeContent = 64 << 10 // starts on a page
	alignment    = 16
)

// add makes a gap for a tensor of the structure.
func (o *output) add(t *onnxpb.TensorProto, c content) {
	t.Payload = []uint32{uint32(len(o.contents))}
	o.contents = append(o.contents, c)
	o.tensors = append(o.tensors, t)
}

// place lays out the output, with external data where it is wanted or needed.
func (o *output) place(where spec.ExternalData) error {
	if where != spec.ExternalAlways {
		if err := o.encode(""); err != nil {
			return err
		}
		if o.layout.Size <= maxEmbedded {
			return nil
		}
		if where == spec.ExternalNever {
			return fmt.Errorf("the output would have %d bytes, more than the 2 GiB that one file may: leave external data to auto", o.layout.Size)
		}
	}
	o.moveOut()
	// Any name will do until the output's is known.
	if err := o.encode("model.onnx.data"); err != nil {
		return err
	}
	if o.layout.Size > maxEmbedded {
		return fmt.Errorf("the model file would have %d bytes, more than 2 GiB, even with external data: its large tensors are in attributes of nodes", o.layout.Size)
	}
	return nil
}

// moveOut gives the larger initializers a place in the data file. Tensors in
// attributes stay: not every runtime looks for them outside.
func (o *output) moveOut() {
	initializers := map[*onnxpb.TensorProto]bool{}
	graph.WalkGraphs(o.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			initializers[t] = true
		}
	})
	o.data.offsets = make([]int64, len(o.contents))
	for i, t := range o.tensors {
		o.data.offsets[i] = -1
		size := o.contents[i].size
		if size <= inlineSize || !initializers[t] {
			continue
		}
		align := int64(alignment)
		if size >= largeContent {
			align = pageSize
		}
		off := (o.data.size + align - 1) / align * align
		o.data.offsets[i], o.data.size = off, off+size
	}
	if o.data.size == 0 {
		o.data.offsets = nil // there would be an empty file that nothing refers to
	}
}

// encode lays out the model file, with its external data in a file named
// location.
func (o *output) encode(location string) (err error) {
	sizes := make([]int64, len(o.contents))
	for i, t := range o.tensors {
		sizes[i] = o.contents[i].size
		if o.external() && o.data.offsets[i] >= 0 {
			t.Payload = nil
			t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
			t.ExternalData = []*onnxpb.StringStringEntryProto{
				{Key: new("location"), Value: new(location)},
				{Key: new("offset"), Value: new(strconv.FormatInt(o.data.offsets[i], 10))},
				{Key: new("length"), Value: new(strconv.FormatInt(sizes[i], 10))},
			}
		}
	}
	o.layout, err = modelfile.NewLayout(o.proto, sizes)
	return err
}

func (o *output) external() bool { return o.data.offsets != nil }

// size is that of all files together.
func (o *output) size() int64 { return o.layout.Size + o.data.size }

// relocate writes the structure once more, for another data file name.
func (o *output) relocate(w io.WriterAt, location string) error {
	if err := o.encode(location); err != nil {
		return err
	}
	return o.layout.WriteStructure(w)
}

// begin writes the structure, and returns where the contents go.
func (o *output) begin(target *modelfile.Target) (map[*onnxpb.TensorProto]sink, error) {
	if err := o.layout.WriteStructure(target.Model); err != nil {
		return nil, err
	}
	if target.Data != nil {
		if err := target.Data.Truncate(o.data.size); err != nil {
			return nil, err
		}
	}
	sinks := map[*onnxpb.TensorProto]sink{}
	for i, t := range o.tensors {
		if o.external() && o.data.offsets[i] >= 0 {
			sinks[t] = sink{target.Data, o.data.offsets[i]}
		} else {
			sinks[t] = sink{target.Model, o.layout.Offsets[i]}
		}
	}
	return sinks, nil
}

// payloads finds the contents of the tensors in what was written.
func (o *output) payloads(written *modelfile.Model) (map[*onnxpb.TensorProto]*modelfile.Payload, error) {
	var ours []*onnxpb.TensorProto
	for _, t := range modelfile.Tensors(o.proto) {
		ours = append(ours, t)
	}
	payloads := map[*onnxpb.TensorProto]*modelfile.Payload{}
	i := 0
	for where, t := range modelfile.Tensors(written.Proto) {
		if i == len(ours) || t.GetName() != ours[i].GetName() {
			return nil, fmt.Errorf("%w: %s is not where it was written", ErrVerify, where)
		}
		p, err := written.Payload(t)
		if err != nil {
			return nil, err
		}
		payloads[ours[i]] = p
		i++
	}
	if i != len(ours) {
		return nil, fmt.Errorf("%w: %d tensors, %d were written", ErrVerify, i, len(ours))
	}
	return payloads, nil
}

// reopen opens what was written, before it takes the place of the output, and
// checks the structure.
func (o *output) reopen(target *modelfile.Target) (*Model, map[*onnxpb.TensorProto]*modelfile.Payload, error) {
	file, err := target.Reopen()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	m, err := newModel(file)
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	payloads, err := o.payloads(file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return m, payloads, nil
}
