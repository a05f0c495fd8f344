package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// ErrFormat is wrapped by errors about files that are not of the format.
var ErrFormat = errors.New("no numpy array")

var magic = []byte("\x93NUMPY")

// maxHeader is what numpy itself takes, less its name for it.
const maxHeader = 64 << 10

var (
	descrEntry   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	fortranEntry = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeEntry   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
	descrForm    = regexp.MustCompile(`^([<>|=]?)([fiubc])(\d{1,2})$`)
)

// sizes are the bytes that elements of each kind may have.
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
		return nil, fmt.Errorf("%w: version %d is not known (1 to 3)", ErrFormat, start[6])
	}
	if length > maxHeader {
		return nil, fmt.Errorf("%w: its header has %d bytes, more than %d", ErrFormat, length, maxHeader)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, truncated(err)
	}
	return parseHeader(string(header))
}

func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within the header", ErrFormat)
	}
	return err
}

func parseHeader(header string) (*Array, error) {
	descr := descrEntry.FindStringSubmatch(header)
	fortran := fortranEntry.FindStringSubmatch(header)
	shape := shapeEntry.FindStringSubmatch(header)
	if fortran == nil || shape == nil {
		return nil, fmt.Errorf("%w: its header has no order or no shape", ErrFormat)
	}
	if descr == nil {
		return nil, fmt.Errorf("%w of numbers: its elements are structures", ErrFormat)
	}
	a := &Array{Fortran: fortran[1] == "True", Shape: []int64{}}
	if err := a.parseType(descr[1]); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(shape[1], ",") {
		if text = strings.TrimSuffix(strings.TrimSpace(text), "L"); text == "" {
			continue // behind the last comma
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%w: its shape has %q", ErrFormat, text)
		}
		a.Shape = append(a.Shape, n)
	}
	return a, a.count()
}

func (a *Array) parseType(descr string) error {
	form := descrForm.FindStringSubmatch(descr)
	if form == nil {
		return fmt.Errorf("%w of numbers: its elements are of type %.40q", ErrFormat, descr)
	}
	kind := form[2][0]
	a.size, _ = strconv.Atoi(form[3])
	known := false
	for _, n := range sizes[kind] {
		known = known || n == a.size
	}
	if !known || form[1] == "|" && a.size > 1 {
		return fmt.Errorf("%w of known numbers: its elements are of type %q", ErrFormat, descr)
	}
	a.Type = form[2] + form[3]
	a.swap = form[1] == ">" && a.size > 1
	return nil
}

// count multiplies the dimensions; the bytes must fit an int64.
func (a *Array) count() error {
	n, zero := int64(1), false
	for _, d := range a.Shape {
		zero = zero || d == 0
	}
	for _, d := range a.Shape {
		if zero {
			break
		}
		if d > math.MaxInt64/int64(a.size)/n {
			return fmt.Errorf("%w: its shape is too large", ErrFormat)
		}
		n *= d
	}
	if zero {
		n = 0
	}
	a.n, a.left = n, n
	return nil
}
