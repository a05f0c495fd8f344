package batch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	validate "github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaCheck returns a function that holds JSON against a schema of docs.
func schemaCheck(t *testing.T, name string) func(text string) error {
	t.Helper()
	schema, err := validate.NewCompiler().Compile(filepath.Join("..", "..", "docs", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		value, err := validate.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
}

// The lines of a manifest, and the summary, are as their schemas say.
func TestSchemas(t *testing.T) {
	b, jobs := newBench(t, "a", "bad", "poor")
	b.opts.Gate = "sound"
	s, err := Run(t.Context(), jobs, b.opts)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	check := schemaCheck(t, "json/batch-record.schema.json")
	lines := 0
	for line := range strings.Lines(string(text)) {
		if lines++; check(line) != nil {
			t.Errorf("%s: %v", line, check(line))
		}
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	summary, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	summary = append([]byte(`{"schema_version":1,`), bytes.TrimPrefix(summary, []byte("{"))...)
	if err := schemaCheck(t, "json/batch.schema.json")(string(summary)); err != nil {
		t.Errorf("%s: %v", summary, err)
	}
}

// Jobs that can be read are those that the schema allows.
func TestJobSchema(t *testing.T) {
	check := schemaCheck(t, "batch-job.schema.json")
	for _, line := range []string{
		`{"in": "a.onnx"}`, `{"in": "a.onnx", "out": "b/A.ONNX", "options": ["-b", "4"]}`, `{"in": "a", "options": {"bits": 4, "zero-point": true, "exclude": ["a", "b"]}}`,
		`{}`, `{"in": ""}`, `{"in": "a", "more": 1}`, `{"in": "a", "options": 4}`, `{"in": "a", "options": [4]}`, `{"in": "a", "options": {"x": {}}}`, `{"in": "a", "options": {"x": null}}`,
	} {
		_, err := Read(strings.NewReader(line), "jobs")
		if (err == nil) != (check(line) == nil) {
			t.Errorf("%s: %v, but by the schema: %v", line, err, check(line))
		}
	}
}
