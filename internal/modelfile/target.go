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
	"slices"
	"strconv"
	"strings"
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
	path  string   // symbolic links resolved
	names []string // of the external data files
	in    *Model
	site  *site // before anything was written
	lock  *os.File

	Model *os.File
	Data  []*os.File // none without external data

	interim bool // the model in place may refer to Data, see Commit

	flushed chan error // gets the error of Flush; nil if it does not run
}

// DataNames returns the names of n external data files of the model file at path: the first
// is called name, or as the model with .data if name is "", the next ones name_1, name_2 and
// so on. If path is a symbolic link, they are those of the link's target.
func DataNames(path, name string, n int) []string {
	if name == "" {
		if real, err := follow(path); err == nil {
			path = real
		}
		name = filepath.Base(dataPath(path))
	}
	names := make([]string, n)
	for i := range names {
		names[i] = shardName(name, i)
	}
	return names
}

func shardName(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "_" + strconv.Itoa(i)
}

// Beside returns the path of the file called name beside the model file at path, or beside
// the target of a symbolic link.
func Beside(path, name string) string {
	if real, err := follow(path); err == nil {
		path = real
	}
	return filepath.Join(filepath.Dir(path), name)
}

// CheckTarget checks, without writing, whether a model made from in may be written
// to path, with external data files of these names beside it. It refuses to overwrite a file
// of in, and to overwrite an external data file that does not belong to the replaced model.
//
// If path is a symbolic link, its target is replaced or created. A model with
// external data cannot be written through a link from another folder, because
// runtimes look for the data beside the link.
func CheckTarget(path string, in *Model, names []string) error {
	_, _, err := inspect(path, in, names)
	return err
}

// inspect checks a target and resolves its symbolic links.
func inspect(path string, in *Model, names []string) (real string, s *site, err error) {
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

// checkPair checks that a model loaded from path finds external data beside real,
// the target of the symbolic link path.
func checkPair(path, real string, names []string) error {
	for _, name := range names {
		if err := checkLocation(name); err != nil {
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

// CreateTarget begins a model file at path, made from the model in, if CheckTarget
// allows it. It keeps the permissions of a replaced file. If another conversion is
// writing to path, it waits for that to end.
func CreateTarget(ctx context.Context, path string, in *Model, names []string) (*Target, error) {
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
		return fmt.Errorf("%s: %w: %w", path, ErrTarget, plain(err))
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
	if t.Model, err = createLike(model+modelSuffix, t.site.model); err != nil {
		return err
	}
	for i, name := range data {
		f, err := createLike(name, t.site.data[i])
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

// flush waits for the end of Flush and returns its error, of which the system tells only once, or
// that of ctx if it ends.
func (t *Target) flush(ctx context.Context) error {
	if ctx.Err() != nil { // the files are not wanted, even if they are synced already: see drop
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
	case err := <-t.flushed:
		t.flushed = nil
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTarget, plain(err))
		}
	}
	return context.Cause(ctx)
}

// drop ends Flush for files that are not wanted: what is not on the disk yet need not get there.
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

// files returns the written files.
func (t *Target) files() []*os.File { return append([]*os.File{t.Model}, t.Data...) }

// Reader reads the written files.
type Reader struct {
	Model     io.ReaderAt
	ModelSize int64
	Data      []io.ReaderAt // of the external data files
	DataSizes []int64

	files []*file
}

// Reopen opens the written files. The caller closes the reader.
func (t *Target) Reopen() (*Reader, error) {
	r := &Reader{}
	for _, written := range t.files() {
		f, err := regular(os.Open(written.Name()))
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files = append(r.files, f)
		if written == t.Model {
			r.Model, r.ModelSize = f, f.size
		} else {
			r.Data, r.DataSizes = append(r.Data, f), append(r.DataSizes, f.size)
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

// discard removes the temporary files of this conversion, also if the model in place cannot
// be read: only an interim model refers to them.
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
	if err != nil {
		return err
	}
	return t.lock.Truncate(0)
}

// step is called before each change that Commit makes. Tests replace it to stop
// there.
var step = func() error { return nil }

// Commit syncs the files and puts them in place. After an error, the target is the old model or the
// new one. If ctx ends before the files are synced, it is the old one.
//
// If the model in place has external data, several files must be replaced, but only one
// can be renamed at a time. So Commit
//
//  1. puts an interim model in place, which refers to the temporary data files,
//  2. renames the data files to their final names,
//  3. puts the final model in place.
//
// The interim model is a copy of the final one; relocate writes its structure again
// with the names of the temporary data files, which have the same lengths.
//
// So each data file is there twice, as both models need it. It is copied, or, if it is large,
// has two names until the final model is in place: the onnx package refuses to read such a file.
func (t *Target) Commit(ctx context.Context, relocate func(w io.WriterAt, locations []string) error) error {
	defer t.Abort()
	if t.flushed == nil {
		t.Flush()
	}
	if err := t.flush(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	if err := t.commit(relocate); err != nil {
		return fmt.Errorf("%s: %w: %w", t.path, ErrTarget, plain(err))
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
