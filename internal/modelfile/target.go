package modelfile

import (
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
// it has one. Everything goes to temporary files beside the target, named
// <out>.~xyz and <out>.~xyz.onnx; Commit puts them in place, Abort removes
// them.
type Target struct {
	path string

	Model *os.File
	Data  *os.File // nil without external data

	replace bool // <out>.data exists, as part of the pair to be replaced
}

// CreateTarget begins a model file at path, made from the model in. It refuses
// to overwrite any file of in, and an external data file which does not belong
// to the model that is being replaced.
func CreateTarget(path string, in *Model, external bool) (*Target, error) {
	t := &Target{path: path}
	if err := t.check(in, external); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, err)
	}
	if err := t.create(external); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, plain(err))
	}
	return t, nil
}

// DataPath is the external data file that goes with the model file at path.
func DataPath(path string) string { return path + ".data" }

func (t *Target) check(in *Model, external bool) error {
	info, err := existing(t.path, in)
	if err != nil {
		return err
	}
	if !external {
		return nil
	}
	data, err := existing(DataPath(t.path), in)
	if err != nil {
		return fmt.Errorf("its external data would go to %s: %w", filepath.Base(DataPath(t.path)), err)
	}
	if data == nil {
		return nil
	}
	if info != nil {
		if old, err := Open(t.path); err == nil {
			t.replace = old.Uses(data)
			old.Close()
		}
	}
	if !t.replace {
		return fmt.Errorf("%s exists and belongs to no model of that name; move it away or choose another output", filepath.Base(DataPath(t.path)))
	}
	return nil
}

// existing returns what path names now, nil if nothing, and an error if it must
// not be replaced.
func existing(path string, in *Model) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, plain(err)
	case info.IsDir():
		return nil, errors.New("it is a folder")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case in != nil && in.Uses(info):
		return nil, errors.New("it is a file of the input model; choose another output")
	}
	return info, nil
}

func (t *Target) create(external bool) error {
	for try := 0; ; try++ {
		name := t.path + ".~" + rand.Text()[:3]
		f, err := os.OpenFile(name+".onnx", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			t.Model = f
			if external {
				if t.Data, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
					t.Abort()
				}
			}
		}
		if err == nil || !errors.Is(err, fs.ErrExist) || try == 100 {
			return err
		}
	}
}

// Reopen opens what has been written so far, as it will be once committed.
func (t *Target) Reopen() (*Model, error) {
	externals := map[string]*file{}
	if t.Data != nil {
		f, err := regular(os.Open(t.Data.Name()))
		if err != nil {
			return nil, err
		}
		externals[filepath.Base(DataPath(t.path))] = f
	}
	return open(t.Model.Name(), externals)
}

// Abort removes the temporary files.
func (t *Target) Abort() {
	for _, f := range []*os.File{t.Model, t.Data} {
		if f != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}
	t.Model, t.Data = nil, nil
}

// Commit syncs the files and puts them in place, so that at any moment the
// target is the old model whole or the new one whole. After an error the
// temporary files are gone.
//
// Two files cannot be renamed at once. Where an old pair is replaced, the new
// model is therefore first put in place referring to the temporary data file;
// then the data file gets its final name; then the model again, referring to
// that. The first of these models is a copy of the other with its structure
// written by relocate for another data file name of the same length.
func (t *Target) Commit(relocate func(w io.WriterAt, location string) error) error {
	defer t.Abort()
	if err := t.commit(relocate); err != nil {
		return fmt.Errorf("%s: %w: %w", t.path, ErrTarget, plain(err))
	}
	return nil
}

func (t *Target) commit(relocate func(w io.WriterAt, location string) error) error {
	// Some systems do not rename open files.
	if err := errors.Join(t.Model.Sync(), t.Model.Close()); err != nil {
		return err
	}
	if t.Data != nil {
		if err := errors.Join(t.Data.Sync(), t.Data.Close()); err != nil {
			return err
		}
		if t.replace {
			return t.exchangeData(relocate)
		}
		if err := os.Rename(t.Data.Name(), DataPath(t.path)); err != nil {
			return err
		}
	}
	if err := os.Rename(t.Model.Name(), t.path); err != nil {
		if t.Data != nil {
			os.Remove(DataPath(t.path))
		}
		return err
	}
	return syncFolder(filepath.Dir(t.path))
}

// exchangeData replaces the data file of an existing pair.
func (t *Target) exchangeData(relocate func(w io.WriterAt, location string) error) error {
	data := t.Data.Name()
	interim := t.Model.Name() + "~"
	defer os.Remove(interim)
	if err := t.writeInterim(interim, filepath.Base(data), relocate); err != nil {
		return err
	}
	if err := os.Rename(interim, t.path); err != nil {
		return err
	}
	t.Data = nil // from here on the model in place needs the temporary data file
	if err := syncFolder(filepath.Dir(t.path)); err != nil {
		return err
	}
	second := data + "~"
	defer os.Remove(second)
	if err := linkOrCopy(data, second); err != nil {
		return err
	}
	if err := os.Rename(second, DataPath(t.path)); err != nil {
		return err
	}
	if err := os.Rename(t.Model.Name(), t.path); err != nil {
		return err
	}
	if err := os.Remove(data); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(t.path))
}

// writeInterim writes the model once more, for a data file named location.
func (t *Target) writeInterim(name, location string, relocate func(w io.WriterAt, location string) error) error {
	if err := copyFile(t.Model.Name(), name); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(relocate(f, location), f.Sync(), f.Close())
}

// linkOrCopy gives a file a second name, or a copy where the file system has no
// hard links.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to)
}

// copyFile copies a file to one that does not exist yet.
func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Sync(), dst.Close())
}
