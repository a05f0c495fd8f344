package modelfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrTarget is wrapped by errors about an output that cannot be written.
var ErrTarget = errors.New("cannot write there")

// Target is a model file that is being written, and its external data file if it
// has one. The target is locked against other conversions. Everything is written
// to temporary files beside it; Commit puts them in place, Abort removes them.
//
// At any moment, also after a crash, the target is the complete old model or the
// complete new one. If a crash leaves temporary files, the next conversion to the
// same target removes them.
type Target struct {
	path string // symbolic links resolved
	in   *Model
	site *site // before anything was written
	lock *os.File

	Model *os.File
	Data  *os.File // nil without external data

	interim bool // the model in place may refer to Data, see Commit
}

// DataPath returns the external data file of the model file at path. If path is a
// symbolic link, it is the data file of the link's target.
func DataPath(path string) string {
	if real, err := follow(path); err == nil {
		path = real
	}
	return dataPath(path)
}

// CheckTarget checks, without writing, whether a model made from in may be written
// to path. It refuses to overwrite a file of in, and to overwrite an external data
// file that does not belong to the replaced model.
//
// If path is a symbolic link, its target is replaced or created. A model with
// external data cannot be written through a link from another folder, because
// runtimes look for the data beside the link.
func CheckTarget(path string, in *Model, external bool) error {
	_, _, err := inspect(path, in, external)
	return err
}

// inspect checks a target and resolves its symbolic links.
func inspect(path string, in *Model, external bool) (real string, s *site, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w: %w", path, ErrTarget, plain(err))
		}
	}()
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return "", nil, errNotRegular // a link such as /dev/stdout may lead to what has no path
	}
	if real, err = follow(path); err != nil {
		return "", nil, err
	}
	if s, err = survey(real, in); err != nil {
		return "", nil, err
	}
	if external {
		err = s.dataErr
		if err == nil {
			err = checkPair(path, real)
		}
	}
	return real, s, err
}

// checkPair checks that a model loaded from path finds external data beside real,
// the target of the symbolic link path.
func checkPair(path, real string) error {
	if err := checkLocation(filepath.Base(dataPath(real))); err != nil {
		return fmt.Errorf("a model of that name cannot have external data: %w", err)
	}
	there, err := os.Stat(filepath.Dir(real))
	if err != nil {
		return err
	}
	if here, err := os.Stat(filepath.Dir(path)); err != nil || !os.SameFile(here, there) {
		return fmt.Errorf("it is a symbolic link to another folder, and runtimes look for external data beside the link; choose %s itself", real)
	}
	return nil
}

// CreateTarget begins a model file at path, made from the model in, if CheckTarget
// allows it. It keeps the permissions of a replaced file. If another conversion is
// writing to path, it waits for that to end.
func CreateTarget(ctx context.Context, path string, in *Model, external bool) (*Target, error) {
	real, _, err := inspect(path, in, external)
	if err != nil && !errors.Is(err, errNotOurs) { // begin checks that again, with the lock
		return nil, err // before anything is written
	}
	t := &Target{path: real, in: in}
	t.lock, err = lock(ctx, real)
	if ctx.Err() != nil {
		t.Abort()
		return nil, fmt.Errorf("%s: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, err)
	}
	if err := t.begin(path, external); err != nil {
		t.Abort()
		return nil, err
	}
	return t, nil
}

// begin prepares a target that is locked.
func (t *Target) begin(path string, external bool) (err error) {
	t.clean() // frees disk space; an error does not matter here
	if _, t.site, err = inspect(path, t.in, external); err != nil {
		return err
	}
	if err := t.create(external); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrTarget, plain(err))
	}
	return nil
}

func (t *Target) create(external bool) (err error) {
	name := t.path + ".~" + rand.Text()[:3]
	for fileExists(name) { // it belongs to the model in place
		name = t.path + ".~" + rand.Text()[:3]
	}
	if t.Model, err = createLike(name+modelSuffix, t.site.model); err != nil {
		return err
	}
	if external {
		t.Data, err = createLike(name, t.site.data)
	}
	return err
}

func fileExists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// createLike creates a file with the permissions and the owner of other, if there is one,
// writable for its owner. Who may not give files away keeps them.
func createLike(name string, other fs.FileInfo) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil || other == nil {
		return f, err
	}
	setOwner(f, other)
	if err := setMode(f, other.Mode()|0o600); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setMode changes the permissions of a file only if they differ: some file systems
// cannot change them.
func setMode(f *os.File, mode fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == mode.Perm() {
		return err
	}
	return f.Chmod(mode.Perm())
}

