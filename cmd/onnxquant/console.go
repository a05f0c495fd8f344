package main

import (
	"bufio"
	"bytes"
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

// console is the output of a command.
type console struct {
	stdout   *output
	stderr   io.Writer
	terminal bool       // stderr is a terminal
	dumb     bool       // it cannot overwrite a line
	width    func() int // its columns
}

// output is a standard output.
type output struct {
	*bufio.Writer
	columns int // where long lines break: the width of a terminal; 0: nowhere
}

func newConsole(stdout, stderr *os.File) *console {
	fd := int(stderr.Fd())
	c := &console{&output{Writer: bufio.NewWriter(stdout)}, stderr, term.IsTerminal(fd), os.Getenv("TERM") == "dumb", func() int { return columnsOf(fd) }}
	if fd := int(stdout.Fd()); term.IsTerminal(fd) {
		c.stdout.columns = columnsOf(fd)
	}
	return c
}

// columnsOf is the width of a terminal.
func columnsOf(fd int) int {
	if w, _, err := term.GetSize(fd); err == nil && w > 0 {
		return w
	}
	return usualWidth
}

// usualWidth is the width of a terminal that does not tell.
const usualWidth = 80

func (c *console) flush() error {
	if err := c.stdout.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

func (c *console) fail(err error) { c.line("", err.Error()) }

func (c *console) warn(message string) { c.line("warning: ", message) }

// warnAll prints warnings, also with --quiet: the output may not be what the user wants.
func (c *console) warnAll(messages []string) {
	for _, m := range messages {
		c.warn(m)
	}
}

// line prints one line to standard error.
func (c *console) line(kind, message string) {
	const maxLength = 4096
	fmt.Fprintf(c.stderr, "onnxquant: %s%s\n", kind, clip(printable(message), maxLength))
}

// schemaVersion is in all JSON that commands print. It grows when a field goes or changes its
// meaning; the schemas are in docs/json.
const schemaVersion = 1

// json prints an object, with the version of its schema.
func (c *console) json(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	fields, ok := bytes.CutPrefix(b.Bytes(), []byte("{\n"))
	if !ok {
		return fmt.Errorf("the JSON is no object with fields: %.20s", b.Bytes())
	}
	fmt.Fprintf(c.stdout, "{\n  \"schema_version\": %d,\n%s", schemaVersion, fields)
	return nil
}

// printable escapes control characters, line breaks and invalid UTF-8 as Go does. Names
// in a model come from anywhere and could control the terminal.
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

// clip shortens s to limit characters: it replaces the middle by ….
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	if limit < 1 {
		return ""
	}
	r := []rune(s)
	head := limit / 2
	tail := limit - head - 1
	return string(r[:head]) + "…" + string(r[len(r)-tail:])
}
