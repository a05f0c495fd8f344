package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/msg"
)

// finish gives f the permissions of other (if not nil), syncs and closes it.
func finish(f *os.File, other fs.FileInfo) error {
	var err error
	if other != nil {
		err = setMode(f, other.Mode())
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Flush begins to sync the written files, which are complete. They can be read meanwhile. Commit
// waits for the end.
func (t *Target) Flush() {
	files := t.files()
	t.flushed = make(chan error, 1)
	go func() {
		var err error
		for _, f := range files {
			err = errors.Join(err, f.Sync())
		}
		t.flushed <- err
	}()
}

// flush waits for Flush and returns its error, which the system reports only once. If ctx ends first,
// it returns the error of ctx.
func (t *Target) flush(ctx context.Context) error {
	if ctx.Err() != nil { // the files are not wanted, even if they are synced already: see drop
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
	case err := <-t.flushed:
		t.flushed = nil
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTarget, msg.Cause(err))
		}
	}
	return context.Cause(ctx)
}

// drop ends Flush for files that will be removed: data not yet on the disk need not get there.
func (t *Target) drop() {
	if t.flushed == nil {
		return
	}
	for _, f := range t.files() {
		f.Truncate(0)
	}
	<-t.flushed
	t.flushed = nil
}

// step is called before each change that Commit makes. Tests replace it to stop
// there.
var step = func() error { return nil }

// Commit syncs the files and puts them in place. After an error, the target is the complete old model
// or the complete new one. If ctx ends before the files are synced, it is the old one.
//
// If the model in place has external data, several files must be replaced, but only one can be renamed
// at a time. So Commit
//
//  1. puts an interim model in place, which refers to the temporary data files,
//  2. renames the data files to their final names,
//  3. puts the final model in place.
//
// The interim model is a copy of the final one; relocate rewrites its structure with the names of the
// temporary data files, which have the same lengths.
//
// In step 2 both models need each data file, under two names. A small file is copied. A large file
// gets a second hard link until the final model is in place; the onnx package refuses to read such a
// file.
func (t *Target) Commit(ctx context.Context, relocate func(w io.WriterAt, locations []string) error) error {
	defer t.Abort()
	if t.flushed == nil {
		t.Flush()
	}
	if err := t.flush(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	if err := t.commit(relocate); err != nil {
		return fmt.Errorf("%s: %w: %w", t.path, ErrTarget, msg.Cause(err))
	}
	return nil
}

func (t *Target) commit(relocate func(w io.WriterAt, locations []string) error) error {
	if err := finish(t.Model, t.site.model); err != nil {
		return err
	}
	replaces := false
	for i, f := range t.Data {
		if err := finish(f, t.site.data[i]); err != nil {
			return err
		}
		replaces = replaces || t.site.data[i] != nil
	}
	var err error
	switch {
	case replaces:
		err = t.exchange(relocate)
	case len(t.Data) > 0:
		err = t.putPair()
	default:
		err = t.putModel()
	}
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(filepath.Dir(t.path)), step())
}

// putModel puts a model without external data in place. The data files of the model
// it replaces become garbage.
func (t *Target) putModel() error {
	if len(t.site.old) > 0 {
		if err := t.claim(); err != nil {
			return err
		}
	}
	return t.rename(t.Model.Name(), t.path)
}

// dataFile returns the path of a data file.
func (t *Target) dataFile(i int) string { return filepath.Join(filepath.Dir(t.path), t.names[i]) }

// putPair puts model and data in place where there is no data file yet.
func (t *Target) putPair() error {
	for i, name := range t.names {
		if fileExists(t.dataFile(i)) {
			return fmt.Errorf("another program or conversion created %s meanwhile", name)
		}
	}
	if err := t.claim(); err != nil {
		return err
	}
	for i, f := range t.Data {
		if err := t.rename(f.Name(), t.dataFile(i)); err != nil {
			return err
		}
	}
	return t.rename(t.Model.Name(), t.path)
}

