package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/nearest"
)

// Similar returns the formats that a misspelt name may mean: formats that begin with it, formats
// with the nearest numbers of bits, or the format with the nearest spelling. There may be none.
func Similar(name string) []Format {
	name = strings.ToLower(name)
	if name == "" {
		return nil
	}
	var longer []Format
	for _, f := range Formats() {
		if strings.HasPrefix(string(f), name) {
			longer = append(longer, f)
		}
	}
	if len(longer) > 0 {
		return longer
	}
	if kind, bits, ok := numbered(name); ok && isWidth(bits) {
		if near := nearestBits(kind, bits); len(near) > 0 {
			return near
		}
	}
	if near, ok := nearest.Name(name, formatNames()); ok {
		return []Format{Format(near)}
	}
	return nil
}

// isWidth reports whether a user may mean this number of bits. Otherwise the number is misspelt.
func isWidth(bits int) bool { return bits <= 16 || bits == 32 || bits == 64 }

var digits = regexp.MustCompile(`^([a-z]+)(\d{1,3})(.*)$`)

// numbered cuts a name that ends with a number, such as int5.
func numbered(name string) (kind string, bits int, ok bool) {
	kind, bits, rest, ok := cutNumber(name)
	return kind, bits, ok && rest == ""
}

// cutNumber cuts a name after its first number.
func cutNumber(name string) (kind string, bits int, rest string, ok bool) {
	m := digits.FindStringSubmatch(name)
	if m == nil {
		return "", 0, "", false
	}
	bits, _ = strconv.Atoi(m[2])
	return m[1], bits, m[3], true
}

// nearestBits returns the formats of a kind, such as int, with the next fewer and the next more
// bits. For integers it adds the encoding with exactly that many bits.
func nearestBits(kind string, bits int) (near []Format) {
	var fewer, more Format
	under, over := 0, 1<<10
	for _, f := range Formats() {
		k, b, _, ok := cutNumber(string(f))
		switch {
		case !ok || k != kind:
		case b < bits && b > under:
			fewer, under = f, b
		case b > bits && b < over:
			more, over = f, b
		}
	}
	for _, f := range []Format{fewer, more} {
		if f != "" {
			near = append(near, f)
		}
	}
	if exact := encodingOf(bits); strings.HasSuffix(kind, "int") && exact != "" {
		near = append(near, exact)
	}
	return near
}

// encodingOf returns the K-quant with this number of bits, or "".
func encodingOf(bits int) Format {
	f := Format(fmt.Sprintf("q%d_k", bits))
	if f.Encoding() == nil {
		return ""
	}
	return f
}

// CheckBits returns an error if no integer format has this number of bits.
func CheckBits(bits int) error {
	if slices.Contains([]int{2, 4, 8}, bits) {
		return nil
	}
	if f := encodingOf(bits); f != "" {
		return fmt.Errorf("want 2, 4 or 8; the format %s has %d", f, bits)
	}
	return errors.New("want 2, 4 or 8")
}
