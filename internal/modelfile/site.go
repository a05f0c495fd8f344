package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Beside a target <out> there may be
//
//	<out>.data       its external data
//	<out>.~lock      the lock
//	<out>.~ABC       temporary external data; its name is as long as <out>.data
//	<out>.~ABC.tmp   temporary model; its name does not end in .onnx
//	<out>.~ABC.ref   interim model, which refers to <out>.~ABC
//	<out>.~ABC.new   second name of <out>.~ABC, before it is renamed to <out>.data
//
// where ABC is random. Only the owner of the lock may touch them.
const (
	dataSuffix    = ".data"
	modelSuffix   = ".tmp"
	interimSuffix = ".ref"
	secondSuffix  = ".new"
)

var temporary = regexp.MustCompile(`^\.~[A-Z2-7]{3}(\.tmp|\.ref|\.new)?$`)

func dataPath(path string) string { return path + dataSuffix }

// site describes the files at a target and beside it.
type site struct {
	model   fs.FileInfo // nil if there is none
	data    fs.FileInfo // nil if there is none, or it is not ours
	dataErr error       // why external data cannot be written; or nil
	garbage []string    // files of ours that the model in place does not need
}

// survey describes the target at path, for a conversion of the model in. It fails
// if the model at path must not be replaced.
//
// The data file is ours, so it may be replaced or removed, if the model in place
// refers to it or to a temporary data file, or if a conversion claimed it and died.
// If the model in place cannot be opened, its files are kept.
func survey(path string, in *Model) (*site, error) {
	s := &site{}
	var err error
	if s.model, err = existing(path, in); err != nil {
		return nil, err
	}
	left, err := leftovers(path)
	if err != nil {
		return nil, err
	}
	data, err := existing(dataPath(path), in)
	if err != nil {
		s.dataErr = fmt.Errorf("its external data would go to %s: %w", filepath.Base(dataPath(path)), err)
	}

	refers := func(fs.FileInfo) bool { return false }
	needs := refers
	if s.model != nil && (data != nil || len(left) > 0) {
		if old, err := Open(path); err == nil {
			defer old.Close()
			refers, needs = old.Uses, old.Uses
		} else {
			needs = func(fs.FileInfo) bool { return true }
		}
	}
	ours := claimed(path)
	for _, f := range left {
		if in != nil && in.Uses(f.info) || f.data && needs(f.info) {
			ours = ours || f.data && refers(f.info)
			continue
		}
		s.garbage = append(s.garbage, f.name)
	}
	switch {
	case data == nil:
	case !ours && !refers(data):
		s.dataErr = fmt.Errorf("%s exists and %w; move it away or choose another output", filepath.Base(dataPath(path)), errNotOurs)
	default:
		if other := sharedWith(path, s.model, data); other != "" {
			s.dataErr = fmt.Errorf("%s is the external data of %s, too; choose another output", filepath.Base(dataPath(path)), other)
			break
		}
		s.data = data
		if !needs(data) {
			s.garbage = append(s.garbage, dataPath(path))
		}
	}
	return s, nil
}

// sharedWith returns the name of another model in the folder of path that uses a data file, or
// "". model is the file at path, or nil. A file that cannot be opened as a model uses none.
func sharedWith(path string, model, data fs.FileInfo) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".onnx" {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		if info, err := os.Stat(name); err != nil || model != nil && os.SameFile(info, model) {
			continue // also a link to path
		}
		other, err := Open(name)
		if err != nil {
			continue
		}
		uses := other.Uses(data)
		other.Close()
		if uses {
			return e.Name()
		}
	}
	return ""
}

// existing returns the file at path, or nil if there is none. It is an error if the
// file must not be replaced.
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
		return nil, errNotRegular
	case in != nil && in.Uses(info):
		return nil, errors.New("it is a file of the input model; choose another output")
	}
	return info, nil
}

// errNotRegular is about a pipe, a terminal or a device: a file cannot be put in its place.
var errNotRegular = errors.New("it is not a regular file; choose a file name")

// errNotOurs is about a data file that must not be replaced.
var errNotOurs = errors.New("belongs to no model of that name")

// claimed reports whether a conversion has claimed the data file.
func claimed(path string) bool {
	info, err := os.Lstat(lockPath(path))
	return err == nil && info.Size() > 0
}

// leftover is a temporary file.
type leftover struct {
	name string
	data bool // it holds external data
	info fs.FileInfo
}

// leftovers lists the temporary files beside path.
func leftovers(path string) ([]leftover, error) {
	folder, err := os.Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // the folder may be writable but not readable
	}
	if err != nil {
		return nil, fmt.Errorf("its folder: %w", plain(err))
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("its folder: %w", plain(err))
	}
	var left []leftover
	for _, name := range names {
		suffix, ok := strings.CutPrefix(name, filepath.Base(path))
		if !ok || !temporary.MatchString(suffix) {
			continue
		}
		name = filepath.Join(filepath.Dir(path), name)
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			left = append(left, leftover{name, len(suffix) == len(dataSuffix), info})
		}
	}
	return left, nil
}

// follow resolves symbolic links. The file they lead to need not exist.
func follow(path string) (string, error) {
	if path == "" {
		return "", errors.New("the name is empty")
	}
	for range 40 {
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link
		}
		if !filepath.IsAbs(link) {
			folder, _ := filepath.Split(path)
			link = folder + link
		}
		folder, name := filepath.Split(link)
		if folder, err = filepath.EvalSymlinks(folder); err != nil {
			return "", fmt.Errorf("it is a symbolic link to %s: %w", link, plain(err))
		}
		path = filepath.Join(folder, name)
	}
	return "", errors.New("it is a cycle of symbolic links")
}