// exchange replaces an existing model with its data.
func (t *Target) exchange(relocate func(w io.WriterAt, locations []string) error) error {
	for i, name := range t.names {
		if t.site.data[i] == nil && fileExists(t.dataFile(i)) {
			return fmt.Errorf("another program or conversion created %s meanwhile", name)
		}
	}
	interim := strings.TrimSuffix(t.Model.Name(), modelSuffix) + interimSuffix
	if err := t.writeInterim(interim, relocate); err != nil {
		return err
	}
	if err := t.copySmall(); err != nil {
		return err
	}
	if err := t.claim(); err != nil {
		return err
	}
	t.interim = true
	if err := t.rename(interim, t.path); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(t.path)); err != nil {
		return err
	}
	old := make([]string, len(t.names))
	for i := range t.names {
		old[i] = t.dataFile(i)
	}
	defer holdOpen(old)() // freeing their contents may take longer than all that follows
	for i := range t.Data {
		if err := t.linkLarge(i); err != nil {
			return err
		}
		if err := t.rename(t.second(i), t.dataFile(i)); err != nil {
			return err
		}
	}
	if err := t.rename(t.Model.Name(), t.path); err != nil {
		return err
	}
	for _, f := range t.Data {
		if err := step(); err != nil {
			return err
		}
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	return nil
}

// claim writes to the journal that the data files are ours, even if the model in
// place does not refer to them. If this process dies, the next one may remove them.
func (t *Target) claim() error {
	if err := step(); err != nil {
		return err
	}
	err := t.note(journalData, slices.Concat(t.names, t.site.old))
	return errors.Join(err, t.lock.Sync(), syncFolder(filepath.Dir(t.path)))
}

func (t *Target) rename(from, to string) error {
	if err := step(); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// writeInterim writes the interim model, see Commit.
func (t *Target) writeInterim(name string, relocate func(w io.WriterAt, locations []string) error) error {
	if err := step(); err != nil {
		return err
	}
	locations := make([]string, len(t.Data))
	for i, data := range t.Data {
		if locations[i] = filepath.Base(data.Name()); len(locations[i]) != len(t.names[i]) {
			return fmt.Errorf("the name %s of the temporary data file has another length than the final one", locations[i])
		}
	}
	f, err := copyFile(t.Model.Name(), name, t.site.model)
	if err != nil {
		return err
	}
	return errors.Join(relocate(f, locations), finish(f, t.site.model))
}

// second returns the path of the second one of a data file, see exchange.
func (t *Target) second(i int) string { return t.Data[i].Name() + secondSuffix }

// mostCopied is the size, all together, up to which data files are copied in an exchange. It bounds
// the time and the disk space that this takes. Tests change it.
var mostCopied int64 = 256 << 20

// copySmall copies the temporary data files, unless they are large or there is no space.
func (t *Target) copySmall() error {
	size := int64(0)
	for _, f := range t.Data {
		info, err := os.Stat(f.Name())
		if err != nil {
			return err
		}
		size += info.Size()
	}
	if size > mostCopied {
		return nil
	}
	for i := range t.Data {
		if err := step(); err != nil {
			return err
		}
		if t.copyData(i) != nil {
			os.Remove(t.second(i)) // linkLarge makes another one
		}
	}
	return nil
}

// linkLarge gives a temporary data file that was not copied a second name. Where the file
// system has no hard links, it copies the file.
func (t *Target) linkLarge(i int) error {
	if fileExists(t.second(i)) {
		return nil
	}
	if err := step(); err != nil {
		return err
	}
	if os.Link(t.Data[i].Name(), t.second(i)) == nil {
		return nil
	}
	return t.copyData(i)
}

func (t *Target) copyData(i int) error {
	f, err := copyFile(t.Data[i].Name(), t.second(i), t.site.data[i])
	if err != nil {
		return err
	}
	return finish(f, t.site.data[i])
}

// copyFile copies a file to one that does not exist yet.
func copyFile(from, to string, like fs.FileInfo) (*os.File, error) {
	src, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	dst, err := createLike(to, like, fs.ModePerm)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return nil, err
	}
	return dst, nil
}

// Exists reports whether there is a file at path, which a commit then replaces.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
