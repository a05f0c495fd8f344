package attest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
)

// File identifies a file by its content.
type File struct {
	Path     string    `json:"path"`
	Bytes    int64     `json:"bytes"`
	SHA256   string    `json:"sha256"`         // of the whole content, in hexadecimal
	Modified time.Time `json:"modified"`       // when the file system says that it was written
	ETag     string    `json:"etag,omitempty"` // of a remote file: what its server calls this version
}

// hashed is how many bytes are hashed before the context is asked again.
const hashed = 16 << 20

// Hash reads a file. It must not change meanwhile.
func Hash(ctx context.Context, path string) (File, error) {
	f, _, err := regularfile.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, msg.Cause(err))
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	h := sha256.New()
	for {
		if ctx.Err() != nil {
			return File{}, context.Cause(ctx)
		}
		_, err := io.CopyN(h, f, hashed)
		if err == io.EOF {
			break
		}
		if err != nil {
			return File{}, fmt.Errorf("%s: %w", path, msg.Cause(err))
		}
	}
	after, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return File{}, fmt.Errorf("%s: the file changed while it was read", path)
	}
	return File{Path: path, Bytes: after.Size(), SHA256: hex.EncodeToString(h.Sum(nil)), Modified: after.ModTime().UTC()}, nil
}

// HashAll reads files.
func HashAll(ctx context.Context, paths []string) ([]File, error) {
	files := make([]File, 0, len(paths))
	for _, path := range paths {
		f, err := Hash(ctx, path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ModelFiles lists a model's file and its external data. A model that cannot be read has one file.
func ModelFiles(path string) []string {
	m, err := modelfile.Open(path)
	if err != nil {
		return []string{path}
	}
	defer m.Close()
	files := []string{path}
	for name := range m.Externals() {
		files = append(files, filepath.Join(filepath.Dir(path), filepath.FromSlash(name)))
	}
	slices.Sort(files[1:])
	return files
}

// DataFiles lists files, and the files of folders, in an order that does not depend on the system.
func DataFiles(paths []string) (files []string, err error) {
	for _, root := range paths {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			files = append(files, root)
			continue
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Before is a file as it was before a conversion.
type Before struct {
	path string
	info os.FileInfo // nil: it was not there
}

// AsBefore notes files before anything of them is read. One that is not there fails later, by name.
func AsBefore(paths []string) (files []Before) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		files = append(files, Before{path, info})
	}
	return files
}

// HashSame reads files, and fails if one is not what it was before.
func HashSame(ctx context.Context, files []Before) (hashed []File, err error) {
	for _, was := range files {
		file, err := Hash(ctx, was.path)
		if err != nil {
			return nil, err
		}
		now, err := os.Stat(was.path)
		if err != nil {
			return nil, err
		}
		if was.info == nil || file.Bytes != was.info.Size() || !file.Modified.Equal(was.info.ModTime()) || !os.SameFile(was.info, now) {
			return nil, fmt.Errorf("%s: the file changed while the model was converted; the output has no statement", was.path)
		}
		hashed = append(hashed, file)
	}
	return hashed, nil
}
