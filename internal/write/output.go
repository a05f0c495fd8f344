package write

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/commit"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/written"
	"onnxquant/spec"
)

// Output is a model to be written: its structure, with gaps for the contents of tensors.
type Output struct {
	Contents []Piece

	proto   *onnxpb.ModelProto
	tensors []*onnxpb.TensorProto // of the Contents, in the order of the structure
	layout  *modelfile.Layout
	first   string   // name of the first external data file; "": as the model
	names   []string // of the external data files; none without external data
	sizes   []int64  // of the same files
	places  []place  // of each content; nil without external data

	recorded bool           // the structure has room for hashes of what is written
	sums     []*written.Sum // of each content, as it is written; nil unless recorded
}

// place is the place of a content in the external data files.
type place struct {
	file   int // -1: in the model file
	offset int64
}

// External says how external data is written.
type External struct {
	When  spec.ExternalData
	Name  string // of the first file; "": the model's name with .data. Further files are called Name_1, Name_2 …
	Shard int64  // size from which on a file is full; 0: all tensors are in one
}

// Check finds a bad value.
func (e External) Check() error {
	if e.Shard < 0 {
		return fmt.Errorf("shard size %d is negative", e.Shard)
	}
	if e.Name != "" {
		if err := commit.CheckDataName(e.Name); err != nil {
			return err
		}
	}
	return e.When.Check()
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

// Collect lists the contents of a copy: tensors marked by Reserve, and tensors of the input larger
// than inlineSize.
func Collect(c *graph.Copy) (*Output, error) {
	o := &Output{proto: c.Proto}
	for _, t := range modelfile.Tensors(c.Proto) {
		p := Piece{Size: graph.SizeOf(t)}
		if t.Payload == nil && p.Size <= inlineSize {
			continue // in the structure: there may be very many
		}
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
		old := c.Copied(t)
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

// maxFiles is the largest number of external data files.
const maxFiles = 100

// Place lays out the output, with external data if asked for or necessary.
func (o *Output) Place(e External) error {
	if e.When != spec.ExternalAlways {
		if err := o.encode(nil); err != nil {
			return err
		}
		if o.layout.Size <= MaxEmbedded {
			return nil
		}
		if e.When == spec.ExternalNever {
			return fmt.Errorf("the output would have %d bytes, more than the 2 GiB that one file may: leave external data to auto", o.layout.Size)
		}
	}
	o.moveOut(e.Shard)
	if n := len(o.sizes); n > maxFiles {
		return fmt.Errorf("the external data would be %d files, more than %d: choose a larger shard size", n, maxFiles)
	}
	o.first = e.Name
	// Preliminary names: At has the real ones.
	o.names = commit.DataNames("model.onnx", o.first, len(o.sizes))
	if err := o.encode(o.names); err != nil {
		return err
	}
	if o.layout.Size > MaxEmbedded {
		return fmt.Errorf("the model file would have %d bytes, more than 2 GiB, even with external data: its large tensors are in attributes of nodes", o.layout.Size)
	}
	return nil
}

// moveOut moves larger initializers to data files. Tensors in attributes stay: not every
// runtime supports external data for them. A tensor that would end behind the size of a full
// file begins the next one.
func (o *Output) moveOut(full int64) {
	places := make([]place, len(o.Contents))
	for i, p := range o.Contents {
		places[i].file = -1
		if p.Size <= inlineSize || !p.initializer {
			continue
		}
		align := int64(alignment)
		if p.Size >= largeContent {
			align = pageSize
		}
		last, off := len(o.sizes)-1, int64(0)
		if last >= 0 {
			off = (o.sizes[last] + align - 1) / align * align
		}
		if last < 0 || full > 0 && off > full-p.Size {
			o.sizes = append(o.sizes, 0)
			last, off = last+1, 0
		}
		places[i], o.sizes[last] = place{last, off}, off+p.Size
	}
	if len(o.sizes) > 0 { // otherwise no data file is needed
		o.places = places
	}
}

// encode lays out the model file. names are the names of the external data files.
func (o *Output) encode(names []string) (err error) {
	sizes := make([]int64, len(o.Contents))
	for i, t := range o.tensors {
		sizes[i] = o.Contents[i].Size
		if p := o.place(i); p.file >= 0 {
			t.Payload = nil
			t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
			t.ExternalData = []*onnxpb.StringStringEntryProto{
				{Key: new("location"), Value: new(names[p.file])},
				{Key: new("offset"), Value: new(strconv.FormatInt(p.offset, 10))},
				{Key: new("length"), Value: new(strconv.FormatInt(sizes[i], 10))},
			}
		}
	}
	o.layout, err = modelfile.NewLayout(o.proto, sizes)
	return err
}

// place returns the place of a content.
func (o *Output) place(content int) place {
	if !o.External() {
		return place{file: -1}
	}
	return o.places[content]
}

// External reports whether there is external data.
func (o *Output) External() bool { return o.places != nil }

// Data returns the names of the external data files, for the path that At got.
func (o *Output) Data() []string { return o.names }

// DataPaths returns the paths of the external data files of the model at path.
func (o *Output) DataPaths(path string) []string {
	var paths []string
	for _, name := range o.names {
		paths = append(paths, commit.Beside(path, name))
	}
	return paths
}

// Size is the size of all files together.
func (o *Output) Size() int64 {
	n := o.layout.Size
	for _, size := range o.sizes {
		n += size
	}
	return n
}

// Opset and IR are the versions of the model.
func (o *Output) Opset() int64 { return graph.Opset(o.proto) }
func (o *Output) IR() int64    { return o.proto.GetIrVersion() }

// DataBytes is the size of the largest file of external data, 0 without one.
func (o *Output) DataBytes() int64 { return slices.Max(append(o.sizes, 0)) }

// At returns the output laid out for a file name. With external data its size depends on the
// name, because the model contains the name of the data file.
func (o *Output) At(path string) (*Output, error) {
	if !o.External() {
		return o, nil
	}
	named := *o
	named.names = commit.DataNames(path, o.first, len(o.sizes))
	return &named, named.encode(named.names)
}

// Rename rewrites the structure with other names of the external data files.
func (o *Output) Rename(w io.WriterAt, locations []string) error {
	if err := o.encode(locations); err != nil {
		return err
	}
	return o.layout.WriteStructure(w)
}

// Begin writes the structure and returns a writer for each content.
func (o *Output) Begin(target *commit.Target) ([]io.WriterAt, error) {
	if err := o.layout.WriteStructure(target.Model); err != nil {
		return nil, err
	}
	if err := allocate(target.Model, o.layout.Size); err != nil {
		return nil, err
	}
	for i, f := range target.Data {
		if err := f.Truncate(o.sizes[i]); err != nil {
			return nil, err
		}
		if err := allocate(f, o.sizes[i]); err != nil {
			return nil, err
		}
	}
	sinks := make([]io.WriterAt, len(o.Contents))
	o.sums = nil
	for i, p := range o.Contents {
		s := sink{file: target.Model, base: o.layout.Offsets[i]}
		if at := o.place(i); at.file >= 0 {
			s.file, s.base = target.Data[at.file], at.offset
		}
		if o.recorded {
			s.sum = written.NewSum(p.Size)
			o.sums = append(o.sums, s.sum)
		}
		sinks[i] = s
	}
	return sinks, nil
}

// longFile is the size from which on room for a file is found before it is written.
const longFile = 1 << 20

func allocate(f *os.File, size int64) error {
	if size < longFile {
		return nil
	}
	return commit.Allocate(f, size)
}

// sink writes a tensor's content at its offset in a file.
type sink struct {
	file *os.File
	base int64
	sum  *written.Sum // may be nil
}

// longWrite is the size from which on a write is flushed to the disk at once.
const longWrite = 64 << 10

func (s sink) WriteAt(b []byte, off int64) (int, error) {
	if s.sum != nil {
		s.sum.Add(b, off)
	}
	n, err := s.file.WriteAt(b, s.base+off)
	if n >= longWrite {
		commit.WriteBack(s.file, s.base+off, int64(n))
	}
	return n, err
}

// Reopen opens the written files before they are renamed. It checks that the structure equals the
// layout and is a valid graph. It returns a reader for each content. The caller closes the files.
func (o *Output) Reopen(target *commit.Target) (*commit.Reader, []io.ReaderAt, error) {
	written, err := target.Reopen()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	if err := o.check(written); err != nil {
		written.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	return written, o.readers(written), nil
}

// readers returns a reader for each content.
func (o *Output) readers(written *commit.Reader) []io.ReaderAt {
	contents := make([]io.ReaderAt, len(o.Contents))
	for i, p := range o.Contents {
		if at := o.place(i); at.file >= 0 {
			contents[i] = io.NewSectionReader(written.Data[at.file], at.offset, p.Size)
		} else {
			contents[i] = io.NewSectionReader(written.Model, o.layout.Offsets[i], p.Size)
		}
	}
	return contents
}

// check checks the structure and the sizes of the written files.
func (o *Output) check(written *commit.Reader) error {
	if err := graph.Check(o.proto); err != nil {
		return err
	}
	if !slices.Equal(written.DataSizes, o.sizes) {
		return fmt.Errorf("the files of external data have %d bytes, %d were written", written.DataSizes, o.sizes)
	}
	return o.layout.Check(written.Model, written.ModelSize)
}

// Name returns the name of a content's tensor, for messages.
func (o *Output) Name(content int) string { return o.tensors[content].GetName() }
