package commit

import (
	"io"

	"onnxquant/internal/modelfile"
)

// Reader reads the written files.
type Reader struct {
	Model     io.ReaderAt
	ModelSize int64
	Data      []io.ReaderAt // of the external data files
	DataSizes []int64

	files []*modelfile.File
}

// Reopen opens the written files. The caller closes the reader.
func (t *Target) Reopen() (*Reader, error) {
	r := &Reader{}
	for _, written := range t.files() {
		f, err := modelfile.OpenFile(written.Name())
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files = append(r.files, f)
		if written == t.Model {
			r.Model, r.ModelSize = f, f.Size
		} else {
			r.Data, r.DataSizes = append(r.Data, f), append(r.DataSizes, f.Size)
		}
	}
	return r, nil
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range r.files {
		f.Close()
	}
}
