package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	generate "github.com/invopop/jsonschema"
	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"onnxquant/internal/cli"
	"onnxquant/internal/folder"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/batch"
	"onnxquant/onnxq/bench"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/diff"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/tune"
	"onnxquant/onnxq/verify"
	"onnxquant/rules"
	"onnxquant/spec"
)

var updateSchemas = flag.Bool("update-schemas", false, "write the schemas of docs/json")

const schemaFolder = "docs/json"

// printed are the values that commands print as JSON, by the name of their schema, with
// commands that print one. IN is a float model, OUT what an earlier command made, GGUF likewise, ARRAY a .npy file.
var printed = []struct {
	schema   string
	value    any
	commands [][]string
}{
	{"convert", conversionReport{}, [][]string{
		{"--quiet", "--json", "--gate", "sound", "--bits", "8", "IN", "GATED"},
		{"--quiet", "--json", "--block", "32", "IN", "OUT"},
		{"--quiet", "--json", "--float16", "--bits", "8", "--external-data", "always", "IN", "HALF"},
	}},
	{"plan", onnxq.Plan{}, [][]string{{"--dry-run", "--json", "--block", "32", "--ops", "all", "IN"}, {"--dry-run", "--json", "--float16", "IN"}}},
	{"folder", folder.Summary{}, [][]string{{"--preset", "sherpa-onnx", "--dry-run", "--json", "IN"}, {"--preset", "sherpa-onnx", "--quiet", "--json", "IN", "FOLDER"}}},
	{"rewrite", restyle.Report{}, [][]string{{"restyle", "--quiet", "--json", "--style", "nbits", "OUT", "NBITS"}, {"dequantize", "--quiet", "--json", "OUT", "FLOAT"}}},
	{"gguf", ggufmodel.Report{}, [][]string{{"gguf", "--quiet", "--json", "--pure", "--mix", "Q8_0", "IN", "GGUF"}}},
	{"gguf-plan", ggufmodel.Plan{}, [][]string{{"gguf", "--dry-run", "--json", "IN"}}},
	{"gguf-list", ggufmodel.Listing{}, [][]string{{"gguf", "--list", "--json", "GGUF"}}},
	{"inspect", inspect.Inspection{}, [][]string{{"inspect", "--json", "IN"}, {"inspect", "--json", "OUT"}, {"inspect", "--json", "NBITS"}}},
	{"analyze", analyze.Analysis{}, [][]string{{"analyze", "--json", "IN"}, {"analyze", "--json", "--max-size", "20KiB", "--candidates", "int4:32:zp,nvfp4", "IN"}}},
	{"calibrate", calibrate.ArrayRanges{}, [][]string{{"calibrate", "--json", "ARRAY"}, {"calibrate", "--json", "--axis", "1", "ARRAY"}}},
	{"suite", suiteJSON{}, [][]string{{"analyze", "--suite", "--json"}}},
	{"verify", verify.Report{}, [][]string{{"verify", "--json", "IN", "OUT"}, {"verify", "--json", "--engine", "none", "IN", "IN"}}},
	{"report", report.Report{}, [][]string{{"report", "--json", "IN", "OUT", "NBITS"}, {"report", "--json", "--engine", "none", "--candidates", "none", "IN", "OUT"}}},
	{"bench", bench.Report{}, nil}, // test/oracle/test_bench.py has ONNX Runtime
	{"refused", refusedReport{}, [][]string{{"--quiet", "--json", "--gate", "sound", "--bits", "2", "--block", "32", "IN", "GATED"}}},
	{"batch", batch.Summary{}, nil}, // onnxq/batch has a test of these two
	{"batch-record", batch.Record{}, nil},
	{"batch-plan", batch.Waiting{}, [][]string{{"batch", "--dry-run", "--json", "IN", "FOLDER"}}},
	{"tune", tune.Result{}, [][]string{{"tune", "--json", "--dry-run", "--score", "echo 1 #{}", "--max-drop", "1%", "IN", "FLOAT"}}}, // cmd's script has the others
	{"diff", diff.Difference{}, [][]string{{"diff", "--json", "IN", "OUT"}, {"diff", "--json", "IN", "IN"}}},
}

