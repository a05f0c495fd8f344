package write

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/spec"
)

// Output is a model to be written: its structure, with gaps for the contents of tensors.
type Output struct {
	Contents []Piece

	proto   *onnxpb.ModelProto
	tensors []*onnxpb.TensorProto // of the Contents, in the order of the structure
	layout  *modelfile.Layout
	size    int64   // size of the external data file
	offsets []int64 // of each content in the external data file; -1: in the model file; nil without external data
}

// Piece is the content of one tensor.
type Piece struct {
	Size int64
	Copy *modelfile.Payload // content to copy, of the input or computed; nil if it is written otherwise

	initializer bool // may be external data, unlike tensors in attributes
}

// Limits of protobuf and of external data.
const (
	MaxEmbedded  = 1<<31 - 1
	pageSize     = 4 << 10
	largeContent = 64 << 10 // contents from here on start on a page
	alignment    = 16
)

// inlineSize is the size up to which contents are part of the structure.
const inlineSize = 1 << 10

// Reserve marks a new tensor: its content is written later.
func Reserve(t *onnxpb.TensorProto) { t.Payload = []uint32{0} }

// Collect lists the contents of a copy: those of tensors marked by Reserve, and those of the
// input that are larger than inlineSize.
func Collect(c *graph.Copy) (*Output, error) {
	o := &Output{proto: c.Proto}
	for _, t := range modelfile.Tensors(c.Proto) {
		p := Piece{Size: graph.SizeOf(t)}
		old := c.OriginalTensor(t)
		switch {
		case old != nil && p.Size > inlineSize:
			var err error
			if p.Copy, err = c.Original.File.Payload(old); err != nil {
				return nil, err
			}
			t.ExternalData, t.DataLocation = nil, nil
		case old != nil || t.Payload == nil:
			continue // in the structure
		}
		if old == nil {
			p.Copy = c.Content(t)
		}
		t.Payload = []uint32{uint32(len(o.Contents))}
		o.Contents = append(o.Contents, p)
		o.tensors = append(o.tensors, t)
	}
	graph.WalkGraphs(c.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			if i := Index(t); i >= 0 {
				o.Contents[i].initializer = true
			}
		}
	})
	return o, nil
}

// Inline makes small contents of the input part of the structure: opset adapters may read
// them, and a gap is not worthwhile. Typed fields such as float_data stay typed. Contents of
// values that are gone are left out.
func Inline(c *graph.Copy, gone func(v *graph.Value) bool) error {
	for _, t := range modelfile.Tensors(c.Proto) {
		old := c.OriginalTensor(t)
		if old == nil || graph.SizeOf(t) > inlineSize || dtype.DType(t.GetDataType()) == dtype.String || gone(c.Value(t)) {
			continue
		}
		t.Payload, t.ExternalData, t.DataLocation = nil, nil, nil
		if err := c.Original.File.Inline(t, old); err != nil {
			return err
		}
	}
	return nil
}

// Index returns the index of a tensor's content in Output.Contents, or -1. It works between
// Collect and Output.Place.
func Index(t *onnxpb.TensorProto) int {
	if t == nil || len(t.Payload) != 1 {
		return -1
	}
	return int(t.Payload[0])
}

// Place lays out the output, with external data if asked for or necessary.
func (o *Output) Place(where spec.ExternalData) error {
	if where != spec.ExternalAlways {
		if err := o.encode(""); err != nil {
			return err
		}
		if o.layout.Size <= MaxEmbedded {
			return nil
		}
		if where == spec.ExternalNever {
			return fmt.Errorf("the output would have %d bytes, more than the 2 GiB that one file may: leave external data to auto", o.layout.Size)
		}
	}
	o.moveOut()
	// A preliminary name: SetPath sets the real one.
	if err := o.encode("model.onnx.data"); err != nil {
		return err
	}
	if o.layout.Size > MaxEmbedded {
		return fmt.Errorf("the model file would have %d bytes, more than 2 GiB, even with external data: its large tensors are in attributes of nodes", o.layout.Size)
	}
	return nil
}

// moveOut moves larger initializers to the data file. Tensors in attributes stay: not every
// runtime supports external data for them.
func (o *Output) moveOut() {
	offsets := make([]int64, len(o.Contents))
	for i, p := range o.Contents {
		offsets[i] = -1
		if p.Size <= inlineSize || !p.initializer {
			continue
		}
		align := int64(alignment)
		if p.Size >= largeContent {
			align = pageSize
		}
		off := (o.size + align - 1) / align * align
		offsets[i], o.size = off, off+p.Size
	}
	if o.size > 0 { // otherwise no data file is needed
		o.offsets = offsets
	}
}

