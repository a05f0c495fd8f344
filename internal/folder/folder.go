// Package folder converts the models of a folder, and copies its other files.
//
// A folder may be an export for Hugging Face or onnxruntime-genai, a snapshot of a download cache, or
// a set of models:
//
//	f, err := folder.Scan("export")
//	for _, model := range f.Models { … } // onnx/decoder.onnx, onnx/encoder.onnx
//
// A [Job] gets such a folder, a preset, and a function that returns the options of each output. It
// writes a new folder, which appears complete or not at all, and returns a [Summary].
package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
)

// Folder lists the files of a folder. Names are relative to it, with /.
type Folder struct {
	Path     string
	Models   []string            // model files
	Data     map[string][]string // files of external data, by model
	Others   []string            // all other files
	Problems []string            // files that are left out, with the reason

	alone bool // it is a model, see Alone
}

// Alone is a model as if it were alone in a folder.
func Alone(model string) *Folder {
	f := &Folder{Path: filepath.Dir(model), Models: []string{filepath.Base(model)}, Data: map[string][]string{}, alone: true}
	f.findData()
	return f
}

// maxFiles is the largest number of files in a folder.
const maxFiles = 100_000

// Scan lists the files of a folder, except in folders of tools such as .git and .cache. It follows
// symbolic links to regular files in the folder, and to the contents of the download cache that
// contains the folder.
func Scan(path string) (*Folder, error) {
	f := &Folder{Path: path, Data: map[string][]string{}}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, err
	}
	if snapshot := aSnapshot(real); snapshot != "" {
		return nil, fmt.Errorf("%s: it is in a download cache; choose one of its snapshots: %s", path, filepath.Join(path, snapshot))
	}
	blobs, seen := modelfile.CacheBlobs(real), 0
	err = filepath.WalkDir(real, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != real && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if seen++; seen > maxFiles {
			return fmt.Errorf("%s: more than %d files", path, maxFiles)
		}
		name, err := filepath.Rel(real, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch why := unfit(file, real, blobs, d); {
		case why != "":
			f.Problems = append(f.Problems, name+": "+why)
		case strings.EqualFold(filepath.Ext(name), ".onnx"):
			f.Models = append(f.Models, name)
		default:
			f.Others = append(f.Others, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(f.Models)
	f.findData()
	return f, nil
}

// aSnapshot returns the name of a snapshot, if folder is a model's folder of a download cache.
func aSnapshot(folder string) string {
	if info, err := os.Stat(filepath.Join(folder, "blobs")); err != nil || !info.IsDir() {
		return ""
	}
	all, _ := os.ReadDir(filepath.Join(folder, "snapshots"))
	if len(all) == 0 {
		return ""
	}
	return filepath.Join("snapshots", all[0].Name())
}

// unfit says why a file is left out, or "".
func unfit(file, folder, blobs string, d fs.DirEntry) string {
	if d.Type().IsRegular() {
		return ""
	}
	if d.Type()&fs.ModeSymlink == 0 {
		return "not a regular file"
	}
	to, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "a symbolic link that leads nowhere"
	}
	if !below(to, folder) && (blobs == "" || !below(to, blobs)) {
		return "a symbolic link leads out of the folder, and not to the blobs of a download cache"
	}
	if info, err := os.Stat(to); err != nil || !info.Mode().IsRegular() {
		return "a symbolic link to something else than a file"
	}
	return ""
}

func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// findData moves external data files from Others to their models. It skips models that cannot be
// opened; converting them fails later, by name.
func (f *Folder) findData() {
	owned := map[string]bool{}
	for _, name := range f.Models {
		m, err := modelfile.Open(f.File(name))
		if err != nil {
			continue
		}
		for location := range m.Externals() {
			data := filepath.ToSlash(filepath.Join(filepath.Dir(name), location))
			f.Data[name] = append(f.Data[name], data)
			owned[data] = true
		}
		m.Close()
		slices.Sort(f.Data[name])
	}
	f.Others = slices.DeleteFunc(f.Others, func(name string) bool { return owned[name] })
}

// File returns the path of a file.
func (f *Folder) File(name string) string { return filepath.Join(f.Path, filepath.FromSlash(name)) }

// ModelType returns the model_type of config.json, or "".
func (f *Folder) ModelType() string {
	var config struct {
		ModelType string `json:"model_type"`
	}
	text, err := os.ReadFile(f.File("config.json"))
	if err != nil || json.Unmarshal(text, &config) != nil {
		return ""
	}
	return config.ModelType
}

// Copy copies a file to the path target, or links it if link is set and the file system can do it.
func (f *Folder) Copy(ctx context.Context, name, target string, link bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
		return err
	}
	source, err := filepath.EvalSymlinks(f.File(name))
	if err != nil {
		return err
	}
	if link && os.Link(source, target) == nil {
		return nil
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	w, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666&(info.Mode().Perm()|0o600))
	if err != nil {
		return err
	}
	err = copyContent(ctx, w, from)
	return errors.Join(err, w.Close())
}

// restrict takes from the folder at path the permissions that f does not give. Files that anyone may read
// can be in a folder that nobody may enter.
func (f *Folder) restrict(path string) error {
	if f.alone {
		return nil
	}
	source, err := os.Stat(f.Path)
	if err != nil {
		return err
	}
	made, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := made.Mode().Perm() & (source.Mode().Perm() | 0o700); mode != made.Mode().Perm() {
		return os.Chmod(path, mode)
	}
	return nil
}

// copied is how much is copied at a time: an interrupt waits for no more.
const copied = 64 << 20

// copyContent copies a file until ctx ends, and syncs it.
func copyContent(ctx context.Context, w, from *os.File) error {
	for at := int64(0); ctx.Err() == nil; {
		n, err := io.CopyN(w, from, copied)
		if err == io.EOF {
			return w.Sync()
		}
		if err != nil {
			return err
		}
		commit.WriteBack(w, at, n)
		at += n
	}
	return context.Cause(ctx)
}