// The schemas are those of the types, with their comments; -update-schemas writes them. What
// commands print is valid, and has the version.
func TestSchemas(t *testing.T) {
	t.Chdir("../..") // comments are found by paths from there
	r := &generate.Reflector{Anonymous: true, ExpandedStruct: true, Mapper: mapped, Namer: definitionName}
	for _, folder := range []string{"onnxq", "spec", "internal/recognize", "internal/folder", "quality", "cmd/onnxquant"} {
		if err := r.AddGoComments("onnxquant", folder); err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	paths := map[string]string{"IN": modeltest.Build(t, "mlp")}
	for _, name := range []string{"OUT", "HALF", "NBITS", "FLOAT", "GATED"} {
		paths[name] = filepath.Join(folder, name+".onnx")
	}
	paths["FOLDER"] = filepath.Join(folder, "folder")
	paths["ARRAY"] = filepath.Join(folder, "a.npy")
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n"
	if err := os.WriteFile(paths["ARRAY"], []byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header+"\x00\x00\x80\x3f\x00\x00\x80\xbf"), 0o666); err != nil {
		t.Fatal(err)
	}
	paths["GGUF"] = filepath.Join(folder, "out.gguf")
	for _, p := range printed {
		path := filepath.Join(schemaFolder, p.schema+".schema.json")
		want := schemaOf(t, r, p.schema, p.value)
		if *updateSchemas {
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the schema of %T (%v); make schemas writes it", path, p.value, err)
			continue
		}
		schema, err := validate.NewCompiler().Compile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range p.commands {
			args := append([]string(nil), args...)
			for i, arg := range args {
				if path, ok := paths[arg]; ok {
					args[i] = path
				}
			}
			checkJSON(t, schema, args)
		}
	}
}

// checkJSON runs a command and validates what it prints.
func checkJSON(t *testing.T, schema *validate.Schema, args []string) {
	t.Helper()
	stdout, stderr := new(bytes.Buffer), new(bytes.Buffer)
	if status := program().Run(t.Context(), cli.ConsoleOn(stdout, stderr), args); status > 1 && status != 4 || stdout.Len() == 0 {
		t.Errorf("%q: status %d: %s", args, status, stderr)
		return
	}
	value, err := validate.UnmarshalJSON(stdout)
	if err != nil {
		t.Errorf("%q: %v", args, err)
		return
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// schemaOf is the schema of a type, with its comments and the version. It allows no other
// fields.
func schemaOf(t *testing.T, r *generate.Reflector, name string, value any) []byte {
	t.Helper()
	s := r.Reflect(value)
	if d := s.Definitions["ArrayRange"]; d != nil { // of calibrate: a tensor has one range, or channels
		d.Required = []string{"name", "batches", "values"}
		channels, _ := d.Properties.Get("channels")
		channels.Items = &generate.Schema{AnyOf: []*generate.Schema{channels.Items, {Type: "null"}}}
	}
	for typ, published := range definitionNames {
		if d := s.Definitions[published]; d != nil {
			d.Description = strings.Replace(d.Description, typ+" ", published+" ", 1)
		}
	}
	s.Title = "onnxquant: " + name
	s.Properties.Set("schema_version", &generate.Schema{Const: cli.SchemaVersion, Description: "the version of this schema"})
	if err := s.Properties.MoveToFront("schema_version"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.Required, "schema_version") {
		s.Required = append([]string{"schema_version"}, s.Required...)
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// definitionNames are the names in schemas of types that had these names when the schemas were
// published.
var definitionNames = map[string]string{"HalfPrecision": "Half", "KLDivergence": "KL", "QuantizedRun": "Itself", "ListedKey": "ggufKey", "ListedTensor": "ggufTensorEntry"}

func definitionName(t reflect.Type) string {
	if name, ok := definitionNames[t.Name()]; ok {
		return name
	}
	return t.Name()
}

// mapped has the types that marshal themselves.
func mapped(t reflect.Type) *generate.Schema {
	switch t {
	case reflect.TypeFor[spec.Candidate]():
		return &generate.Schema{Type: "string", Description: "FORMAT[:BLOCK][:zp]"}
	case reflect.TypeFor[*rules.Precision](), reflect.TypeFor[rules.Precision]():
		return &generate.Schema{Type: "object", Description: "a precision_info; see precision-info.schema.json"}
	}
	return nil
}
