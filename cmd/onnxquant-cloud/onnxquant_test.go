package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// programs builds onnxquant and this program into a folder, and returns the path of onnxquant.
func programs(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds onnxquant")
	}
	folder := t.TempDir()
	for from, name := range map[string]string{"../..": "./cmd/onnxquant", ".": "."} {
		cmd := exec.Command("go", "build", "-o", folder+string(filepath.Separator), name)
		cmd.Dir = from
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	return filepath.Join(folder, "onnxquant"+suffix)
}

// big writes a model with external data.
func big(t *testing.T, layers string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "big.onnx")
	cmd := exec.Command("go", "run", "./testmodels/mkmodel", "-layers", layers, "-k", "1024", "-n", "1024", "big", path)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if bytes.Contains(out, []byte("of-tests")) {
		t.Errorf("a secret is in %s", out)
	}
	return string(out), err
}

func mustRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := run(t, program, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// put writes a file to an object, by the server alone.
func (f *faulty) put(t *testing.T, key, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest(http.MethodPut, f.URL+"/bucket/"+key, bytes.NewReader(content))
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	response.Body.Close()
}

// get returns the content of an object; nil: there is none.
func (f *faulty) get(t *testing.T, key string) []byte {
	t.Helper()
	response, err := http.Get(f.URL + "/bucket/" + key)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil
	}
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response.StatusCode, err)
	}
	return content
}

// leftOvers lists uploads that were neither finished nor given up.
func (f *faulty) leftOvers(t *testing.T) string {
	return string(f.get(t, "?uploads"))
}

// An object is converted to another one, with the bytes of a conversion of files, through a server that fails now and then.
func TestConversion(t *testing.T) {
	onnxquant, s := programs(t), newS3(t)
	model, folder := big(t, "12"), t.TempDir()
	t.Setenv("TMPDIR", folder)
	s.put(t, "in/big.onnx", model)
	s.put(t, "in/big.onnx.data", model+".data")
	local := filepath.Join(t.TempDir(), "out.onnx")
	flags := []string{"--bits", "8", "--external-data", "always"}
	mustRun(t, onnxquant, append(flags, model, local)...)

	var requests, cuts atomic.Int32
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		switch n := requests.Add(1); {
		case n%7 == 3:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case r.Method == http.MethodGet && r.Header.Get("Range") != "" && cuts.Add(1) <= 3:
			s.handler.ServeHTTP(&cut{w, 5 << 20}, r)
			return true
		case r.Method == http.MethodPut && n%5 == 2:
			io.CopyN(io.Discard, r.Body, 100<<10)
			panic(http.ErrAbortHandler)
		}
		return false
	}
	text := mustRun(t, onnxquant, append(flags, "s3://bucket/in/big.onnx", "s3://bucket/out/out.onnx")...)
	s.before = nil
	if !strings.Contains(text, "s3://bucket/out/out.onnx and s3://bucket/out/out.onnx.data") {
		t.Error(text)
	}
	for _, suffix := range []string{"", ".data"} {
		want, err := os.ReadFile(local + suffix)
		if err != nil || !bytes.Equal(want, s.get(t, "out/out.onnx"+suffix)) {
			t.Errorf("out.onnx%s has other bytes, %v", suffix, err)
		}
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for _, args := range [][]string{
		{"verify", "--engine", "none", "s3://bucket/in/big.onnx", "s3://bucket/out/out.onnx"},
		{"inspect", "s3://bucket/out/out.onnx"},
		{"report", "-q", "--engine", "none", "--candidates", "none", "--html", filepath.Join(folder, "page.html"), "s3://bucket/in/big.onnx", local},
		{"--dry-run", "s3://bucket/in/big.onnx"},
	} {
		mustRun(t, onnxquant, args...)
	}
	for name, why := range map[string]string{
		"s3://bucket/none.onnx": "s3://bucket/none.onnx: there is no such object or bucket",
		"s3://bucket":           "want s3://BUCKET/KEY of an object",
		"s3://bucket/a//b":      "the key is not a plain path",
	} {
		if text, err := run(t, onnxquant, name, local); err == nil || !strings.Contains(text, why) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A conversion that is killed, or interrupted, while it writes leaves the object as it was, and no parts of it.
func TestKilled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	onnxquant, s := programs(t), newS3(t)
	model := big(t, "24")
	t.Setenv("TMPDIR", t.TempDir())
	s.put(t, "out.onnx", model)
	before := s.get(t, "out.onnx")
	for _, signal := range []os.Signal{os.Kill, os.Interrupt} {
		reached := make(chan struct{}, 1)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("partNumber") == "1" {
				reached <- struct{}{}
				time.Sleep(200 * time.Millisecond)
			}
			return false
		}
		cmd := exec.Command(onnxquant, "--bits", "8", "--external-data", "never", model, "s3://bucket/out.onnx")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
		case <-time.After(time.Minute):
			t.Error("no part is written")
		}
		cmd.Process.Signal(signal)
		if err := cmd.Wait(); err == nil {
			t.Error("the conversion was not stopped")
		}
		eventually(t, func() bool { return !strings.Contains(s.leftOvers(t), "<UploadId>") })
		if !bytes.Equal(s.get(t, "out.onnx"), before) {
			t.Errorf("%v: the object was changed", signal)
		}
	}
}

