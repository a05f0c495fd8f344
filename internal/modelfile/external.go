package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
)

// External is the external_data of a TensorProto.
type External struct {
	Location string
	Offset   int64
	Length   int64 // -1: not given
}

// ParseExternal parses the external_data entries of a tensor. It ignores unknown
// keys, as the standard says.
func ParseExternal(t *onnxpb.TensorProto) (External, error) {
	e := External{Length: -1}
	seen := map[string]bool{}
	for _, kv := range t.GetExternalData() {
		key, value := kv.GetKey(), kv.GetValue()
		switch key {
		case "location", "offset", "length":
			if seen[key] {
				return e, fmt.Errorf("external data: %s is given twice", key)
			}
			seen[key] = true
		}
		var err error
		switch key {
		case "location":
			e.Location = value
			err = CheckLocation(value)
		case "offset":
			e.Offset, err = parseSize(key, value)
		case "length":
			e.Length, err = parseSize(key, value)
		}
		if err != nil {
			return e, err
		}
	}
	if !seen["location"] {
		return e, errors.New("external data without a location")
	}
	return e, nil
}

func parseSize(key, value string) (int64, error) {
	v, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("external data: %s %s is not a byte count", key, msg.Quote(value))
	}
	return int64(v), nil
}

// CheckLocation accepts relative paths below the model's folder. The rules are the same on every
// operating system, so that a model means the same file everywhere; Windows has additional rules.
func CheckLocation(loc string) error { return checkLocationOn(runtime.GOOS, loc) }

func checkLocationOn(system, loc string) error {
	bad := func(why string) error {
		return fmt.Errorf("external data location %s %s", msg.Quote(loc), why)
	}
	switch {
	case loc == "":
		return bad("is empty")
	case len(loc) > 4096:
		return bad("is too long")
	case !utf8.ValidString(loc):
		return bad("is not UTF-8")
	case strings.ContainsRune(loc, 0):
		return bad("contains a NUL byte")
	case strings.ContainsRune(loc, '\\'):
		return bad("contains a backslash; paths in ONNX use /")
	case path.IsAbs(loc), len(loc) >= 2 && loc[1] == ':' && isLetter(loc[0]):
		return bad("is absolute; it must lie below the model's folder")
	case system == "windows" && strings.ContainsRune(loc, ':'):
		return bad("contains a colon, which marks a stream or a drive on Windows")
	}
	depth := 0
	for elem := range strings.SplitSeq(loc, "/") {
		switch elem {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
			if system == "windows" && !isWindowsName(elem) {
				return bad("contains a name that is special on Windows")
			}
		}
		if depth < 0 {
			return bad("leaves the model's folder")
		}
	}
	switch loc[strings.LastIndexByte(loc, '/')+1:] {
	case "", ".", "..": // runtimes find no file there, even if a file has the name in front
		return bad("is a folder's name")
	}
	return nil
}

// isWindowsName reports whether an element of a path is an ordinary file name on
// Windows. Windows drops trailing dots and spaces, and reserves the names of devices
// in every folder with any extension.
// See https://learn.microsoft.com/windows/win32/fileio/naming-a-file.
func isWindowsName(elem string) bool {
	if strings.HasSuffix(elem, ".") || strings.HasSuffix(elem, " ") {
		return false
	}
	base, _, _ := strings.Cut(elem, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return false
	}
	port, isPort := strings.CutPrefix(base, "COM")
	if !isPort {
		port, isPort = strings.CutPrefix(base, "LPT")
	}
	return !isPort || !slices.Contains(strings.Split("0123456789¹²³", ""), port)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// external finds the content of a tensor in another file. It must have want bytes.
func (m *Model) external(t *onnxpb.TensorProto, want int64) (*Payload, error) {
	e, err := ParseExternal(t)
	if err != nil {
		return nil, err
	}
	f, err := m.openExternal(e.Location)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("external data file %s: %w; it belongs into the folder of the model", msg.Quote(e.Location), err)
	}
	if err != nil {
		return nil, fmt.Errorf("external data file %s: %w", msg.Quote(e.Location), err)
	}
	if e.Length >= 0 && e.Length != want {
		return nil, fmt.Errorf("external data length %d, want %d (%v, dims %v)", e.Length, want, dtype.DType(t.GetDataType()), shortDims(t.GetDims()))
	}
	if e.Offset > f.Size || want > f.Size-e.Offset {
		return nil, fmt.Errorf("external data at offset %d of length %d passes the end of %s (%d bytes)", e.Offset, want, msg.Quote(e.Location), f.Size)
	}
	p := &Payload{}
	p.add(part{f, e.Offset, want})
	return p, nil
}

// openExternal opens a file below the model's folder. os.Root resolves the path, so
// that no symbolic link leads out, even one created meanwhile.
func (m *Model) openExternal(loc string) (*File, error) {
	name := path.Clean(loc)
	if f, ok := m.externals[name]; ok {
		return f, nil
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, errors.New("it cannot be the name of a file on this system")
	}
	opened, err := m.root.OpenFile(name, os.O_RDONLY|regularfile.Nonblock, 0)
	if m.leadsOut(err) {
		if opened = m.openInCache(name); opened == nil {
			return nil, errLink
		}
		err = nil
	}
	f, err := regular(opened, err)
	if err != nil {
		return nil, err
	}
	m.externals[name] = f
	return f, nil
}

// errLink says what to do, because caches of model hubs have such links.
var errLink = errors.New("a symbolic link leads out of the model's folder, and not to the blobs of a download cache; copy the folder with cp -rL and use the copy")

// leadsOut reports whether err is the error of os.Root for paths that leave the folder. The package
// does not export it, so leadsOut provokes one and compares.
func (m *Model) leadsOut(err error) bool {
	var pe, up *fs.PathError
	_, outside := m.root.Lstat("..")
	return errors.As(err, &pe) && errors.As(outside, &up) && pe.Err == up.Err
}
