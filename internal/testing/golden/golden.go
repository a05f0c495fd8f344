// Package golden compares functions with results of the references they follow.
//
// A folder holds one folder per family, and that has cases.json and data.bin. A
// case names a function, its parameters, its input arrays, and either its output
// arrays or the fact that the reference fails. Arrays lie in data.bin in C order,
// little-endian; scalars stand in cases.json, as the hexadecimal of their bits.
// testdata/README.md has the details.
//
// The folder is testdata of this package, or, if the variable
// ONNXQUANT_GOLDEN is set, the one it names and no other; a relative one is taken
// from the module's root.
package golden

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/x448/float16"
)

// Env names the environment variable that names the folder.
const Env = "ONNXQUANT_GOLDEN"

// Case is one call of a function.
type Case struct {
	Dir     string // the family's folder, with the files that parameters name
	Name    string
	Func    string
	Tags    []string
	Inputs  Arrays
	Outputs Arrays // what the reference returned, nil if it failed

	params map[string]json.RawMessage
}

// Param stores the parameter of that name in the value v points to.
func (c *Case) Param(name string, v any) error {
	raw, ok := c.params[name]
	if !ok {
		return fmt.Errorf("no parameter %q", name)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("parameter %q: %w", name, err)
	}
	return nil
}

// Arrays are inputs or outputs by name. What is absent is missing.
type Arrays map[string]Array

// Array is an input or output.
type Array struct {
	DType string // float32, int8, float8_e4m3fn …
	Shape []int  // nil for a scalar
	Data  []byte // little-endian
}

// Func computes the outputs of a case, or fails where the reference does.
type Func func(*Case) (Arrays, error)

// ErrSkip is returned by a Func that has nothing to say of a case.
var ErrSkip = errors.New("not compared")

// PlatformCast tags cases whose result is left to the C compiler by a cast of a
// float beyond an integer's range. They are computed but not compared.
const PlatformCast = "platform_cast"

// Run compares each case of a family with what its function returns. A family that is
// missing fails, and so does a case of a function that funcs does not have; nil marks a
// function that another test compares.
func Run(t *testing.T, family string, funcs map[string]Func) {
	t.Helper()
	dir, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	cases, data, err := load(filepath.Join(dir, family))
	if err != nil {
		t.Fatal(err)
	}
	compared := map[string]int{}
	for _, r := range cases {
		f, ok := funcs[r.Func]
		if !ok {
			t.Errorf("%s: function %s is not known", r.Name, r.Func)
		}
		if f == nil {
			continue
		}
		switch err := r.compare(filepath.Join(dir, family), f, data); {
		case errors.Is(err, ErrSkip):
		case err != nil:
			t.Errorf("%s: %v", r.Name, err)
		default:
			compared[r.Func]++
		}
	}
	if len(compared) == 0 {
		t.Errorf("family %s: nothing was compared", family)
	}
	for _, name := range slices.Sorted(maps.Keys(compared)) {
		t.Logf("%s: %5d cases of %s compared", family, compared[name], name)
	}
}

// Folder returns the folder of families.
func Folder() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			return "", errors.New("golden: no go.mod in the working directory or above")
		}
		root = filepath.Dir(root)
	}
	dir := os.Getenv(Env)
	if dir == "" {
		dir = filepath.Join("internal", "testing", "golden", "testdata")
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("golden data: %w", err)
	}
	return dir, nil
}

type record struct {
	Name    string
	Func    string
	Type    string // in place of a function, an encoding of package ggml
	Params  map[string]json.RawMessage
	Inputs  map[string]descriptor
	Outputs map[string]descriptor
	Error   string
	Tags    []string
}

// descriptor says where an array lies, or what a scalar is.
type descriptor struct {
	DType  string
	Shape  []int
	Offset int
	Bytes  int
	Scalar bool
	Hex    string
}

func load(dir string) (cases []record, data []byte, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	if err != nil {
		return nil, nil, err
	}
	var doc struct{ Cases []record }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, "cases.json"), err)
	}
	data, err = os.ReadFile(filepath.Join(dir, "data.bin"))
	if err != nil { // not one that says a family is missing
		return nil, nil, fmt.Errorf("%s has cases.json, but: %v", dir, err)
	}
	for i := range doc.Cases {
		doc.Cases[i].Func = cmp.Or(doc.Cases[i].Func, doc.Cases[i].Type)
	}
	return doc.Cases, data, nil
}

