package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"onnxquant/internal/msg"
)

// Console is the output of a command.
type Console struct {
	App      *App
	Stdout   *output
	Stderr   io.Writer
	terminal bool       // stderr is a terminal
	dumb     bool       // it cannot overwrite a line
	width    func() int // its columns
}

// output is a standard output. Several goroutines may write to it.
type output struct {
	mu       sync.Mutex
	buffered *bufio.Writer
	columns  int // width of the terminal, at which long lines break; 0: never
}

func newOutput(w io.Writer) *output { return &output{buffered: bufio.NewWriter(w)} }

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffered.Write(text)
}

// Flush writes what is buffered.
func (o *output) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffered.Flush()
}

// errorOutput is a standard error. What was printed to standard output before comes first, also if both are one file.
type errorOutput struct {
	io.Writer
	before *output
}

func (o *errorOutput) Write(text []byte) (int, error) {
	o.before.Flush() // a failure is told at the end
	return o.Writer.Write(text)
}

func NewConsole(stdout, stderr *os.File) *Console {
	fd := int(stderr.Fd())
	out := newOutput(stdout)
	c := &Console{
		Stdout: out, Stderr: &errorOutput{stderr, out},
		terminal: term.IsTerminal(fd), dumb: os.Getenv("TERM") == "dumb", width: func() int { return columnsOf(fd) },
	}
	if fd := int(stdout.Fd()); term.IsTerminal(fd) {
		c.Stdout.columns = columnsOf(fd)
	}
	return c
}

// ConsoleOn returns a console on writers, which are no terminals.
func ConsoleOn(stdout, stderr io.Writer) *Console {
	out := newOutput(stdout)
	return &Console{Stdout: out, Stderr: &errorOutput{stderr, out}, width: func() int { return usualWidth }}
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

func (c *Console) flush() error {
	if err := c.Stdout.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// Fail prints an error. Errors that were joined have a line each.
func (c *Console) Fail(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		for _, one := range joined.Unwrap() {
			c.Fail(one)
		}
		return
	}
	c.Line("", err.Error())
}

func (c *Console) Warn(message string) { c.Line("warning: ", message) }

// WarnAll prints warnings, even with --quiet: the output may not be what the user wants.
func (c *Console) WarnAll(messages []string) {
	for _, m := range messages {
		c.Warn(m)
	}
}

// Line prints one line to standard error.
func (c *Console) Line(kind, message string) {
	const maxLength = 4096
	fmt.Fprintf(c.Stderr, "onnxquant: %s%s\n", kind, Clip(Printable(message), maxLength))
}

// SchemaVersion is in all JSON that commands print. It grows when a field goes or changes its
// meaning; the schemas are in docs/json.
const SchemaVersion = 1

// JSON prints an object, with the version of its schema.
func (c *Console) JSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	fields, ok := bytes.CutPrefix(msg.EscapedJSON(b.Bytes()), []byte("{\n"))
	if !ok {
		return fmt.Errorf("the JSON is no object with fields: %.20s", b.Bytes())
	}
	fmt.Fprintf(c.Stdout, "{\n  \"schema_version\": %d,\n%s", SchemaVersion, fields)
	return nil
}

// Printable escapes control characters, line breaks and invalid UTF-8 as Go does. Names
// in a model come from anywhere and could control the terminal.
func Printable(s string) string {
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

// Clip shortens s to limit characters: it replaces the middle by ….
func Clip(s string, limit int) string {
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
