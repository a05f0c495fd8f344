package commit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
)

// ErrTarget is wrapped by errors about an output that cannot be written.
var ErrTarget = errors.New("cannot write there")

// Target is a model file that is being written, with its external data files. The target is locked
// against other conversions. Everything is written to temporary files in the same folder; Commit puts
// them in place, Abort removes them.
//
// At any moment, also after a crash, the target is the complete old model or the complete new one. If
// a crash leaves temporary files, the next conversion to the same target removes them.
type Target struct {
	path  string   // symbolic links resolved
	names []string // of the external data files
	in    *modelfile.Model
	site  *site // before anything was written
	lock  *os.File

	Model *os.File
	Data  []*os.File // none without external data

	interim bool // the model in place may refer to Data, see Commit

	flushed chan error // gets the error of Flush; nil if it does not run
}

// Check checks, without writing, whether a model made from in may be written to path, with external
// data files of these names in the same folder. It refuses to overwrite a file of in, or an external
// data file that does not belong to the replaced model.
//
// If path is a symbolic link, its target is replaced or created. A model with external data cannot be
// written through a link from another folder, because runtimes look for the data in the folder of the
// link.
func Check(path string, in *modelfile.Model, names []string) error {
	_, _, err := inspect(path, in, names)
	return err
}

// inspect checks a target and resolves its symbolic links.
func inspect(path string, in *modelfile.Model, names []string) (real string, s *site, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w: %w", path, ErrTarget, msg.Cause(err))
		}
	}()
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return "", nil, errNotRegular // a link such as /dev/stdout may lead to a file without a path
	}
	if real, err = follow(path); err != nil {
		return "", nil, err
	}
	if s, err = survey(real, in, names); err != nil {
		return "", nil, err
	}
	if len(names) > 0 {
		err = s.dataErr
		if err == nil {
			err = checkPair(path, real, names)
		}
	}
	return real, s, err
}

// checkPair checks that a model loaded from path finds external data in the folder of real, the target
// of the symbolic link path.
func checkPair(path, real string, names []string) error {
	for _, name := range names {
		if err := modelfile.CheckLocation(name); err != nil {
			return fmt.Errorf("a model of that name cannot have external data: %w", err)
		}
		if name == filepath.Base(real) {
			return fmt.Errorf("external data cannot have the model's own name %s", name)
		}
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

// Create begins a model file at path, made from the model in, if Check
// allows it. It keeps the permissions of a replaced file. If another conversion is
// writing to path, it waits for that to end.
func Create(ctx context.Context, path string, in *modelfile.Model, names []string) (*Target, error) {
	real, _, err := inspect(path, in, names)
	if err != nil && !errors.Is(err, errNotOurs) { // begin checks that again, with the lock
		return nil, err // before anything is written
	}
	t := &Target{path: real, in: in, names: names}
	t.lock, err = lock(ctx, real, nil)
	if ctx.Err() != nil {
		t.Abort()
		return nil, fmt.Errorf("%s: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, err)
	}
	if err := t.begin(path); err != nil {
		t.Abort()
		return nil, err
	}
	return t, nil
}

// begin prepares a target that is locked.
func (t *Target) begin(path string) (err error) {
	t.clean() // frees disk space; an error does not matter here
	if _, t.site, err = inspect(path, t.in, t.names); err != nil {
		return err
	}
	if err := t.create(); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrTarget, msg.Cause(err))
	}
	return nil
}

// create creates the temporary files. Their names are in the journal before they exist.
func (t *Target) create() (err error) {
	model := freeName(func(random string) string { return t.path + ".~" + random })
	data := make([]string, len(t.names))
	for i, name := range t.names {
		data[i] = freeName(func(random string) string {
			return filepath.Join(filepath.Dir(t.path), temporaryName(name, random))
		})
	}
	if err := t.note(journalTemporary, slices.Concat(t.site.left, data)); err != nil {
		return err
	}
	most := fs.ModePerm
	if t.in != nil {
		most = t.in.Mode()
	}
	if t.Model, err = createLike(model+modelSuffix, t.site.model, most); err != nil {
		return err
	}
	for i, name := range data {
		f, err := createLike(name, t.site.data[i], most)
		if err != nil {
			return err
		}
		t.Data = append(t.Data, f)
	}
	return nil
}

// freeName returns a name with random characters that no file has: some belong to the model
// in place.
func freeName(name func(random string) string) string {
	for {
		if path := name(rand.Text()[:3]); !fileExists(path) {
			return path
		}
	}
}

func fileExists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// createLike creates a file with the permissions and the owner of other (if not nil), writable for its
// owner. A process that may not change owners keeps its own. A new file gets no permissions beyond most.
func createLike(name string, other fs.FileInfo, most fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666&(most|0o600))
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

// files returns the written files.
func (t *Target) files() []*os.File { return append([]*os.File{t.Model}, t.Data...) }

// Abort removes the temporary files and unlocks the target. After Commit it does
// nothing.
func (t *Target) Abort() {
	if t.lock == nil {
		return
	}
	t.drop()
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
	if t.Model != nil {
		t.Model.Close()
	}
	for _, f := range t.Data {
		f.Close()
	}
}

// discard removes the temporary files of this conversion, even if the model in place cannot be read:
// only an interim model refers to them.
func (t *Target) discard() {
	if t.Model != nil {
		os.Remove(t.Model.Name())
	}
	for _, f := range t.Data {
		if !t.interim {
			os.Remove(f.Name())
		}
	}
}

// clean removes files that the model in place does not need: temporary files, and
// external data files of ours. It keeps files of the input.
func (t *Target) clean() error {
	s, err := survey(t.path, t.in, t.names)
	if err != nil {
		return err
	}
	for _, name := range s.garbage {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}
	if err := errors.Join(err, os.RemoveAll(t.path+trySuffix)); err != nil {
		return err
	}
	return t.lock.Truncate(0)
}