// finish sets the permissions of other, if there is one, syncs and closes.
func finish(f *os.File, other fs.FileInfo) error {
	var err error
	if other != nil {
		err = setMode(f, other.Mode())
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Reader reads the written files.
type Reader struct {
	Model, Data         io.ReaderAt // Data is nil without external data
	ModelSize, DataSize int64

	files []*file
}

// Reopen opens the written files. The caller closes the reader.
func (t *Target) Reopen() (*Reader, error) {
	r := &Reader{}
	for _, written := range []*os.File{t.Model, t.Data} {
		if written == nil {
			continue
		}
		f, err := regular(os.Open(written.Name()))
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files = append(r.files, f)
		if written == t.Model {
			r.Model, r.ModelSize = f, f.size
		} else {
			r.Data, r.DataSize = f, f.size
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

// Abort removes the temporary files and unlocks the target. After Commit it does
// nothing.
func (t *Target) Abort() {
	if t.lock == nil {
		return
	}
	t.close()
	t.discard()
	if t.clean() == nil {
		removeLocked(t.lock)
	} else {
		t.lock.Close() // keep the lock file: the next conversion needs its content
	}
	t.lock, t.Model, t.Data = nil, nil, nil
}

// close closes the written files. Windows does not rename or remove open files.
func (t *Target) close() {
	for _, f := range []*os.File{t.Model, t.Data} {
		if f != nil {
			f.Close()
		}
	}
}

// discard removes the temporary files of this conversion, also if the model in place cannot
// be read: only an interim model refers to them.
func (t *Target) discard() {
	if t.Model != nil {
		os.Remove(t.Model.Name())
	}
	if t.Data != nil && !t.interim {
		os.Remove(t.Data.Name())
	}
}

// clean removes files that the model in place does not need: temporary files, and an
// external data file of ours. It keeps files of the input.
func (t *Target) clean() error {
	s, err := survey(t.path, t.in)
	if err != nil {
		return err
	}
	for _, name := range s.garbage {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}
	if err != nil {
		return err
	}
	return t.lock.Truncate(0)
}

// step is called before each change that Commit makes. Tests replace it to stop
// there.
var step = func() error { return nil }

// Commit syncs the files and puts them in place. After an error, the target is
// the old model or the new one.
//
// If the model in place has external data, two files must be replaced, but only one
// can be renamed at a time. So Commit
//
//  1. puts an interim model in place, which refers to the temporary data file,
//  2. renames the data file to its final name,
//  3. puts the final model in place.
//
// The interim model is a copy of the final one; relocate writes its structure again
// with the name of the temporary data file, which has the same length.
func (t *Target) Commit(relocate func(w io.WriterAt, location string) error) error {
	defer t.Abort()
	if err := t.commit(relocate); err != nil {
		return fmt.Errorf("%s: %w: %w", t.path, ErrTarget, plain(err))
	}
	return nil
}

func (t *Target) commit(relocate func(w io.WriterAt, location string) error) error {
	if err := finish(t.Model, t.site.model); err != nil {
		return err
	}
	if t.Data != nil {
		if err := finish(t.Data, t.site.data); err != nil {
			return err
		}
	}
	var err error
	switch {
	case t.Data != nil && t.site.data != nil:
		err = t.exchange(relocate)
	case t.Data != nil:
		err = t.putPair()
	default:
		err = t.putModel()
	}
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(filepath.Dir(t.path)), step())
}

// putModel puts a model without external data in place. The data file of the model
// it replaces becomes garbage.
func (t *Target) putModel() error {
	if t.site.data != nil {
		if err := t.claim(); err != nil {
			return err
		}
	}
	return t.rename(t.Model.Name(), t.path)
}

// putPair puts model and data in place where there is no data file yet.
func (t *Target) putPair() error {
	data := dataPath(t.path)
	if fileExists(data) {
		return fmt.Errorf("another program created %s meanwhile", filepath.Base(data))
	}
	if err := t.claim(); err != nil {
		return err
	}
	if err := t.rename(t.Data.Name(), data); err != nil {
		return err
	}
	return t.rename(t.Model.Name(), t.path)
}

// exchange replaces an existing pair.
func (t *Target) exchange(relocate func(w io.WriterAt, location string) error) error {
	temporary := t.Data.Name()
	interim := temporary + interimSuffix
	if err := t.writeInterim(interim, relocate); err != nil {
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
	second := temporary + secondSuffix
	if err := t.linkOrCopy(second); err != nil {
		return err
	}
	if err := t.rename(second, dataPath(t.path)); err != nil {
		return err
	}
	if err := t.rename(t.Model.Name(), t.path); err != nil {
		return err
	}
	if err := step(); err != nil {
		return err
	}
	return os.Remove(temporary)
}

// claim writes to the lock file that the data file is ours, even if the model in
// place does not refer to it. If this process dies, the next one may remove it.
func (t *Target) claim() error {
	if err := step(); err != nil {
		return err
	}
	_, err := t.lock.WriteAt([]byte("The external data file is this program's, to be replaced or removed.\n"), 0)
	return errors.Join(err, t.lock.Sync(), syncFolder(filepath.Dir(t.path)))
}

func (t *Target) rename(from, to string) error {
	if err := step(); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// writeInterim writes the interim model, see Commit.
func (t *Target) writeInterim(name string, relocate func(w io.WriterAt, location string) error) error {
	if err := step(); err != nil {
		return err
	}
	location := filepath.Base(t.Data.Name())
	if len(location) != len(filepath.Base(dataPath(t.path))) {
		return fmt.Errorf("the name %s of the temporary data file has another length than the final one", location)
	}
	f, err := copyFile(t.Model.Name(), name, t.site.model)
	if err != nil {
		return err
	}
	return errors.Join(relocate(f, location), finish(f, t.site.model))
}

// linkOrCopy gives the temporary data file a second name, or copies it where the
// file system has no hard links.
func (t *Target) linkOrCopy(second string) error {
	if err := step(); err != nil {
		return err
	}
	if os.Link(t.Data.Name(), second) == nil {
		return nil
	}
	f, err := copyFile(t.Data.Name(), second, t.site.data)
	if err != nil {
		return err
	}
	return finish(f, t.site.data)
}

// copyFile copies a file to one that does not exist yet.
func copyFile(from, to string, like fs.FileInfo) (*os.File, error) {
	src, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	dst, err := createLike(to, like)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return nil, err
	}
	return dst, nil
}
