package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onnxquant/onnxq"
	"onnxquant/testmodels"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// startHub serves files of owner/name as the hub does: a redirection with hashes, to another server, whose connections are cut
// after a megabyte. The token is hf_secret.
func startHub(t *testing.T, files map[string][]byte) (endpoint string, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another server")
		}
		http.ServeContent(&cutWriter{ResponseWriter: w, served: served}, r, "", time.Time{}, strings.NewReader(string(files[r.URL.Path[1:]])))
	}))
	t.Cleanup(store.Close)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/owner/name/resolve/"), "/")
		content, ok := files[name]
		switch {
		case r.Header.Get("Authorization") != "Bearer hf_secret":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("X-Repo-Commit", hubCommit)
			w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
			w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
			http.Redirect(w, r, store.URL+"/"+name+"?signature=hidden", http.StatusFound)
		}
	}))
	t.Cleanup(front.Close)
	return front.URL, served
}

// cutWriter cuts a connection after a megabyte.
type cutWriter struct {
	http.ResponseWriter
	sent   int
	served *atomic.Int64
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.sent += len(b); c.sent > 1<<20 {
		panic(http.ErrAbortHandler)
	}
	c.served.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

// A model of the hub is converted as one on the disk: the same bytes, by a conversion and by a batch. A plan reads its structure alone.
func TestRemote(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	if err := testmodels.WriteBig("m.onnx", testmodels.Big{Seed: 1, Layers: 2, K: 512, N: 1024}); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"m.onnx", "m.onnx.data"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files["onnx/"+name] = b
	}
	endpoint, served := startHub(t, files)
	t.Setenv("HF_ENDPOINT", endpoint)
	t.Setenv("HF_TOKEN", "hf_secret")
	run := func(status int, args ...string) string {
		t.Helper()
		cmd := exec.Command("onnxquant", args...)
		text, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Fatalf("%q: status %d: %s", args, got, text)
		}
		if strings.Contains(string(text), "secret") || strings.Contains(string(text), "hidden") {
			t.Errorf("%q: a secret is in %s", args, text)
		}
		return string(text)
	}
	const name = "hf://owner/name/onnx/m.onnx"
	run(0, "--quiet", "--block", "32", "m.onnx", "want.onnx")
	want, err := os.ReadFile("want.onnx")
	if err != nil {
		t.Fatal(err)
	}
	run(0, "--dry-run", "--block", "32", name)
	if n := served.Load(); n > int64(len(files["onnx/m.onnx"])) {
		t.Errorf("a plan read %d bytes", n)
	}
	text := run(0, "--block", "32", "--attest", "s.json", name, "out.onnx")
	if !strings.Contains(text, "hf://owner/name@"+hubCommit+"/onnx/m.onnx, 4.0 MiB") {
		t.Error(text)
	}
	run(0, "batch", "--no-gate", name, "out", "--", "--block", "32")
	for _, path := range []string{"out.onnx", filepath.Join("out", "m.onnx")} {
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is not as the output of the file: %v", path, err)
		}
	}
	for path, words := range map[string][]string{
		"s.json":                               {`"uri": "hf://owner/name@` + hubCommit + `/onnx/m.onnx"`, fmt.Sprintf("%x", sha256.Sum256(files["onnx/m.onnx.data"]))},
		filepath.Join("out", "manifest.jsonl"): {`"path":"hf://owner/name@` + hubCommit + `/onnx/m.onnx.data"`, fmt.Sprintf(`"sha256":"%x"`, sha256.Sum256(files["onnx/m.onnx.data"]))},
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range append(words, "") {
			if !strings.Contains(string(b), word) || strings.Contains(string(b), "secret") {
				t.Errorf("%s: no %s in %s", path, word, b)
			}
		}
	}
	if left, _ := filepath.Glob("*/.*.~fetch"); len(left) > 0 {
		t.Errorf("%q are left", left)
	}

	// After an error, what was read stays for the next attempt.
	before := served.Load()
	run(1, "--block", "32", "--attest", filepath.Join("none", "s.json"), name, "late.onnx")
	if _, err := os.Stat(filepath.Join(".late.onnx.~fetch", "m.onnx.data")); err != nil || served.Load() == before {
		t.Error(err)
	}
	before = served.Load()
	run(0, "--block", "32", name, "late.onnx")
	if _, err := os.Stat(".late.onnx.~fetch"); err == nil || served.Load() != before {
		t.Errorf("%v; %d bytes were read again", err, served.Load()-before)
	}

	// Other commands take the name, too. What tune prints makes the same bytes again.
	if text := run(0, "analyze", "--candidates", "int4:32", name); !strings.Contains(text, "int4:32") {
		t.Error(text)
	}
	run(0, "analyze", "--candidates", "int4:32", "--report", "a.html", name)
	run(0, "report", "--candidates", "none", "--quiet", "--html", "r.html", name, "want.onnx")
	for _, page := range []string{"a.html", "r.html"} {
		if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), name) || strings.Contains(string(b), "onnxquant-fetch-") {
			t.Errorf("%s does not name IN as it was given: %v", page, err)
		}
	}
	if text := run(1, "tune", "--score", "exit 3 #{}", "--max-drop", "0", "--force", name, "tuned.onnx"); !strings.Contains(text, "onnxquant: "+name+": ") {
		t.Error(text)
	}
	text = run(0, "tune", "--score", "echo 1 #{}", "--max-drop", "0", "--try", "weights", "--trials", "1", name, "tuned.onnx")
	command := text[strings.LastIndex(text, "again")+len("again"):]
	if !strings.Contains(command, " "+name+" tuned.onnx") {
		t.Error(text)
	}
	if text := run(2, "tune", "--score", "echo 1", "--max-drop", "0", name, "s3://bucket/out.onnx"); !strings.Contains(text, "s3://bucket/out.onnx: only outputs of a conversion or a batch can be objects; name a file") {
		t.Error(text)
	}

	// Nothing is done again, until the file changes.
	before = served.Load()
	if text := run(0, "batch", "--no-gate", name, "out", "--", "--block", "32"); !strings.Contains(text, "1 of them before") || served.Load() != before {
		t.Error(text)
	}
	changed := append([]byte{}, files["onnx/m.onnx.data"]...)
	changed[5] ^= 1
	files["onnx/m.onnx.data"] = changed
	if text := run(0, "batch", "--no-gate", name, "out", "--", "--block", "32"); !strings.Contains(text, "0 of them before") {
		t.Error(text)
	}
	t.Setenv("HF_TOKEN", "")
	if text := run(1, "--block", "32", name, "none.onnx"); !strings.Contains(text, "HF_TOKEN gives a token") {
		t.Error(text)
	}
	run(12, "batch", "--no-gate", name, "hf://owner/name/none.onnx", "out", "--", "--block", "64")
}

// No progress is kept for an object, so no message says that --resume continues.
func TestObjectIsNotResumed(t *testing.T) {
	err := fmt.Errorf("a.onnx: cut (%w)", onnxq.ErrKept)
	for object, want := range map[string]string{
		"":             "a.onnx: cut (the progress of the calibration is kept); --resume continues from there",
		"s3://bucket/": "a.onnx: cut; OUT is an object, for which no progress is kept",
	} {
		f := &calibFlags{object: object}
		got := f.resumable(err)
		if object != "" {
			got = unkept(got)
		}
		stopped := kept(errors.New("interrupted"), got).Error()
		if got.Error() != want || strings.Contains(stopped, "--resume") != (object == "") {
			t.Errorf("%q: %v; %s", object, got, stopped)
		}
	}
}
