package modelfile

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
)

// Model is an opened model file.
type Model struct {
	Proto *onnxpb.ModelProto // the structure; contents of tensors are cut out

	file      *file
	root      *os.Root // the model's folder
	externals map[string]*file
	attached  []*file // see Attach
	pieces    []*piece
	payloads  map[*onnxpb.TensorProto]*Payload
}

// Open reads the structure of the model file at name, opens the external files
// it refers to, and checks that every tensor's content is there and has the
// size that its type and dimensions ask for.
func Open(name string) (*Model, error) { return open(name, map[string]*file{}) }

// open opens a model some of whose external files are open already. They are
// closed with it, or at once if it fails.
func open(name string, externals map[string]*file) (*Model, error) {
	m := &Model{externals: externals}
	if err := m.read(name); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m *Model) read(name string) (err error) {
	if m.file, err = regular(os.OpenFile(name, os.O_RDONLY|regularfile.Nonblock, 0)); err != nil {
		return err
	}
	if m.file.size == 0 {
		return fmt.Errorf("%w: it is empty", ErrFormat)
	}
	if m.root, err = os.OpenRoot(filepath.Dir(name)); err != nil {
		return plain(err)
	}
	structure, pieces, err := cut(m.file, m.file.size)
	if err != nil {
		return explain(err, m.file)
	}
	m.pieces = pieces
	m.Proto = &onnxpb.ModelProto{}
	if err := proto.Unmarshal(structure, m.Proto); err != nil {
		return fmt.Errorf("%w: %v", ErrFormat, err)
	}
	m.payloads = map[*onnxpb.TensorProto]*Payload{}
	for where, t := range Tensors(m.Proto) {
		p, err := m.resolve(t)
		if err != nil {
			return fmt.Errorf("%w %s: %w", ErrTensor, where, err)
		}
		m.payloads[t] = p
	}
	return nil
}

// Close closes the model's files.
func (m *Model) Close() error {
	for _, f := range m.others() {
		f.Close()
	}
	if m.root != nil {
		m.root.Close()
	}
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// Size returns the bytes of the model file and of the external files it uses.
func (m *Model) Size() int64 {
	n := m.file.size
	for _, f := range m.externals {
		if !os.SameFile(f.info, m.file.info) {
			n += f.size
		}
	}
	return n
}

// Unchanged fails if one of the model's files was written to since it was opened,
// as far as its size and its time tell. What was read may then be neither the old
// contents nor the new ones.
func (m *Model) Unchanged() error {
	for _, f := range append(m.others(), m.file) {
		now, err := f.Stat()
		if err != nil {
			return err
		}
		if now.Size() != f.size || !now.ModTime().Equal(f.info.ModTime()) {
			return fmt.Errorf("%s: it was changed while it was read", f.Name())
		}
	}
	return nil
}

// Externals returns the sizes of the external files by their names.
func (m *Model) Externals() map[string]int64 {
	sizes := map[string]int64{}
	for name, f := range m.externals {
		sizes[name] = f.size
	}
	return sizes
}

// FileSize returns the bytes of the model file alone.
func (m *Model) FileSize() int64 { return m.file.size }

// Uses reports whether info is one of the model's files.
func (m *Model) Uses(info fs.FileInfo) bool {
	return slices.ContainsFunc(append(m.others(), m.file), func(f *file) bool { return os.SameFile(info, f.info) })
}

// others lists the model's files but for the model file itself.
func (m *Model) others() []*file {
	return append(slices.Collect(maps.Values(m.externals)), m.attached...)
}
