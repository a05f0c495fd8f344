package batch

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"onnxquant/internal/msg"
	"onnxquant/internal/remote"
	"onnxquant/onnxq/attest"
	"onnxquant/spec"
)

// outputs is where outputs and manifests go: a folder, or objects.
type outputs struct {
	folder string // the folder, or that in which files are made that become objects
	prefix string // of the names of objects, with / at its end; "": files
	client *remote.Client

	mu       sync.Mutex // of the object of the manifest
	mirrored int64      // bytes of the manifest that it has
}

// openOutputs opens the place that a user named. close removes what is temporary.
func openOutputs(name string, c *remote.Client) (o *outputs, err error) {
	o = &outputs{folder: name, client: c}
	if err := remote.CheckFolder(name); err != nil {
		return nil, err
	}
	if !remote.IsObject(name) {
		return o, nil
	}
	o.prefix = strings.TrimRight(name, "/") + "/"
	o.folder, err = os.MkdirTemp("", "onnxquant-batch-*")
	return o, err
}

func (o *outputs) close() {
	if o.prefix != "" {
		os.RemoveAll(o.folder)
	}
}

// path is where a file is made.
func (o *outputs) path(name string) string { return filepath.Join(o.folder, filepath.FromSlash(name)) }

// records reads the manifests of all shares.
func (o *outputs) records(ctx context.Context) (map[string]*Record, error) {
	if o.prefix == "" {
		return records(o.folder)
	}
	names, err := o.client.List(ctx, o.prefix+"manifest")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if base := path.Base(name); manifestName.MatchString(base) {
			if err := o.client.Get(ctx, name, o.path(base)); err != nil {
				return nil, err
			}
		}
	}
	return records(o.folder)
}

// dataFlag names external data.
const dataFlag = "--external-data-name="

// target asks the store about an output, before it is made. The options give its external data another name than those have that are
// there. It is nil for files.
func (o *outputs) target(ctx context.Context, out string, options []string) (*remote.Target, []string, error) {
	if o.prefix == "" {
		return nil, options, nil
	}
	wanted := ""
	for _, word := range options {
		if name, ok := strings.CutPrefix(word, dataFlag); ok {
			wanted = name
		}
	}
	t, err := o.client.Target(ctx, o.prefix+out, wanted)
	if err == nil && t.Data != wanted && !slices.Contains(options, "--external-data="+string(spec.ExternalNever)) {
		options = append(slices.Clone(options), dataFlag+t.Data)
	}
	return t, options, err
}

// publish writes the files of an output, the model first, to objects, and notes their versions. The model comes last.
func (o *outputs) publish(ctx context.Context, t *remote.Target, files []attest.File) error {
	if t == nil {
		return nil
	}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = o.path(f.Path)
		defer os.Remove(paths[i])
	}
	written, err := t.Publish(ctx, paths)
	if err != nil {
		return err
	}
	for i := range files {
		files[i].ETag = written[i].ETag
	}
	return nil
}

// mirror writes the manifest to its object, unless that has its first end bytes. Records that are added while others
// write it go there together.
func (o *outputs) mirror(ctx context.Context, name string, end int64) error {
	if o.prefix == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mirrored >= end {
		return nil
	}
	info, err := o.client.Put(ctx, o.prefix+name, o.path(name))
	if err == nil {
		o.mirrored = info.Size
	}
	return err
}

// has reports whether a file is as it was written.
func (o *outputs) has(ctx context.Context, f *attest.File) (bool, error) {
	if o.prefix == "" {
		return isUnchanged(o.path(f.Path), f), nil
	}
	info, err := o.client.Stat(ctx, o.prefix+f.Path)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && f.ETag != "" && info.ETag == f.ETag && info.Size == f.Bytes, nil // otherwise the job fails, by name
}

// remove removes a file that is as it was written.
func (o *outputs) remove(ctx context.Context, f *attest.File) {
	switch same, err := o.has(ctx, f); {
	case err != nil || !same || !filepath.IsLocal(f.Path):
	case o.prefix == "":
		os.Remove(o.path(f.Path))
	default:
		o.client.Delete(ctx, o.prefix+f.Path)
	}
}

// name is the name of a file for messages.
func (o *outputs) name(file string) string {
	if o.prefix != "" {
		return o.prefix + file
	}
	return o.path(file)
}

// makeFolder makes the folder for a file.
func (o *outputs) makeFolder(file string) error {
	folder := filepath.Dir(o.path(file))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("%s: %w", folder, msg.Cause(err))
	}
	return nil
}
