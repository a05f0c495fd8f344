package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"time"
)

// file is a file of an archive.
type file struct {
	name       string
	data       []byte
	executable bool
}

func (f file) mode() os.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// binaries returns the programs in a folder as files in another one.
func binaries(p platform, folder, as string) ([]file, error) {
	var files []file
	for _, program := range programs {
		data, err := os.ReadFile(filepath.Join(folder, p.exe(program)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{as + p.exe(program), data, true})
	}
	return files, nil
}

// documents returns what is read beside a program.
func (r *release) documents(as string) ([]file, error) {
	var files []file
	for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "docs/licenses.md"} {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{as + filepath.Base(name), data, false})
	}
	return files, nil
}

// writeArchive packs the programs.
func (r *release) writeArchive(p platform, folder string) error {
	return r.archive(p, folder, "", nil)
}

// archive packs the programs and more files, for Windows as .zip, else as .tar.gz.
func (r *release) archive(p platform, folder, suffix string, more []file) error {
	name := "onnxquant-" + r.version + "-" + p.os + "-" + p.arch + suffix
	files, err := binaries(p, folder, name+"/")
	if err != nil {
		return err
	}
	documents, err := r.documents(name + "/")
	if err != nil {
		return err
	}
	files = append(files, documents...)
	pages, err := r.pageFiles()
	if err != nil {
		return err
	}
	for _, page := range pages {
		files = append(files, file{name + "/" + page.name, page.data, false})
	}
	for _, f := range more {
		files = append(files, file{name + "/" + f.name, f.data, f.executable})
	}
	return r.pack(p, name, files)
}

// pack writes files as an archive of a name without its ending.
func (r *release) pack(p platform, name string, files []file) error {
	if p.os == "windows" {
		data, err := zipped(files, r.time)
		if err != nil {
			return err
		}
		return r.write(name+".zip", data)
	}
	data, err := tarred(files, r.time)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", data)
}

func tarred(files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode()), Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode())
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(f.data)); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
