package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"onnxquant/spec"
)

func TestPrecisionFor(t *testing.T) {
	p, err := ParsePrecision([]byte(`{
		"*experts*": {"precision": 2, "block_size": 32, "axis": 1},
		"*experts.0.*": {},
		"lm_head*": {"bits": 8, "block": -1},
		"lm_head.bias": {"format": "float"},
		"a": 8,
		"w[0]": {"zero_point": true, "algorithm": "rtn", "format": "uint4"},
		"*.last": 8.0,
		"b.last": 4
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*spec.Override{
		"layers/experts.3/up":  {Bits: new(2), Block: new(32), Axis: new(1)},
		"layers/experts.0.up":  {},
		"lm_head/MatMul.w":     {Bits: new(8), Block: new(spec.PerChannel)},
		"lm_head.bias":         {Format: new(spec.Format("float"))},
		"a":                    {Bits: new(8)},
		"a2":                   nil,
		"w[0]":                 {ZeroPoint: new(true), Algorithm: new(spec.RTN), Format: new(spec.Format("uint4"))},
		"w0":                   {ZeroPoint: new(true), Algorithm: new(spec.RTN), Format: new(spec.Format("uint4"))},
		"lm_head.experts.last": {Bits: new(8)},
		"b.last":               {Bits: new(4)},
		"":                     nil,
	} {
		got, ok := p.For(name)
		if ok != (want != nil) {
			t.Errorf("%q: overridden: %v", name, ok)
		}
		if want != nil {
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("%q: %s", name, diff)
			}
		}
	}
	if _, ok := (*Precision)(nil).For("a"); ok {
		t.Error("a nil Precision overrides")
	}
}

func TestPrecisionUnused(t *testing.T) {
	names := []string{"lm_head.weight", "layers.0.up", "layers.1.up", "w[0]"}
	for doc, want := range map[string]string{
		`{}`:                                 "",
		`{"*": 8, "lm_head*": 8, "w[0]": 8}`: "",
		`{"lm_haed.weight": 8}`:              `precision_info: line 1, column 2: "lm_haed.weight" matches no weight; did you mean "lm_head.weight"?`,
		"{\"*\": 8,\n  \"lm_hed*\": 8}":      `precision_info: line 2, column 3: "lm_hed*" matches no weight; did you mean "lm_head.weight"?`,
		`{"layers.?.dn": 8}`:                 `precision_info: line 1, column 2: "layers.?.dn" matches no weight; did you mean "layers.0.up"?`,
		`{"é": 8, "zz": 8, "*": 4}`:          `precision_info: line 1, column 2: "é" and 1 other key match no weight`,
		`{"é*up": 8, "yy": 8}`:               `precision_info: line 1, column 2: "é*up" and 1 other key match no weight; did you mean "layers.0.up"?`,
	} {
		p, err := ParsePrecision([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if got := errorText(p.Unused(names)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", doc, got, want)
		}
	}
	if err := (*Precision)(nil).Unused(names); err != nil {
		t.Error(err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// badPrecision lists documents and the start of the error that each one gets. schemaCannot marks
// errors that a JSON Schema cannot express.
var badPrecision = []struct {
	doc, want    string
	schemaCannot bool
}{
	{doc: ``, want: "line 1, column 1: unexpected end"},
	{doc: `{"a": 8`, want: "line 1, column 7: unexpected end"},
	{doc: "{\n  \"a\": 8,\n}", want: "line 3, column 1: invalid character '}'"},
	{doc: `{"a": NaN}`, want: "line 1, column 7: NaN is no number of JSON"},
	{doc: `{"a": 8} {}`, want: "line 1, column 10: invalid character '{'"},
	{doc: "{\"a\": 8, \"\xff\": 8}", want: "line 1, column 11: not UTF-8", schemaCannot: true},
	{doc: strings.Repeat(`{"a":`, 20000) + "8" + strings.Repeat("}", 20000), want: "line 1, column 50001: invalid character '{' exceeded max depth"},
	{doc: `[]`, want: "line 1, column 1: want an object from weight names to settings, got an array"},
	{doc: `8`, want: "line 1, column 1: want an object from weight names to settings, got 8"},
	{doc: `null`, want: "line 1, column 1: want an object from weight names to settings, got null"},
	{doc: `{"": 8}`, want: "line 1, column 2: an empty name"},
	{doc: `{"a": 8, "a": 4}`, want: `line 1, column 10: "a" is given twice`, schemaCannot: true},
	{doc: `{"a": 5}`, want: "line 1, column 7: bits 5: want 2, 4 or 8"},
	{doc: `{"a": 0}`, want: "line 1, column 7: bits 0: want 2, 4 or 8"},
	{doc: `{"a": -4}`, want: "line 1, column 7: bits -4: want 2, 4 or 8"},
	{doc: `{"a": 4.5}`, want: "line 1, column 7: bits 4.5: want a whole number"},
	{doc: `{"a": 1e400}`, want: "line 1, column 7: bits 1e400: want a whole number"},
	{doc: `{"a": "8"}`, want: `line 1, column 7: want a number of bits, or an object such as {"format": "int8"}, got a string`},
	{doc: `{"a": true}`, want: `line 1, column 7: want a number of bits, or an object such as {"format": "int8"}, got true`},
	{doc: `{"a": null}`, want: `line 1, column 7: want a number of bits, or an object such as {"format": "int8"}, got null`},
	{doc: `{"a": [8]}`, want: `line 1, column 7: want a number of bits, or an object such as {"format": "int8"}, got an array`},
	{doc: `{"a": {"b": 8}}`, want: `line 1, column 8: setting "b" is not known`},
	{doc: `{"a": {"Bits": 8}}`, want: `line 1, column 8: setting "Bits" is not known`},
	{doc: `{"a": {"bits": 8, "blok": 32}}`, want: `line 1, column 19: setting "blok" is not known (known: bits, block, axis, format, algorithm, zero_point, scale_type); did you mean block?`},
	{doc: "{\n\t\"é\": {\"bits\": 8, \"bits\": 8}}", want: "line 2, column 19: bits is given twice", schemaCannot: true},
	{doc: `{"a": {"bits": 8, "precision": 8}}`, want: "line 1, column 19: bits and precision are one setting"},
	{doc: `{"a": {"block_size": 8, "block": 8}}`, want: "line 1, column 25: block_size and block are one setting"},
	{doc: `{"a": {"bits": 3}}`, want: "line 1, column 16: bits 3: want 2, 4 or 8"},
	{doc: `{"a": {"precision": 3}}`, want: "line 1, column 21: precision 3: want 2, 4 or 8"},
	{doc: `{"a": {"bits": {"bits": 8}}}`, want: "line 1, column 16: bits: want a whole number, got an object"},
	{doc: `{"a": {"block": 0}}`, want: "line 1, column 17: block 0: want at least 2, or -1"},
	{doc: `{"a": {"block": 1}}`, want: "line 1, column 17: block 1: want at least 2, or -1"},
	{doc: `{"a": {"block": -2}}`, want: "line 1, column 17: block -2: want at least 2, or -1"},
	{doc: `{"a": {"block_size": 1.5}}`, want: "line 1, column 22: block_size 1.5: want a whole number"},
	{doc: `{"a": {"block": 2147483648}}`, want: "line 1, column 17: block 2147483648: want a whole number of at most 2147483647"},
	{doc: `{"a": {"axis": "0"}}`, want: "line 1, column 16: axis: want a whole number, got a string"},
	{doc: `{"a": {"axis": -2147483648}}`, want: "line 1, column 16: axis -2147483648: want a whole number"},
	{doc: `{"a": {"format": 4}}`, want: "line 1, column 18: format: want a string, got 4"},
	{doc: `{"a": {"format": "INT 4"}}`, want: `line 1, column 18: format "int 4" is not known; did you mean int4?`},
	{doc: `{"a": {"format": "Float", "bits": 8}}`, want: "line 1, column 7: format float leaves a weight as it is"},
	{doc: `{"a": {"format": "NF4", "bits": 8}}`, want: "line 1, column 7: format nf4 has 4 bits, not 8"},
	{doc: `{"a": {"format": "float", "bits": 8}}`, want: "line 1, column 7: format float leaves"},
	{doc: `{"a": {"block": 32, "format": "float"}}`, want: "line 1, column 7: format float leaves"},
	{doc: `{"a": {"bits": 8, "format": "int4"}}`, want: "line 1, column 7: format int4 has 4 bits, not 8"},
	{doc: `{"a": {"format": "uint2", "precision": 4}}`, want: "line 1, column 7: format uint2 has 2 bits, not 4"},
	{doc: `{"a": {"algorithm": "magic"}}`, want: `line 1, column 21: algorithm "magic" is not known (known: rtn, rtn-ort, k_quant, hqq, mse, awq, gptq, best)`},
	{doc: `{"a": {"algorithm": false}}`, want: "line 1, column 21: algorithm: want a string, got false"},
	{doc: `{"a": {"zero_point": 1}}`, want: "line 1, column 22: zero_point: want true or false, got 1"},
	{doc: `{"a": {"zero_point": null}}`, want: "line 1, column 22: zero_point: want true or false, got null"},
}

var goodPrecision = []string{
	`{}`,
	"\n{ }\n",
	`{"a": 2, "b": 4, "c": 8, "d": 8.0, "e": 8e0}`,
	`{"a": {}}`,
	`{"a": {"bits": 8, "block": -1, "axis": -1, "format": "int8", "algorithm": "rtn", "zero_point": false}}`,
	`{"a": {"precision": 4, "block_size": 2, "axis": 0}}`,
	`{"a": {"format": "float"}}`,
	`{"a": {"format": "NF4"}, "b": {"format": "q4_K", "algorithm": "MSE", "bits": 4}, "c": {"scale_type": "Float16"}}`,
	`{"a": {"format": "uint4", "block": 2147483647}}`,
	`{"[": 8, "\\": 4, "\u0000": 2}`,
	`{"$schema": "precision-info.schema.json", "a": 8}`,
}

func TestParsePrecisionErrors(t *testing.T) {
	for _, c := range badPrecision {
		_, err := ParsePrecision([]byte(c.doc))
		if got := errorText(err); !strings.HasPrefix(got, "precision_info: "+c.want) || strings.Contains(got, "\n") {
			t.Errorf("%.60s:\n got %s\nwant %s", c.doc, got, c.want)
		}
	}
	if _, err := ParsePrecision(make([]byte, maxPrecisionSize+1)); errorText(err) != "precision_info: larger than 16 MiB" {
		t.Error(err)
	}
}

func TestLoadPrecision(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mix.json")
	if _, err := LoadPrecision(path); !os.IsNotExist(unwrapAll(err)) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("missing file: %v", err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\ufeff{\"a\": 5}")
	want := "precision_info " + path + ": line 1, column 7: bits 5: want 2, 4 or 8; the format q5_k has 5"
	if _, err := LoadPrecision(path); errorText(err) != want {
		t.Errorf("got %v", err)
	}
	write(`{"a": 8}`)
	p, err := LoadPrecision(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.For("a"); !ok {
		t.Error("a is not overridden")
	}
	if got := errorText(p.Unused(nil)); !strings.HasPrefix(got, "precision_info "+path+": line 1, column 2:") {
		t.Error(got)
	}
}

func unwrapAll(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = inner.Unwrap()
	}
}

// The schema and the parser accept the same documents.
func TestPrecisionSchema(t *testing.T) {
	schema := precisionSchema(t)
	valid := func(doc string) bool {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
		return err == nil && schema.Validate(value) == nil
	}
	for _, doc := range goodPrecision {
		if _, err := ParsePrecision([]byte(doc)); err != nil {
			t.Errorf("parser refuses %s: %v", doc, err)
		}
		if !valid(doc) {
			t.Errorf("schema refuses %s", doc)
		}
	}
	for setting, names := range map[string][]string{"format": names(spec.Formats()), "algorithm": names(spec.Algorithms()), "scale_type": names(spec.ScaleTypes())} {
		for _, name := range names {
			doc := fmt.Sprintf(`{"a": {%q: %q}}`, setting, strings.ToUpper(name))
			p, err := ParsePrecision([]byte(doc))
			if err != nil || !valid(doc) {
				t.Errorf("%s: parser says %v, schema accepts: %v", doc, err, valid(doc))
				continue
			}
			if again, err := json.Marshal(p); err != nil || string(again) != fmt.Sprintf(`{"a":{%q:%q}}`, setting, name) {
				t.Errorf("%s became %s, %v", doc, again, err)
			}
		}
	}
	for _, c := range badPrecision {
		if strings.HasPrefix(c.doc, `{"a":{"a":{"a"`) {
			continue // too deep for the schema library
		}
		if got := valid(c.doc); got != c.schemaCannot {
			t.Errorf("%.60s: schema accepts: %v", c.doc, got)
		}
	}
	for _, doc := range documentedExamples(t) {
		if _, err := ParsePrecision([]byte(doc)); err != nil || !valid(doc) {
			t.Errorf("documented example %s: parser says %v, schema accepts: %v", doc, err, valid(doc))
		}
	}
}

// The schema has the same lists as the code.
func TestPrecisionSchemaLists(t *testing.T) {
	var schema struct {
		Defs struct {
			Settings struct {
				Properties map[string]struct{ AnyOf []struct{ Enum []string } }
			}
		} `json:"$defs"`
	}
	data, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	properties := schema.Defs.Settings.Properties
	if diff := cmp.Diff(names(spec.Formats()), properties["format"].AnyOf[0].Enum); diff != "" {
		t.Error("formats:", diff)
	}
	if diff := cmp.Diff(names(spec.Algorithms()), properties["algorithm"].AnyOf[0].Enum); diff != "" {
		t.Error("algorithms:", diff)
	}
	for name := range settings {
		if _, ok := properties[name]; !ok {
			t.Errorf("the schema lacks %s", name)
		}
	}
	if len(properties) != len(settings) {
		t.Errorf("the schema has %d settings, the parser %d", len(properties), len(settings))
	}
}

func names[T ~string](values []T) (names []string) {
	for _, v := range values {
		names = append(names, string(v))
	}
	return names
}

const schemaPath = "../docs/precision-info.schema.json"

func precisionSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// documentedExamples returns the JSON documents shown in docs and in the comment on Precision.
func documentedExamples(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/precision-info.md")
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		docs = append(docs, m[1])
	}
	source, err := os.ReadFile("precision.go")
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?m)(^//\t.*\n)+`).FindString(string(source))
	docs = append(docs, strings.ReplaceAll(comment, "//\t", ""))
	if len(docs) < 3 || slices.Contains(docs, "") {
		t.Fatalf("found %d examples", len(docs))
	}
	return docs
}

func FuzzParsePrecision(f *testing.F) {
	for _, doc := range goodPrecision {
		f.Add([]byte(doc))
	}
	for _, c := range badPrecision {
		if len(c.doc) < 1000 {
			f.Add([]byte(c.doc))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePrecision(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "precision_info: line ") {
				t.Errorf("no position: %v", err)
			}
			return
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), &keys); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		delete(keys, schemaKey)
		if len(keys) != len(p.keys) {
			t.Errorf("%d keys of %d", len(p.keys), len(keys))
		}
		var names []string
		for name := range keys {
			if _, ok := p.For(name); !ok {
				t.Errorf("%q is not overridden", name)
			}
			names = append(names, name)
		}
		if err := p.Unused(names); err != nil {
			t.Error(err)
		}
	})
}
