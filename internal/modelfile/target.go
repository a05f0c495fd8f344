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

// ErrTarget is wrapped by errors about a place where nothing can be written.
var ErrTarget = errors.New("cannot write there")

// Target is a model file that is being written, with its external data file if
// it has one. While it is, the target is locked against other conversions, and
// everything goes to temporary files beside it. Commit puts them in place, Abort
// removes them.
//
// At any moment, and after a crash at any moment, the target is the old model
// whole or the new one whole. What a crash leaves beside it, the next conversion
// to the same target removes.
type Target struct {
	path string // symbolic links followed
	in   *Model
	site *site // as it was in the beginning
	lock *os.File

	Model *os.File
	Data  *os.File // nil without external data
}

// DataPath is the external data file that goes with the model file at path. If
// that is a symbolic link, it is the file which goes with the one it leads to.
func DataPath(path string) string {
	if real, err := follow(path); err == nil {
		path = real
	}
	return dataPath(path)
}

// CheckTarget tells whether a model made from in may be written to path, as far
// as can be said without writing: it refuses to overwrite any file of in, and an
// external data file which does not belong to the model that is replaced.
//
// A symbolic link is followed, and what it leads to is replaced or made. The
// pair of a model and its external data cannot be written through a link in
// another folder, because runtimes look for the data beside the link.
func CheckTarget(path string, in *Model, external bool) error {
	_, _, err := inspect(path, in, external)
	return err
}

// inspect checks a target and returns the file that it is.
func inspect(path string, in *Model, external bool) (real string, s *site, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w: %w", path, ErrTarget, plain(err))
		}
	}()
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

// checkPair checks that a model which is loaded from path can have its external
// data beside real, where path leads.
func checkPair(path, real string) error {
	if err := checkLocation(filepath.Base(dataPath(real))); err != nil {
		return fmt.Errorf("no external data can go with that name: %w", err)
	}
	there, err := os.Stat(filepath.Dir(real))
	if err != nil {
		return err
	}
	if here, err := os.Stat(filepath.Dir(path)); err != nil || !os.SameFile(here, there) {
		return fmt.Errorf("it is a symbolic link to another folder, where runtimes do not look for external data; choose %s itself", real)
	}
	return nil
}

// CreateTarget begins a model file at path, made from the model in, where
// CheckTarget allows it. A file that is replaced passes its permissions on. Where
// another conversion writes to path, this one waits for its turn.
func CreateTarget(ctx context.Context, path string, in *Model, external bool) (*Target, error) {
	real, _, err := inspect(path, in, external)
	if err != nil && !errors.Is(err, errNotOurs) { // which can be told only once it is our turn
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
	t.clean() // makes room; what cannot be removed is in nobody's way
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
	for fileExists(name) { // the model in place needs it
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

// createLike makes a new file which nobody may read who may not read the other,
// if there is one.
func createLike(name string, other fs.FileInfo) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil || other == nil {
		return f, err
	}
	if err := setMode(f, other.Mode()|0o600); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setMode gives a file permissions, where it has others: not every file system
// can change them.
func setMode(f *os.File, mode fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == mode.Perm() {
		return err
	}
	return f.Chmod(mode.Perm())
}

// finish ends the writing of a file that takes another's place, if there is one.
func finish(f *os.File, other fs.FileInfo) error {
	var err error
	if other != nil {
		err = setMode(f, other.Mode())
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Reopen opens what has been written so far, as it will be once committed.
func (t *Target) Reopen() (*Model, error) {
	externals := map[string]*file{}
	if t.Data != nil {
		f, err := regular(os.Open(t.Data.Name()))
		if err != nil {
			return nil, err
		}
		externals[filepath.Base(dataPath(t.path))] = f
	}
	return open(t.Model.Name(), externals)
}

// Abort removes what has been written, unless it is in place, and unlocks the
// target.
func (t *Target) Abort() {
	if t.lock == nil {
		return
	}
	t.close()
	if t.clean() == nil {
		removeLocked(t.lock)
	} else {
		t.lock.Close() // what it says, the next conversion needs to know
	}
	t.lock, t.Model, t.Data = nil, nil, nil
}

// close closes the files that are written. Some systems do not rename or remove
// open ones.
func (t *Target) close() {
	for _, f := range []*os.File{t.Model, t.Data} {
		if f != nil {
			f.Close()
		}
	}
}

// clean removes what the model in place does not need: temporary files, and an
// external data file that is ours. Those of the input are left alone.
func (t *Target) clean() error {
	s, err := survey(t.path, t.in)
	if err != nil {
		return err
	}
	for _, name := range s.rubbish {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}
	if err != nil {
		return err
	}
	return t.lock.Truncate(0)
}

// step is called before each change that Commit makes. Tests stop there.
var step = func() error { return nil }

// Commit syncs the files and puts them in place. After an error, the target is
// the old model or the new one.
//
// Where the model in place refers to an external data file, that file must not
// be replaced before the model, nor after it, and two files cannot be renamed at
// once. So the new model is first put in place referring to the temporary data
// file; then the data file gets its final name; then the model again, referring
// to that. The first of these models is a copy of the other whose structure is
// written once more by relocate, for a data file name of the same length.
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

// putModel puts a model in place that has no external data, or has it there. The
// data file of the one that it replaces is then rubbish.
func (t *Target) putModel() error {
	if t.site.data != nil {
		if err := t.claim(); err != nil {
			return err
		}
	}
	return t.rename(t.Model.Name(), t.path)
}

// putPair puts model and data in place where no data file is.
func (t *Target) putPair() error {
	data := dataPath(t.path)
	if fileExists(data) {
		return fmt.Errorf("meanwhile %s was made by another program", filepath.Base(data))
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

// claim writes into the lock's file that the data file is ours, whatever the
// model in place refers to: if this process dies, the next may remove it.
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

// writeInterim writes the model once more, referring to the temporary data file.
func (t *Target) writeInterim(name string, relocate func(w io.WriterAt, location string) error) error {
	if err := step(); err != nil {
		return err
	}
	location := filepath.Base(t.Data.Name())
	if len(location) != len(filepath.Base(dataPath(t.path))) {
		return fmt.Errorf("the name %s of the temporary data file has not the length of the final one", location)
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