// encode lays out the model file. location is the name of the external data file.
func (o *Output) encode(location string) (err error) {
	sizes := make([]int64, len(o.Contents))
	for i, t := range o.tensors {
		sizes[i] = o.Contents[i].Size
		if o.External() && o.offsets[i] >= 0 {
			t.Payload = nil
			t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
			t.ExternalData = []*onnxpb.StringStringEntryProto{
				{Key: new("location"), Value: new(location)},
				{Key: new("offset"), Value: new(strconv.FormatInt(o.offsets[i], 10))},
				{Key: new("length"), Value: new(strconv.FormatInt(sizes[i], 10))},
			}
		}
	}
	o.layout, err = modelfile.NewLayout(o.proto, sizes)
	return err
}

// External reports whether there is an external data file.
func (o *Output) External() bool { return o.offsets != nil }

// Size is the size of all files together.
func (o *Output) Size() int64 { return o.layout.Size + o.size }

// Opset and IR are the versions of the model.
func (o *Output) Opset() int64 { return graph.Opset(o.proto) }
func (o *Output) IR() int64    { return o.proto.GetIrVersion() }

// DataBytes is the size of the file of external data, 0 without one.
func (o *Output) DataBytes() int64 { return o.size }

// SetPath lays the output out for a file name. With external data its size depends on the
// name, because the model contains the name of the data file.
func (o *Output) SetPath(path string) error {
	if !o.External() {
		return nil
	}
	return o.encode(filepath.Base(modelfile.DataPath(path)))
}

// Rename rewrites the structure for another name of the external data file.
func (o *Output) Rename(w io.WriterAt, location string) error {
	if err := o.encode(location); err != nil {
		return err
	}
	return o.layout.WriteStructure(w)
}

// Begin writes the structure and returns a writer for each content.
func (o *Output) Begin(target *modelfile.Target) ([]io.WriterAt, error) {
	if err := o.layout.WriteStructure(target.Model); err != nil {
		return nil, err
	}
	if target.Data != nil {
		if err := target.Data.Truncate(o.size); err != nil {
			return nil, err
		}
	}
	sinks := make([]io.WriterAt, len(o.Contents))
	for i := range sinks {
		if o.External() && o.offsets[i] >= 0 {
			sinks[i] = sink{target.Data, o.offsets[i]}
		} else {
			sinks[i] = sink{target.Model, o.layout.Offsets[i]}
		}
	}
	return sinks, nil
}

// sink writes a tensor's content at its offset in a file.
type sink struct {
	file *os.File
	base int64
}

// longWrite is the size from which on a write is flushed to the disk at once.
const longWrite = 64 << 10

func (s sink) WriteAt(b []byte, off int64) (int, error) {
	n, err := s.file.WriteAt(b, s.base+off)
	if n >= longWrite {
		modelfile.WriteBack(s.file, s.base+off, int64(n))
	}
	return n, err
}

// Reopen opens the written files before they are renamed. It checks that the structure is
// written as it was laid out, and that it is a valid graph. It returns a reader for each
// content. The caller closes the files.
func (o *Output) Reopen(target *modelfile.Target) (*modelfile.Reader, []io.ReaderAt, error) {
	written, err := target.Reopen()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	if err := o.check(written); err != nil {
		written.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	contents := make([]io.ReaderAt, len(o.Contents))
	for i, p := range o.Contents {
		if o.External() && o.offsets[i] >= 0 {
			contents[i] = io.NewSectionReader(written.Data, o.offsets[i], p.Size)
		} else {
			contents[i] = io.NewSectionReader(written.Model, o.layout.Offsets[i], p.Size)
		}
	}
	return written, contents, nil
}

// check checks the structure and the sizes of the written files.
func (o *Output) check(written *modelfile.Reader) error {
	if err := graph.Check(o.proto); err != nil {
		return err
	}
	if written.DataSize != o.size {
		return fmt.Errorf("the external data has %d bytes, %d were written", written.DataSize, o.size)
	}
	return o.layout.Check(written.Model, written.ModelSize)
}

// Name returns the name of a content's tensor, for messages.
func (o *Output) Name(content int) string { return o.tensors[content].GetName() }
