package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// console is where a command writes to.
type console struct {
	stdout   *bufio.Writer
	stderr   io.Writer
	terminal bool // stderr is one
}

func newConsole(stdout io.Writer, stderr *os.File) *console {
	return &console{bufio.NewWriter(stdout), stderr, term.IsTerminal(int(stderr.Fd()))}
}

func (c *console) flush() error {
	if err := c.stdout.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

func (c *console) fail(err error) { c.line("", err.Error()) }

func (c *console) warn(message string) { c.line("warning: ", message) }

func (c *console) line(kind, message string) {
	const longest = 4096
	fmt.Fprintf(c.stderr, "onnxquant: %s%s\n", kind, clip(printable(message), longest))
}

func (c *console) json(v any) error {
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printable replaces what could drive a terminal or break a line, and bytes
// that are not text, by Go's escapes. Names in a model are anybody's text.
func printable(s string) string {
	if strings.IndexFunc(s, unsafeRune) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, width := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unsafeRune(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		s = s[width:]
	}
	return b.String()
}

func unsafeRune(r rune) bool { return !unicode.IsPrint(r) }

// clip shortens s to limit characters by leaving out its middle.
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)
	head := limit / 2
	tail := limit - head - 1
	return string(r[:head]) + "…" + string(r[len(r)-tail:])
}
