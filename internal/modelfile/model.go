package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Model is an opened model file.
type Model struct {
	Proto *onnxpb.ModelProto // the structure, without contents of tensors

	file      *File
	root      *os.Root // the model's folder
	externals map[string]*File
	attached  []*File // see Attach
	pieces    []*piece
	payloads  map[*onnxpb.TensorProto]*Payload // without tensors whose raw_data is in the structure
}

// Folder is the folder of the model file.
func (m *Model) Folder() string { return m.root.Name() }

// Open reads the structure of the model file at name and opens its external
// files. It checks that the content of every tensor exists and has the size
// given by its type and dimensions.
func Open(name string) (*Model, error) {
	m := &Model{externals: map[string]*File{}}
	if err := m.read(name); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m *Model) read(name string) (err error) {
	if m.file, err = OpenFile(name); err != nil {
		if err == errFolder {
			return notFolder(name)
		}
		return err
	}
	if m.file.Size == 0 {
		return fmt.Errorf("%w: it is empty", ErrFormat)
	}
	if m.root, err = os.OpenRoot(filepath.Dir(name)); err != nil {
		return msg.Cause(err)
	}
	m.Proto = &onnxpb.ModelProto{}
	if m.pieces, err = cut(m.file, m.file.Size, m.Proto); err != nil {
		return explain(err, m.file)
	}
	m.payloads = map[*onnxpb.TensorProto]*Payload{}
	for where, t := range Tensors(m.Proto) {
		p, err := m.resolve(t)
		if err != nil {
			return fmt.Errorf("%w %s: %w", ErrTensor, where, err)
		}
		if t.RawData == nil {
			m.payloads[t] = p
		}
	}
	return nil
}

// notFolder says what to open in place of a folder.
func notFolder(name string) error {
	models, _ := fs.Glob(os.DirFS(name), "*.onnx")
	switch len(models) {
	case 0:
		return errors.New("it is a folder, and no .onnx file is in it; want a model")
	case 1:
		return fmt.Errorf("it is a folder; want the model in it, %s", filepath.Join(name, models[0]))
	}
	return fmt.Errorf("it is a folder; want one of the %d models in it, such as %s", len(models), filepath.Join(name, models[0]))
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

// Path returns the name of the model's file, or "" if contents were replaced, so that no file has the
// model as it is.
func (m *Model) Path() string {
	for _, p := range m.payloads {
		if p != nil && p.replaced {
			return ""
		}
	}
	return m.file.Name()
}

// Size returns the bytes of the model file and its external files.
func (m *Model) Size() int64 {
	n := m.file.Size
	for _, f := range m.externals {
		if !os.SameFile(f.info, m.file.info) {
			n += f.Size
		}
	}
	return n
}

// Unchanged returns an error if the size or modification time of one of the
// model's files has changed since it was opened. Then the contents read may be a
// mixture of old and new.
func (m *Model) Unchanged() error {
	for _, f := range append(m.others(), m.file) {
		now, err := f.Stat()
		if err != nil {
			return err
		}
		if now.Size() != f.Size || !now.ModTime().Equal(f.info.ModTime()) {
			return fmt.Errorf("%s: it was changed while it was read; try again", f.Name())
		}
	}
	return nil
}

// Externals returns the sizes of the external files by their names.
func (m *Model) Externals() map[string]int64 {
	sizes := map[string]int64{}
	for name, f := range m.externals {
		sizes[name] = f.Size
	}
	return sizes
}

// FileSize returns the bytes of the model file alone.
func (m *Model) FileSize() int64 { return m.file.Size }

// Refers reports whether a tensor of the model is in the external file of that name.
func (m *Model) Refers(name string) bool { return m.externals[name] != nil }

// Uses reports whether info is one of the model's files.
func (m *Model) Uses(info fs.FileInfo) bool {
	return slices.ContainsFunc(append(m.others(), m.file), func(f *File) bool { return os.SameFile(info, f.info) })
}

// Mode returns the permissions that all of the model's files give.
func (m *Model) Mode() fs.FileMode {
	mode := fs.ModePerm
	for _, f := range append(m.others(), m.file) {
		mode &= f.info.Mode().Perm()
	}
	return mode
}

// others lists the external data files of the model.
func (m *Model) others() []*File {
	return append(slices.Collect(maps.Values(m.externals)), m.attached...)
}
