package golden

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// data holds 1, -0 and a NaN as float32, then a NaN of other bits and 0.
var data = []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x80, 0, 0, 0xc0, 0x7f, 1, 0, 0xc0, 0xff, 0, 0, 0, 0}

func float32At(offset int, shape ...int) descriptor {
	n := 4
	for _, d := range shape {
		n *= d
	}
	return descriptor{DType: "float32", Shape: shape, Offset: offset, Bytes: n}
}

func TestCompare(t *testing.T) {
	three := Array{DType: "float32", Shape: []int{3}, Data: data[:12]}
	returns := func(name string, a Array) Func {
		return func(*Case) (Arrays, error) { return Arrays{name: a}, nil }
	}
	fails := func(*Case) (Arrays, error) { return nil, errors.New("failed") }
	want := func(name string, d descriptor) record {
		return record{Outputs: map[string]descriptor{name: d}}
	}
	for name, c := range map[string]struct {
		record record
		f      Func
		err    string // what the error holds, "" for none
	}{
		"equal":                {want("y", float32At(0, 3)), returns("y", three), ""},
		"one bit":              {want("y", float32At(4, 3)), returns("y", three), "element 0 is 1"},
		"NaN":                  {want("y", float32At(12, 1)), returns("y", Array{"float32", []int{1}, data[8:12]}), ""},
		"sign of 0":            {want("y", float32At(16, 1)), returns("y", Array{"float32", []int{1}, data[4:8]}), "element 0 is -0"},
		"sign of 0 in zp":      {want("zp", float32At(16, 1)), returns("zp", Array{"float32", []int{1}, data[4:8]}), ""},
		"shape":                {want("y", float32At(0, 3, 1)), returns("y", three), "shape"},
		"type":                 {want("y", descriptor{DType: "int32", Shape: []int{3}, Bytes: 12}), returns("y", three), "want int32"},
		"name":                 {want("x", float32At(0, 3)), returns("y", three), "outputs [y], want [x]"},
		"scalar":               {want("y", descriptor{DType: "float32", Scalar: true, Hex: "0x3f800000"}), returns("y", Array{"float32", nil, data[:4]}), ""},
		"scalar of 2 bytes":    {want("y", descriptor{DType: "float32", Scalar: true, Hex: "0x3f80"}), returns("y", three), "bits"},
		"unknown type":         {want("y", descriptor{DType: "float24"}), returns("y", three), "float24"},
		"beyond the data":      {want("y", float32At(12, 3)), returns("y", three), "bytes 12"},
		"before the data":      {want("y", float32At(-4, 3)), returns("y", three), "bytes -4"},
		"both fail":            {record{Error: "wrong"}, fails, ""},
		"fails alone":          {want("y", float32At(0, 3)), fails, "failed"},
		"reference alone":      {record{Error: "wrong"}, returns("y", three), "no error"},
		"cast of the platform": {record{Tags: []string{PlatformCast}, Error: "wrong"}, returns("y", three), ErrSkip.Error()},
		"skipped":              {want("y", float32At(0, 3)), func(*Case) (Arrays, error) { return nil, ErrSkip }, ErrSkip.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.record.compare("", c.f, data)
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want one of %q", err, c.err)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := load(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no family: %v", err)
	}
	write("cases.json", `{"cases":[{"name":"a/b","func":"a","params":{"n":3},"inputs":{},"outputs":{}}]}`)
	if _, _, err := load(dir); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("cases without data: %v", err)
	}
	write("data.bin", "")
	cases, _, err := load(dir)
	if err != nil || len(cases) != 1 || cases[0].Name != "a/b" || cases[0].Func != "a" {
		t.Errorf("cases %+v, %v", cases, err)
	}
	c := Case{params: cases[0].Params}
	var n int
	if err := c.Param("n", &n); err != nil || n != 3 {
		t.Errorf("n is %d, %v", n, err)
	}
	if err := c.Param("m", &n); err == nil {
		t.Error("a parameter that is not there was read")
	}
	var s string
	if err := c.Param("n", &s); err == nil {
		t.Error("a number was read as a string")
	}
	write("cases.json", `{"cases":`)
	if _, _, err := load(dir); err == nil {
		t.Error("half a file was read")
	}
}

func TestFolder(t *testing.T) {
	t.Setenv(Env, "")
	own, err := Folder()
	if err != nil || !strings.HasSuffix(filepath.ToSlash(own), "/internal/testing/golden/testdata") {
		t.Errorf("default folder %q, %v", own, err)
	}
	t.Setenv(Env, "internal/testing/golden/testdata/pack")
	if dir, err := Folder(); err != nil || dir != filepath.Join(own, "pack") {
		t.Errorf("relative folder %q, %v", dir, err)
	}
	abs := t.TempDir()
	t.Setenv(Env, abs)
	if dir, err := Folder(); err != nil || dir != abs {
		t.Errorf("absolute folder %q, %v", dir, err)
	}
	t.Setenv(Env, filepath.Join(abs, "none"))
	if dir, err := Folder(); err == nil {
		t.Errorf("folder %q is not there", dir)
	}
}