// A model with external data that is replaced stays whole if the new one cannot be written; an output that cannot be sent is kept.
func TestReplaced(t *testing.T) {
	onnxquant, s := programs(t), newS3(t)
	model, folder := big(t, "2"), t.TempDir()
	t.Setenv("TMPDIR", folder)
	convert := func(bits string) (string, error) {
		return run(t, onnxquant, "--bits", bits, "--external-data", "always", model, "s3://bucket/o.onnx")
	}
	has := func(key string) bool { return s.get(t, key) != nil }
	if text, err := convert("8"); err != nil || !has("o.onnx.data") {
		t.Fatal(text, err)
	}
	before, data := s.get(t, "o.onnx"), s.get(t, "o.onnx.data")
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/o.onnx")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	}
	text, err := convert("4")
	if err == nil || !bytes.Equal(s.get(t, "o.onnx"), before) || !bytes.Equal(s.get(t, "o.onnx.data"), data) {
		t.Error("the model was changed", text)
	}
	_, kept, _ := strings.Cut(strings.TrimSpace(text), "it is kept as ")
	kept = strings.TrimSuffix(kept, ")")
	if _, err := os.Stat(kept); err != nil || !strings.HasPrefix(kept, folder) {
		t.Error(text)
	}
	os.RemoveAll(filepath.Dir(kept))
	s.before = nil
	for i, bits := range []string{"4", "8"} {
		if text, err := convert(bits); err != nil {
			t.Fatal(text)
		}
		if has("o.onnx.data") != (i == 1) || has("o.onnx.1.data") != (i == 0) {
			t.Error("data are missing, or stay")
		}
		mustRun(t, onnxquant, "verify", "--engine", "none", model, "s3://bucket/o.onnx")
	}
	if !bytes.Equal(s.get(t, "o.onnx"), before) || !bytes.Equal(s.get(t, "o.onnx.data"), data) {
		t.Error("the bytes are others than at first")
	}
	// An explicit name that the model uses is refused; a bucket that is missing is noticed first.
	for _, c := range [][]string{
		{"--external-data-name", "o.onnx.data", model, "s3://bucket/o.onnx", "has its data in o.onnx.data"},
		{model, "s3://another/o.onnx", "s3://another/o.onnx: there is no such bucket"},
	} {
		if text, err := run(t, onnxquant, c[:len(c)-1]...); err == nil || !strings.Contains(text, c[len(c)-1]) || strings.Contains(text, "quantized") {
			t.Error(text)
		}
	}
	// A batch does the same.
	for i, bits := range []string{"8", "4"} {
		mustRun(t, onnxquant, "batch", "--no-gate", model, "s3://bucket/batch", "--", "--external-data", "always", "--bits", bits)
		if has("batch/big.onnx.data") != (i == 0) || has("batch/big.onnx.1.data") != (i == 1) {
			t.Error("data are missing, or stay")
		}
	}
	if text := mustRun(t, onnxquant, "batch", "--no-gate", model, "s3://bucket/batch", "--", "--external-data", "always", "--bits", "4"); !strings.Contains(text, "1 of them before") {
		t.Error(text)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
