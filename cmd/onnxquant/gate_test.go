package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

// A statement is about the files that were read: if one was replaced since, there is none.
func TestReplaced(t *testing.T) {
	folder := t.TempDir()
	out, data, statement := filepath.Join(folder, "out.onnx"), filepath.Join(folder, "d.npz"), filepath.Join(folder, "s.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, changed := range []string{"", "in", "data"} {
		in := modeltest.Build(t, "mlp")
		write(out, "out")
		write(data, "data")
		var f convertFlags
		fs := f.flagSet()
		if err := errors.Join(fs.Parse([]string{"--attest", statement, "--calib", data}), f.note(in)); err != nil {
			t.Fatal(err)
		}
		switch changed {
		case "in": // by a file with the same size and time
			b, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			was, err := os.Stat(in)
			if err != nil {
				t.Fatal(err)
			}
			write(in+".new", string(b))
			if err := errors.Join(os.Chtimes(in+".new", was.ModTime(), was.ModTime()), os.Rename(in+".new", in)); err != nil {
				t.Fatal(err)
			}
		case "data":
			write(data, "other data")
		}
		err := f.statement(t.Context(), fs, &onnxq.Report{Output: out})
		_, missing := os.Stat(statement)
		if (err != nil) != (changed != "") || (missing != nil) != (changed != "") || err != nil && !strings.Contains(err.Error(), "the file changed") {
			t.Errorf("%s: %v, %v", changed, err, missing)
		}
		os.Remove(statement)
	}
}

// The files of data are those that the conversion reads: of an index of weights also the shards, and the files beside it.
func TestDataFiles(t *testing.T) {
	folder := t.TempDir()
	index, shard, config := filepath.Join(folder, "m.safetensors.index.json"), filepath.Join(folder, "1.safetensors"), filepath.Join(folder, "quantize_config.json")
	err := errors.Join(os.WriteFile(index, []byte(`{"weight_map": {"a": "1.safetensors"}}`), 0o666), os.WriteFile(shard, nil, 0o666), os.WriteFile(config, nil, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	var f convertFlags
	f.weightsFrom, f.paths, f.names = []string{index, "none.gguf"}, []string{"SELF", "d.npz"}, "names.json"
	if got := f.dataFiles(); !slices.Equal(got, []string{"d.npz", index, shard, config, "none.gguf", "names.json"}) {
		t.Errorf("%q", got)
	}
}
