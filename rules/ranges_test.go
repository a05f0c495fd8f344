package rules

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"onnxquant/calib"
)

func TestRangesRoundTrip(t *testing.T) {
	want := &Ranges{
		Model:  RangesModel{File: "m.onnx", SHA256: strings.Repeat("0a", 32)},
		Method: "minmax", Samples: 128,
		Tensors: map[string]calib.Range{
			"x": {Min: -1.5, Max: float64(float32(0.1))}, "if/then_branch/\"y\"": {Min: 0, Max: 0}, "z": {Min: -math.MaxFloat32, Max: math.MaxFloat32},
		},
		Typical: map[string]float64{"x": 0.375},
	}
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := LoadRanges(path)
	if err != nil {
		t.Fatal(err)
	}
	want.Source = "ranges " + path
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !rangesValid(t, b.String()) {
		t.Errorf("the schema refuses %s", b.String())
	}
	for _, bad := range []calib.Range{{Min: math.NaN()}, {Max: math.Inf(1)}, {Max: 1e39}, {Min: 1}} {
		if err := (&Ranges{Tensors: map[string]calib.Range{"x": bad}}).Write(&b); err == nil {
			t.Errorf("%v was written", bad)
		}
	}
}

// The schema refuses the documents that the parser refuses, except for errors that a schema cannot
// express.
func TestBadRanges(t *testing.T) {
	const head = `{"version": 1, "tensors": {`
	for _, c := range []struct {
		doc, want    string
		schemaCannot bool
	}{
		{doc: ``, want: "line 1, column 1: unexpected end"},
		{doc: `[]`, want: "line 1, column 1: a document of ranges: want an object, got an array"},
		{doc: `{}`, want: `it has no "version"`},
		{doc: `{"version": 1}`, want: `it has no "tensors"`},
		{doc: `{"version": 2, "tensors": {}}`, want: "line 1, column 13: version 2: this program knows version 1"},
		{doc: `{"version": 1, "tensor": {}}`, want: `line 1, column 16: a document of ranges: "tensor" is not known`},
		{doc: head + `"x": {"min": 0, "max": 1}, "x": {"min": 0, "max": 1}}}`, want: `line 1, column 55: "x" is given twice`, schemaCannot: true},
		{doc: head + `"x": [0, 1]}}`, want: `line 1, column 33: "x": want an object, got an array`},
		{doc: head + `"x": {"min": 0}}}`, want: `"x": want min and max`},
		{doc: head + `"x": {"min": null, "max": 1}}}`, want: `min of "x": want a number, got null`},
		{doc: head + "\n" + `"x": {"min": NaN, "max": 1}}}`, want: `line 2, column 14: NaN is no number of JSON; numbers must be finite`},
		{doc: head + `"x": {"min": 0, "max": Infinity}}}`, want: `Infinity is no number`},
		{doc: head + `"x": {"min": 0, "max": 1e39}}}`, want: `"x": 1e+39 is not finite as a float32`},
		{doc: head + `"x": {"min": 0, "max": 1e400}}}`, want: `max of "x": 1e400 is too large`},
		{doc: head + `"x": {"min": 2, "max": 1}}}`, want: `"x": min 2 is above max 1`, schemaCannot: true},
		{doc: `{"version": 1, "model": {"sha256": "0"}, "tensors": {}}`, want: "sha256: want 64 hexadecimal digits"},
		{doc: `{"version": 1, "samples": -1, "tensors": {}}`, want: "samples: -1 is negative"},
	} {
		if _, err := ParseRanges([]byte(c.doc)); err == nil || !strings.HasPrefix(err.Error(), "ranges: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.doc, err, c.want)
		}
		if rangesValid(t, c.doc) != c.schemaCannot {
			t.Errorf("%s: the schema accepts: %v", c.doc, !c.schemaCannot)
		}
	}
}

func TestRangesOfModel(t *testing.T) {
	r, err := ParseRanges([]byte(`{"version": 1, "model": {"sha256": "` + strings.Repeat("0", 64) + `"}, "tensors": {"conv1": {"min": 0, "max": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(strings.Repeat("0", 64)); err != nil {
		t.Error(err)
	}
	if got := errorText(r.Check(strings.Repeat("1", 64))); !strings.Contains(got, "of another model") {
		t.Error(got)
	}
	if got, want := errorText(r.Unused([]string{"conv2"})), `ranges: the model has no value "conv1"; did you mean "conv2"?`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if err := r.Unused([]string{"x", "conv1"}); err != nil {
		t.Error(err)
	}
	if found, ok := r.Of("x", "conv1"); !ok || found.Max != 1 {
		t.Error(found, ok)
	}
}

func rangesValid(t *testing.T, doc string) bool {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../docs/ranges.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	return err == nil && schema.Validate(value) == nil
}

// FuzzParseRanges writes the ranges that it could read, and reads the same again.
func FuzzParseRanges(f *testing.F) {
	f.Add([]byte(`{"version": 1, "model": {"file": "é"}, "tensors": {"x": {"min": -1e-40, "max": 0.1}}}`))
	f.Add([]byte("{\"version\": 1,\n\"tensors\": {\"é\": {\"min\": NaN"))
	f.Add([]byte("\"\U0005a82a")) // ends within a string, behind a character of four bytes
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRanges(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ParseRanges(b.Bytes())
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}
