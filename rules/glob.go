package rules

import (
	"strings"
	"unicode/utf8"
)

// MatchName reports whether pattern, an exact name or a glob, matches name.
//
// In a glob, * matches any number of characters and ? any single one, including / and .,
// because ONNX names are not paths. [abc], [a-z] and [!a] or [^a] match one character of a
// class. A backslash makes the next character literal. An unclosed [ and a backslash at the
// end are literal, so no pattern is malformed. A name always matches itself.
func MatchName(pattern, name string) bool {
	return pattern == name || matchGlob(pattern, name)
}

func isGlob(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }

// matchGlob reports whether a glob matches name.
func matchGlob(pattern, name string) bool {
	p, n := 0, 0
	afterStar, resume := -1, 0 // position after the last *; next end to try for the match of that *
	for n < len(name) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				p++
				afterStar, resume = p, n
				continue
			}
			_, width := utf8.DecodeRuneInString(name[n:])
			if used, ok := matchChar(pattern[p:], name[n:n+width]); ok {
				p += used
				n += width
				continue
			}
		}
		if afterStar < 0 {
			return false
		}
		_, width := utf8.DecodeRuneInString(name[resume:])
		resume += width
		p, n = afterStar, resume
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchChar matches one character with the start of pattern. used is the length of the part of
// pattern that it matched.
func matchChar(pattern, char string) (used int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		if used, ok := matchClass(pattern, char); used > 0 {
			return used, ok
		}
	case '\\':
		if len(pattern) > 1 {
			literal := firstChar(pattern[1:])
			return 1 + len(literal), literal == char
		}
	}
	literal := firstChar(pattern)
	return len(literal), literal == char
}

// matchClass matches char with the class at the start of pattern. used is 0 if the bracket
// is not closed.
func matchClass(pattern, char string) (used int, ok bool) {
	i := 1
	negated := strings.HasPrefix(pattern[i:], "!") || strings.HasPrefix(pattern[i:], "^")
	if negated {
		i++
	}
	next := func() string {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		c := firstChar(pattern[i:])
		i += len(c)
		return c
	}
	want, _ := utf8.DecodeRuneInString(char)
	found := false
	for first := i; i < len(pattern); {
		if pattern[i] == ']' && i > first {
			return i + 1, found != negated
		}
		low := next()
		high := low
		if rest := pattern[i:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			i++
			high = next()
		}
		from, _ := utf8.DecodeRuneInString(low)
		to, _ := utf8.DecodeRuneInString(high)
		found = found || from <= want && want <= to
	}
	return 0, false
}

func firstChar(s string) string {
	_, width := utf8.DecodeRuneInString(s)
	return s[:width]
}
