package commit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
)

// site describes the files at a target and in its folder.
type site struct {
	in      *modelfile.Model // nil if no model is the input
	model   fs.FileInfo      // nil if missing
	data    []fs.FileInfo    // by name of a data file; nil if missing
	dataErr error            // why external data cannot be written; or nil
	old     []string         // names of data files of ours
	left    []string         // temporary data files that the model in place needs
	garbage []string         // files of ours that the model in place does not need
}

// survey describes the target at path, for a conversion of the model in with external data of these
// names. It fails if the model at path must not be replaced.
//
// A data file of one of the names, or of the default name, may be replaced or removed if the target
// owns it. It owns the file if the model in place refers to it or to a temporary data file, or if a
// conversion claimed it and crashed. If the model in place cannot be opened, its files are kept.
func survey(path string, in *modelfile.Model, names []string) (*site, error) {
	s := &site{in: in, data: make([]fs.FileInfo, len(names))}
	var err error
	if s.model, err = existing(path, in); err != nil {
		return nil, err
	}
	journal := readJournal(path)
	old := &placed{path: path, closed: s.model != nil}
	defer old.close()
	here, err := list(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	interim := false // the model in place refers to temporary data
	for _, f := range leftovers(path, here, journal.temporaries, old) {
		inUse := old.refers(filepath.Base(f.name)) // not by its second name
		if in != nil && in.Uses(f.info) || f.data && (inUse || old.unknown()) {
			interim = interim || inUse
			if f.data {
				s.left = append(s.left, f.name)
			}
			continue
		}
		s.garbage = append(s.garbage, f.name)
	}
	for _, name := range dataFiles(path, here, names) {
		s.addData(old, name, slices.Index(names, name), interim || slices.Contains(journal.claimed, name))
	}
	return s, nil
}

// placed is the model in place at a target. It is opened when it is first asked: it may be
// large, and mostly there is no file that it may need.
type placed struct {
	path   string
	closed bool             // there is one, which was not opened yet
	model  *modelfile.Model // nil if missing or unreadable
	err    error            // why it cannot be opened
}

func (p *placed) open() *modelfile.Model {
	if p.closed {
		p.closed = false
		p.model, p.err = modelfile.Open(p.path)
	}
	return p.model
}

func (p *placed) close() {
	if p.model != nil {
		p.model.Close()
	}
}

// unknown reports whether there is a model that cannot be opened.
func (p *placed) unknown() bool {
	p.open()
	return p.err != nil
}

// refers reports whether the model refers to a data file of that name.
func (p *placed) refers(name string) bool { return p.open() != nil && p.model.Refers(name) }

// uses reports whether the model uses a file.
func (p *placed) uses(data fs.FileInfo) bool { return p.open() != nil && p.model.Uses(data) }

// addData adds the data file called name beside old. i is its number among the files to be written, or
// -1.
func (s *site) addData(old *placed, name string, i int, ours bool) {
	file := filepath.Join(filepath.Dir(old.path), name)
	data, err := existing(file, s.in)
	if err == nil && data == nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("its external data would go to %s: %w", name, err)
	} else if !ours && !old.uses(data) {
		err = fmt.Errorf("%s exists and %w; move it away or choose another output", name, errNotOurs)
	} else if other := sharedWith(old.path, data); other != "" {
		err = fmt.Errorf("%s is the external data of %s, too; choose another output", name, other)
	}
	switch {
	case err == nil:
		s.old = append(s.old, name)
		if !old.uses(data) && !old.unknown() {
			s.garbage = append(s.garbage, file)
		}
		if i >= 0 {
			s.data[i] = data
		}
	case i >= 0 && s.dataErr == nil:
		s.dataErr = err
	}
}

// sharedWith returns the name of another model in the folder of path that uses a data file, or "".
// Files that cannot be opened as models are skipped. The model at path is recognized by its name,
// because another conversion may replace the file meanwhile; links to it are recognized by the file
// they lead to now.
func sharedWith(path string, data fs.FileInfo) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if filepath.Ext(name) != ".onnx" || name == filepath.Clean(path) || leadsTo(name, path) {
			continue
		}
		other, err := modelfile.Open(name)
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

// leadsTo reports whether two names are of one file.
func leadsTo(name, path string) bool {
	a, err := os.Stat(name)
	b, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// existing returns the file at path, nil if it is missing. It fails if the file must not be replaced.
func existing(path string, in *modelfile.Model) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, msg.Cause(err)
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

// leftover is a temporary file.
type leftover struct {
	name string
	data bool // it holds external data
	info fs.FileInfo
}

// list lists the names of files in a folder.
func list(name string) ([]string, error) {
	folder, err := os.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // the folder may be writable but not readable
	}
	if err != nil {
		return nil, fmt.Errorf("its folder: %w", msg.Cause(err))
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("its folder: %w", msg.Cause(err))
	}
	return names, nil
}

// leftovers lists the temporary files beside path: files named after path, and temporary data files
// among names or in use by the model in place.
func leftovers(path string, here, names []string, old *placed) (left []leftover) {
	listed := func(name string) bool { return slices.Contains(names, name) || old.refers(name) }
	for _, name := range here {
		var data bool
		first := strings.TrimSuffix(name, secondSuffix)
		if suffix, ok := strings.CutPrefix(name, filepath.Base(path)); ok && temporary.MatchString(suffix) {
			data = len(suffix) == len(dataSuffix)
		} else if temporaryData.MatchString(first) && listed(first) {
			data = first == name
		} else {
			continue
		}
		name = filepath.Join(filepath.Dir(path), name)
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			left = append(left, leftover{name, data, info})
		}
	}
	return left
}
