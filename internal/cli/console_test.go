package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "",
		"layers.0/w [é] \\ \"q\"": "layers.0/w [é] \\ \"q\"",
		"a\x1b[2Jb":               `a\x1b[2Jb`,
		"a\nb\tc\x00\a\x7f":       `a\nb\tc\x00\a\x7f`,
		"\u009b31m":               `\u009b31m`,
		"\u202egnp\u2066":         `\u202egnp\u2066`,
		"a\u2028b\u00a0c":         `a\u2028b\u00a0c`,
		"\xff\xc0ok":              `\xff\xc0ok`,
		"\ufffd":                  "\ufffd",
		"'\U000e0001":             `'\U000e0001`,
	} {
		if got := Printable(s); got != want {
			t.Errorf("printable(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abcdef", 6, "abcdef"},
		{"abcdefg", 6, "abc…fg"},
		{"ääääääää", 5, "ää…ää"},
	} {
		if got := Clip(c.s, c.n); got != c.want || utf8.RuneCountInString(got) > c.n {
			t.Errorf("clip(%q, %d) = %q", c.s, c.n, got)
		}
	}
}

// An error is one line, however long and wild the names in it.
func TestFailIsOneLine(t *testing.T) {
	var stderr bytes.Buffer
	c := &Console{Stderr: &stderr}
	c.Fail(Usagef("tensor %s\nis broken", strings.Repeat("\x1bw", 1<<16)))
	if n := bytes.Count(stderr.Bytes(), []byte("\n")); n != 1 || stderr.Len() > 5000 || bytes.ContainsRune(stderr.Bytes(), '\x1b') {
		t.Errorf("%d lines, %d bytes", n, stderr.Len())
	}
}

// The progress bar is drawn on a terminal only, not with --quiet, and it is
// gone before anything else is printed.
func TestProgress(t *testing.T) {
	const line = "quantized  1 of 2\n"
	for _, test := range []struct{ terminal, quiet, drawn bool }{
		{true, false, true},
		{true, true, false},
		{false, false, false},
	} {
		c, stderr := testConsole(test.terminal)
		bar := NewProgress(c, test.quiet)
		bar.Update(0, 0)
		for done := range int64(4) {
			bar.Update(done<<40, 3<<40)
		}
		bar.Update(5<<40, 3<<40) // more than promised
		bar.Clear()
		io.WriteString(stderr, line)
		if !test.drawn {
			if stderr.String() != line {
				t.Errorf("%+v: drew %q", test, stderr)
			}
			continue
		}
		if !strings.Contains(stderr.String(), "3.0 TiB") {
			t.Errorf("no total in %q", stderr)
		}
		screen := overtype(stderr.String())
		if strings.TrimRight(screen, " ") != strings.TrimSuffix(line, "\n") {
			t.Errorf("the screen shows %q", screen)
		}
	}
}

// So is the line of a stage.
func TestStage(t *testing.T) {
	c, stderr := testConsole(true)
	bar := NewProgress(c, false)
	bar.stage("comparing the weights")
	bar.Share("comparing the weights", 1, 3)
	bar.Share("running", 0, 0)
	if screen := overtype(stderr.String()); strings.TrimRight(screen, " ") != "running" {
		t.Errorf("the screen shows %q", screen)
	}
	bar.Clear()
	if screen := overtype(stderr.String()); strings.TrimRight(screen, " ") != "" {
		t.Errorf("then it shows %q", screen)
	}
	c, stderr = testConsole(false)
	NewProgress(c, false).stage("running")
	if stderr.Len() != 0 {
		t.Errorf("without a terminal: %q", stderr)
	}
}

// A log gets a line after ten seconds, then one each half minute.
func TestLog(t *testing.T) {
	c, stderr := testConsole(false)
	bar := NewProgress(c, false)
	var at time.Duration
	begin := time.Now()
	bar.now = func() time.Time { return begin.Add(at) }
	bar.restart()
	var lines []int
	for second := range 75 {
		at = time.Duration(second) * time.Second
		before := strings.Count(stderr.String(), "\n")
		bar.Step("calibrate", second, 75)
		if strings.Count(stderr.String(), "\n") > before {
			lines = append(lines, second)
		}
	}
	bar.Clear()
	if !slices.Equal(lines, []int{10, 40, 70}) || strings.ContainsAny(stderr.String(), "\r[=") {
		t.Errorf("lines after %d s: %q", lines, stderr)
	}
}

// The time of a conversion does not count the calibration before it, and a log has no bar: the first line of
// what follows comes ten seconds later.
func TestLogBehindCalibration(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		c, stderr := testConsole(terminal)
		bar := NewProgress(c, false)
		var at time.Duration
		begin := time.Now()
		bar.now = func() time.Time { return begin.Add(at) }
		bar.Begin()
		for at < time.Minute {
			at += time.Second
			bar.Calibrating(int64(at), int64(time.Minute))
		}
		stderr.Reset()
		at += 2 * time.Second
		bar.Update(1<<20, 3<<20)
		line := stderr.String()
		bar.Clear()
		if terminal && !strings.Contains(line, "0:04 left, 1.0 MiB of 3.0 MiB, 512 KiB/s") || !terminal && line != "" {
			t.Errorf("terminal %v: %q", terminal, line)
		}
	}
}

// overtype is the line that a terminal shows after text.
func overtype(text string) string {
	var line []rune
	for part := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\r") {
		r := []rune(part)
		line = append(r, line[min(len(r), len(line)):]...)
	}
	return string(line)
}

func testConsole(terminal bool) (*Console, *bytes.Buffer) {
	stderr := new(bytes.Buffer)
	c := ConsoleOn(io.Discard, stderr)
	c.terminal = terminal
	return c, stderr
}

// JSON has no rune that controls a terminal, and the same values as before.
func TestJSONIsPrintable(t *testing.T) {
	const name = "a\u009b\u202e\U000e0001é"
	var out bytes.Buffer
	c := &Console{Stdout: &output{buffered: bufio.NewWriter(&out)}}
	if err := c.JSON(struct {
		Name string `json:"name"`
	}{name}); err != nil {
		t.Fatal(err)
	}
	c.Stdout.Flush()
	if want := "{\n  \"schema_version\": 1,\n  \"name\": \"a\\u009b\\u202e\\udb40\\udc01é\"\n}\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	var back struct{ Name string }
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Name != name {
		t.Errorf("%q, %v", back.Name, err)
	}
}

// If both outputs are one file, their lines come in the order in which they were printed, and whole.
func TestOutputsInOrder(t *testing.T) {
	var log bytes.Buffer
	c := ConsoleOn(&log, &log)
	for range 1000 {
		io.WriteString(c.Stdout, "a row of a table\n")
	}
	c.Warn("behind")
	if text := log.String(); strings.Count(text, "a row of a table\n") != 1000 || !strings.HasSuffix(text, "\nonnxquant: warning: behind\n") {
		t.Errorf("%d bytes, ends with %q", len(text), text[max(len(text)-100, 0):])
	}
}

func TestFailJoined(t *testing.T) {
	var stderr bytes.Buffer
	ConsoleOn(io.Discard, &stderr).Fail(errors.Join(errors.New("a"), fmt.Errorf("%w, %w", io.EOF, io.ErrNoProgress)))
	if want := "onnxquant: a\nonnxquant: EOF, multiple Read calls return no data or error\n"; stderr.String() != want {
		t.Errorf("%q, want %q", stderr.String(), want)
	}
}
