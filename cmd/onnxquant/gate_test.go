package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

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