// compare calls f and holds the result against the record.
func (r *record) compare(dir string, f Func, data []byte) error {
	in, err := arrays(r.Inputs, data)
	if err != nil {
		return err
	}
	want, err := arrays(r.Outputs, data)
	if err != nil {
		return err
	}
	if r.Error != "" {
		want = nil
	}
	got, err := f(&Case{Dir: dir, Name: r.Name, Func: r.Func, Tags: r.Tags, Inputs: in, Outputs: want, params: r.Params})
	switch {
	case errors.Is(err, ErrSkip):
		return err
	case slices.Contains(r.Tags, PlatformCast):
		return ErrSkip
	case r.Error != "" && err == nil:
		return fmt.Errorf("no error; the reference says %s", r.Error)
	case r.Error != "":
		return nil
	case err != nil:
		return err
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		return fmt.Errorf("outputs %v, want %v", g, w)
	}
	for name, w := range want {
		if err := w.equal(got[name], name == "zp"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func arrays(ds map[string]descriptor, data []byte) (Arrays, error) {
	as := Arrays{}
	for name, d := range ds {
		a, err := d.array(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		as[name] = a
	}
	return as, nil
}

func (d descriptor) array(data []byte) (Array, error) {
	a := Array{DType: d.DType, Shape: d.Shape}
	size, ok := sizes[d.DType]
	if !ok {
		return a, fmt.Errorf("unknown type %q", d.DType)
	}
	if d.Scalar {
		b, err := hex.DecodeString(strings.TrimPrefix(d.Hex, "0x"))
		if err != nil || len(b) != size {
			return a, fmt.Errorf("%q are not the bits of a %s", d.Hex, d.DType)
		}
		slices.Reverse(b)
		a.Data = b
		return a, nil
	}
	n := size
	for _, l := range d.Shape {
		n *= l
	}
	if n != d.Bytes || d.Offset < 0 || d.Bytes < 0 || d.Offset > len(data)-d.Bytes {
		return a, fmt.Errorf("bytes %d … %d of %d for %s of shape %v", d.Offset, d.Offset+d.Bytes, len(data), d.DType, d.Shape)
	}
	a.Data = data[d.Offset:][:d.Bytes]
	return a, nil
}

var sizes = map[string]int{
	"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8,
	"int8": 1, "uint8": 1, "uint16": 2, "int32": 4, "int64": 8,
	"float8_e4m3fn": 1,
}

// equal holds got against the wanted a: bit by bit, but NaN equals NaN and, if
// signless, -0 equals 0.
func (a Array) equal(got Array, signless bool) error {
	if got.DType != a.DType || !slices.Equal(got.Shape, a.Shape) || len(got.Data) != len(a.Data) {
		return fmt.Errorf("%s of shape %v and %d bytes, want %s of shape %v and %d bytes",
			got.DType, got.Shape, len(got.Data), a.DType, a.Shape, len(a.Data))
	}
	size := sizes[a.DType]
	for i := 0; i < len(a.Data); i += size {
		g, w := got.Data[i:i+size], a.Data[i:i+size]
		if string(g) == string(w) {
			continue
		}
		gv, wv, float := value(a.DType, g), value(a.DType, w), strings.Contains(a.DType, "float")
		if float && (math.IsNaN(gv) && math.IsNaN(wv) || signless && gv == 0 && wv == 0) {
			continue
		}
		return fmt.Errorf("element %d is %v (%x), want %v (%x)", i/size, gv, g, wv, w)
	}
	return nil
}

// value returns a number that an element's bytes stand for, for codes the code.
func value(dtype string, b []byte) float64 {
	switch dtype {
	case "float32":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case "float64":
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case "float16":
		return float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32())
	case "bfloat16":
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case "uint16":
		return float64(binary.LittleEndian.Uint16(b))
	case "int32":
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case "int64":
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case "int8":
		return float64(int8(b[0]))
	}
	return float64(b[0])
}
