package modelfile

import (
	"os"
	"path"
	"path/filepath"

	"onnxquant/internal/regularfile"
)

// CacheBlobs returns the folder of contents (blobs) of the download cache that contains folder; "" if
// folder is not in one. The files of a model in such a cache are links:
//
//	models--owner--name/snapshots/<revision>/onnx/model.onnx → ../../../blobs/<hash>
func CacheBlobs(folder string) string {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return ""
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return ""
	}
	for dir != filepath.Dir(dir) {
		above := filepath.Dir(dir)
		if filepath.Base(above) == "snapshots" {
			blobs := filepath.Join(filepath.Dir(above), "blobs")
			if info, err := os.Lstat(blobs); err == nil && info.IsDir() {
				return blobs
			}
		}
		dir = above
	}
	return ""
}

// openInCache opens a file below the model's folder if it is a link to the blobs of the download cache
// that contains the folder. Otherwise it returns nil.
func (m *Model) openInCache(name string) *os.File {
	folder := filepath.Join(m.root.Name(), filepath.FromSlash(path.Dir(name)))
	blobs := CacheBlobs(folder)
	if blobs == "" {
		return nil
	}
	link, err := m.root.Readlink(name)
	if err != nil || filepath.IsAbs(link) {
		return nil
	}
	where, err := filepath.Abs(filepath.Join(folder, filepath.Dir(link)))
	if err == nil {
		where, err = filepath.EvalSymlinks(where)
	}
	if err != nil || where != blobs {
		return nil
	}
	root, err := os.OpenRoot(blobs)
	if err != nil {
		return nil
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(link), os.O_RDONLY|regularfile.Nonblock, 0)
	if err != nil {
		return nil
	}
	return f
}
