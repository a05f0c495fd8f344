package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	models = flag.Int("throughput.models", 0, "models of TestThroughput, of 200 MB each; 0: it is skipped")
	rounds = flag.Int("throughput.rounds", 2, "rounds of TestThroughput, in each of which copies and conversions take turns")
)

// Many models go from the server and back, as copies and as conversions. The least times count.
func TestThroughput(t *testing.T) {
	if *models == 0 {
		t.Skip("it measures: -throughput.models 50")
	}
	onnxquant, s := programs(t), newS3(t)
	model := big(t, "48") // 201 MB
	for _, suffix := range []string{"", ".data"} {
		s.put(t, "big.onnx"+suffix, model+suffix)
	}
	var jobs strings.Builder
	for i := range *models {
		fmt.Fprintf(&jobs, `{"in": "s3://bucket/big.onnx", "out": "%d.onnx"}`+"\n", i)
	}
	list := filepath.Join(t.TempDir(), "jobs.jsonl")
	if err := os.WriteFile(list, []byte(jobs.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var copied, converted time.Duration
	for n := range *rounds {
		c := elapsed(t, func() error { return s.copyAll(temporary, *models) })
		q := elapsed(t, func() error {
			out, err := exec.Command(onnxquant, "batch", "--no-gate", "-q", list, fmt.Sprintf("s3://bucket/out%d", n), "--", "--bits", "4", "--block", "32").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		t.Logf("round %d: copied in %.1f s, converted in %.1f s", n, c.Seconds(), q.Seconds())
		if n == 0 || c < copied {
			copied = c
		}
		if n == 0 || q < converted {
			converted = q
		}
	}
	t.Logf("%d models: %.2f times the time of copying", *models, converted.Seconds()/copied.Seconds())
}

func elapsed(t *testing.T, f func() error) time.Duration {
	t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// copyAll gets a model, and puts it under another name, as many times, as many at a time as there are processors.
func (f *faulty) copyAll(folder string, times int) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range times {
		g.Go(func() error {
			for _, suffix := range []string{"", ".data"} {
				path := filepath.Join(folder, fmt.Sprintf("%d.onnx%s", i, suffix))
				if err := f.copy("big.onnx"+suffix, path, fmt.Sprintf("copies/%d.onnx%s", i%2, suffix)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *faulty) copy(from, path, to string) error {
	defer os.Remove(path)
	r, err := http.Get(f.URL + "/bucket/" + from)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, r.Body); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	put, err := http.NewRequest(http.MethodPut, f.URL+"/bucket/"+to, io.NewSectionReader(file, 0, size))
	if err != nil {
		return err
	}
	put.ContentLength = size
	answer, err := http.DefaultClient.Do(put)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

// A batch of objects goes on after a kill, on another machine: what its manifest in the store has is not done again.
func TestBatch(t *testing.T) {
	onnxquant, s := programs(t), newS3(t)
	model, folder := big(t, "2"), t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	s.put(t, "big.onnx", model)
	s.put(t, "big.onnx.data", model+".data")
	var jobs strings.Builder
	const n = 12
	for i := range n {
		fmt.Fprintf(&jobs, `{"in": "s3://bucket/big.onnx", "out": "sub/%d.onnx"}`+"\n", i)
	}

	list := filepath.Join(folder, "jobs.jsonl")
	if err := os.WriteFile(list, []byte(jobs.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"batch", "--attest", "-j", "2", list, "s3://bucket/out", "--", "--bits", "8"}
	records := func() int { return bytes.Count(s.get(t, "out/manifest.jsonl"), []byte(`"status":"done"`)) }

	cmd := exec.Command(onnxquant, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	eventually(t, func() bool { return records() >= 2 })
	cmd.Process.Kill()
	cmd.Wait()
	time.Sleep(time.Second) // what was sent is there
	before := records()
	t.Setenv("TMPDIR", t.TempDir())
	out := mustRun(t, onnxquant, args...)
	if !strings.Contains(out, fmt.Sprintf("%d outputs in s3://bucket/out, %d of them before", n, before)) {
		t.Errorf("%d before: %s", before, out)
	}
	if text := mustRun(t, onnxquant, args...); !strings.Contains(text, fmt.Sprintf("%d of them before", n)) {
		t.Error(text)
	}
	local := filepath.Join(folder, "local.onnx")
	mustRun(t, onnxquant, "--bits", "8", model, local)
	want, err := os.ReadFile(local)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := s.get(t, fmt.Sprintf("out/sub/%d.onnx", i)); !bytes.Equal(got, want) {
			t.Errorf("%d: %d bytes, want %d", i, len(got), len(want))
		}
		if s.get(t, fmt.Sprintf("out/sub/%d.onnx.intoto.json", i)) == nil {
			t.Errorf("%d has no statement", i)
		}
	}
	// Another content of an output is noticed.
	s.put(t, "out/sub/3.onnx", model)
	if text := mustRun(t, onnxquant, args...); !strings.Contains(text, fmt.Sprintf("%d of them before", n-1)) {
		t.Error(text)
	}
}
