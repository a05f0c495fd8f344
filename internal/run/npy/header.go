package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrFormat is wrapped by errors about invalid files.
var ErrFormat = errors.New("not a valid numpy array")

var magic = []byte("\x93NUMPY")

const maxHeader = 64 << 10 // bytes

var (
	descrEntry   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	fortranEntry = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeEntry   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
	descrForm    = regexp.MustCompile(`^([<>|=]?)([fiubc])(\d{1,2})$`)
)

// sizes lists the supported bytes per element of each kind.
var sizes = map[byte][]int{'f': {2, 4, 8}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'b': {1}, 'c': {8, 16}}

// readHeader reads up to the first element.
func readHeader(r io.Reader) (*Array, error) {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || !bytes.HasPrefix(start[:], magic) {
		return nil, fmt.Errorf("%w: it does not begin with \\x93NUMPY", ErrFormat)
	}
	length := uint32(0)
	switch start[6] {
	case 1:
		var n uint16
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			return nil, truncated(err)
		}
		length = uint32(n)
	case 2, 3:
		if err := binary.Read(r, binary.LittleEndian, &length); err != nil {
			return nil, truncated(err)
		}
	default:
		return nil, fmt.Errorf("%w: version %d, want 1 to 3", ErrFormat, start[6])
	}
	if length > maxHeader {
		return nil, fmt.Errorf("%w: the header has %d bytes, more than %d", ErrFormat, length, maxHeader)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, truncated(err)
	}
	return parseHeader(string(header))
}

func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the header is cut off", ErrFormat)
	}
	return err
}

func parseHeader(header string) (*Array, error) {
	descr := descrEntry.FindStringSubmatch(header)
	fortran := fortranEntry.FindStringSubmatch(header)
	shape := shapeEntry.FindStringSubmatch(header)
	if fortran == nil || shape == nil {
		return nil, fmt.Errorf("%w: the header has no fortran_order or no shape", ErrFormat)
	}
	if descr == nil {
		return nil, fmt.Errorf("%w: structured elements are not supported", ErrFormat)
	}
	a := &Array{Fortran: fortran[1] == "True", Shape: []int64{}}
	if err := a.parseType(descr[1]); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(shape[1], ",") {
		if text = strings.TrimSuffix(strings.TrimSpace(text), "L"); text == "" {
			continue // after the last comma
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%w: dimension %q in the shape", ErrFormat, text)
		}
		a.Shape = append(a.Shape, n)
	}
	return a, a.count()
}

func (a *Array) parseType(descr string) error {
	form := descrForm.FindStringSubmatch(descr)
	if form == nil {
		return fmt.Errorf("%w: element type %.40q is not supported", ErrFormat, descr)
	}
	kind := form[2][0]
	a.size, _ = strconv.Atoi(form[3])
	if !slices.Contains(sizes[kind], a.size) || form[1] == "|" && a.size > 1 {
		return fmt.Errorf("%w: element type %q is not supported", ErrFormat, descr)
	}
	a.Type = form[2] + form[3]
	a.swap = form[1] == ">" && a.size > 1
	return nil
}

// count multiplies the dimensions. The size in bytes must fit an int64.
func (a *Array) count() error {
	n := int64(1)
	if slices.Contains(a.Shape, 0) {
		n = 0
	}
	for _, d := range a.Shape {
		if n > 0 && d > math.MaxInt64/int64(a.size)/n {
			return fmt.Errorf("%w: its shape is too large", ErrFormat)
		}
		n *= d
	}
	a.n, a.left = n, n
	return nil
}
