package remote

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/modelfile"
)

// Fetched is a model in a local folder.
type Fetched struct {
	Path  string   // of the model
	Files []*Info  // the model, and its external data
	Paths []string // of the files
}

// Size is the size of all files.
func (f *Fetched) Size() (n int64) {
	for _, info := range f.Files {
		n += info.Size
	}
	return n
}

// Fetch puts a model and its external data into a folder. With skeleton, it reads the structure alone: the files have their
// sizes, and holes where the contents of tensors are.
func (c *Client) Fetch(ctx context.Context, name, folder string, skeleton bool) (*Fetched, error) {
	f := fetch{Client: c, ctx: ctx, folder: folder}
	defer f.close()
	info, err := c.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if f.made.Path, err = f.add(info, Base(info.Name)); err != nil {
		return nil, err
	}
	locations, err := modelfile.Locations(f.objects[0], info.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Plain(name), err)
	}
	for _, location := range locations { // before anything large is read
		other, err := beside(info.Name, location)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Plain(name), err)
		}
		data, err := c.Stat(ctx, other)
		if err != nil {
			return nil, fmt.Errorf("%s: external data: %w", Plain(name), err)
		}
		if _, err := f.add(data, filepath.FromSlash(location)); err != nil {
			return nil, err
		}
	}
	if skeleton {
		return &f.made, nil
	}
	for _, o := range f.objects {
		if err := o.finish(); err != nil {
			return nil, err
		}
	}
	return &f.made, nil
}

// fetch is a model that is being fetched.
type fetch struct {
	*Client
	ctx     context.Context
	folder  string
	objects []*object
	made    Fetched
}

// add opens a file of the folder.
func (f *fetch) add(info *Info, name string) (path string, err error) {
	path = filepath.Join(f.folder, name)
	if slices.Contains(f.made.Paths, path) || strings.HasSuffix(name, partsSuffix) {
		return "", fmt.Errorf("%s: two files would have the name %s", info.Name, name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	o, err := f.openObject(f.ctx, info, path)
	if err != nil {
		return "", err
	}
	f.objects = append(f.objects, o)
	f.made.Files, f.made.Paths = append(f.made.Files, info), append(f.made.Paths, path)
	return path, nil
}

func (f *fetch) close() {
	for _, o := range f.objects {
		o.Close()
	}
}

// FolderFor returns the folder for the input of a conversion to out, beside it: an attempt that was stopped is found again.
func FolderFor(out string) string {
	return filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".~fetch")
}

// Unchanged reports whether the file that a conversion read, by its name of then, is the one that info's version has in its
// place: info is that of the model now.
func (c *Client) Unchanged(ctx context.Context, info *Info, name, tag string, size int64) (bool, error) {
	now := info
	if p, err := parse(name); err == nil && p.repository != "" {
		current, err := parse(info.Name)
		if err != nil || current.repository != p.repository {
			return false, nil
		}
		name = p.pinned(current.revision)
	}
	if name != info.Name {
		var err error
		if now, err = c.Stat(ctx, name); err != nil {
			return false, err
		}
	}
	return tag != "" && now.ETag == tag && now.Size == size, nil
}

// Local returns paths of models on this machine. Remote ones are put into a folder, which remove removes.
func Local(ctx context.Context, names []string, structure bool) (paths []string, remove func(), err error) {
	paths, remove = slices.Clone(names), func() {}
	if !slices.ContainsFunc(names, Is) {
		return paths, remove, nil
	}
	folder, err := os.MkdirTemp("", "onnxquant-fetch-*")
	if err != nil {
		return nil, remove, err
	}
	remove = func() { os.RemoveAll(folder) }
	client := New()
	for i, name := range names {
		if !Is(name) {
			continue
		}
		made, err := client.Fetch(ctx, name, filepath.Join(folder, strconv.Itoa(i)), structure)
		if err != nil {
			remove()
			return nil, remove, err
		}
		paths[i] = made.Path
	}
	return paths, remove, nil
}
