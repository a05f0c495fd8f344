package msg

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapedJSON writes the runes of JSON that could control a terminal as \u. Such runes are in strings alone.
func EscapedJSON(raw []byte) []byte {
	if bytes.IndexFunc(raw, controls) < 0 {
		return raw
	}
	var out []byte
	for _, r := range string(raw) {
		switch {
		case !controls(r):
			out = utf8.AppendRune(out, r)
		case r <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}

// controls reports whether a rune could control a terminal. Line breaks are those between fields.
func controls(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
