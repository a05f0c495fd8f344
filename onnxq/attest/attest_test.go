package attest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/attest"
)

func Example() {
	made := attest.Made{
		Version: "v1.0.0", Command: "convert", Options: "--bits 4",
		Outputs: []attest.File{{Path: "out.onnx", SHA256: strings.Repeat("a", 64)}},
		Model:   []attest.File{{Path: "models/in.onnx", SHA256: strings.Repeat("b", 64)}},
	}
	text, err := made.Statement()
	if err != nil {
		panic(err)
	}
	var s struct{ PredicateType string }
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err)
	}
	fmt.Println(s.PredicateType)
	// Output: https://slsa.dev/provenance/v1
}

// The statement has what the specifications of in-toto and SLSA require, and no folder, user or time.
func TestStatement(t *testing.T) {
	folder := t.TempDir()
	in := filepath.Join(folder, "in.onnx")
	if err := os.WriteFile(in, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := attest.Hash(t.Context(), in)
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, B.1
	if err != nil || f.SHA256 != abc || f.Bytes != 3 {
		t.Fatalf("%+v, %v", f, err)
	}
	made := attest.Made{Command: "convert", Options: "--calib data.npz", Outputs: []attest.File{f}, Model: []attest.File{f, f}, Data: []attest.File{f}, Origin: "https://example.org/in.onnx"}
	text, err := made.Statement()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), folder) {
		t.Errorf("a path is in %s", text)
	}
	var s struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]string
				ResolvedDependencies []struct {
					Name, URI   string
					Digest      map[string]string
					Annotations map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	d := s.Predicate.BuildDefinition
	switch {
	case s.Type != attest.StatementType, s.PredicateType != attest.PredicateType, d.BuildType != attest.BuildType:
		t.Errorf("types: %s", text)
	case len(s.Subject) != 1 || s.Subject[0].Name != "in.onnx" || s.Subject[0].Digest["sha256"] != abc:
		t.Errorf("subject: %s", text)
	case d.ExternalParameters["options"] != "--calib data.npz", s.Predicate.RunDetails.Builder.ID != "urn:onnxquant:unknown":
		t.Errorf("parameters: %s", text)
	case len(d.ResolvedDependencies) != 3 || d.ResolvedDependencies[0].URI != "https://example.org/in.onnx" || d.ResolvedDependencies[1].URI != "":
		t.Errorf("materials: %s", text)
	}
	for i, role := range []string{"model", "external data", "data"} {
		if got := d.ResolvedDependencies[i].Annotations["role"]; got != role {
			t.Errorf("material %d is %q, want %q", i, got, role)
		}
	}
	again, err := made.Statement()
	if err != nil || string(again) != string(text) {
		t.Errorf("another statement of the same: %s, %v", again, err)
	}
}

// The files of a model are its own and those of external data; folders of data are listed.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"b/2.npy", "b/1.npy", "a.npy"} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := attest.DataFiles([]string{filepath.Join(folder, "b"), filepath.Join(folder, "a.npy")})
	want := []string{filepath.Join(folder, "b", "1.npy"), filepath.Join(folder, "b", "2.npy"), filepath.Join(folder, "a.npy")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	model := modeltest.Build(t, "mlp")
	if got := attest.ModelFiles(model); !slices.Equal(got, []string{model}) {
		t.Errorf("%q", got)
	}
}

// Files that are missing, no files, or whose reading is stopped have an error.
func TestHashFails(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "f")
	if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	if _, err := attest.HashAll(ctx, []string{path}); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{folder, filepath.Join(folder, "none")} {
		if _, err := attest.HashAll(t.Context(), []string{bad}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
