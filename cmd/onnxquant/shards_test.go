//go:build linux || darwin

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Several processes find the codes of shares of the layers, while half of them are killed and run again. The last run
// writes the bytes of one process, and nothing is left but the codes.
func TestShards(t *testing.T) {
	folder, dims := t.TempDir(), slices.Repeat([]int{96}, 9)
	path := func(name string) string { return filepath.Join(folder, name) }
	err := errors.Join(testmodels.MLP(1, dims...).Write(path("in.onnx")), modeltest.WriteSamples(path("x.npy"), 60, dims[0]))
	if err != nil {
		t.Fatal(err)
	}
	// command has so little memory that the layers of a share are done one after another.
	command := func(out string, flags ...string) *exec.Cmd {
		args := slices.Concat([]string{"--bits", "4", "--block", "32", "--algorithm", "gptq", "--calib", path("x.npy"), "--memory", "2MiB", "--threads", "1"}, flags)
		c := exec.CommandContext(t.Context(), "onnxquant", append(args, path("in.onnx"), path(out))...)
		c.Dir = folder
		return c
	}
	if text, err := command("one.onnx").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}

	const shards = 4
	store := []string{"--calib-store", path("store")}
	var all sync.WaitGroup
	var killed atomic.Int64
	found := func() int {
		codes, _ := filepath.Glob(path("store/*.codes"))
		return len(codes)
	}
	for i := range shards {
		shard := append(slices.Clone(store), "--calib-shard", fmt.Sprintf("%d/%d", i, shards))
		all.Go(func() {
			if i%2 == 0 { // kill it once any process has found more
				c := command("out.onnx", shard...)
				if err := c.Start(); err != nil {
					t.Error(err)
				}
				for before, tries := found(), 0; found() == before && tries < 30000; tries++ {
					time.Sleep(time.Millisecond)
				}
				c.Process.Kill()
				if c.Wait() != nil {
					killed.Add(1)
				}
			}
			if text, err := command("out.onnx", shard...).CombinedOutput(); err != nil {
				t.Errorf("share %d: %v\n%s", i, err, text)
			}
		})
	}
	all.Wait()
	text, err := command("out.onnx", store...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	one, err1 := os.ReadFile(path("one.onnx"))
	merged, err2 := os.ReadFile(path("out.onnx"))
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(one, merged) {
		t.Errorf("%v; one process and %d, %d times killed: equal %v", err, shards, killed.Load(), bytes.Equal(one, merged))
	}
	if left, _ := filepath.Glob(path("*~*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if killed.Load() == 0 {
		t.Error("no process was killed")
	}

	// A file that is damaged is no longer taken.
	codes, _ := filepath.Glob(path("store/*.codes"))
	if err := os.WriteFile(codes[0], make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := command("other.onnx", store...).CombinedOutput(); err == nil || !strings.Contains(string(text), "is damaged: remove it, and find its share again") {
		t.Errorf("damaged codes: %v\n%s", err, text)
	}
}

// The arguments of the manifest for Kubernetes, and the script for Slurm, make the bytes of one process.
func TestDeploy(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	err := errors.Join(testmodels.MLP(1, 64, 64, 64).Write(path("in.onnx")), modeltest.WriteSamples(path("ids.npz.npy"), 20, 64))
	if err != nil {
		t.Fatal(err)
	}
	run := func(env []string, name string, args ...string) {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env = folder, append(os.Environ(), env...)
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v %s %q: %v\n%s", env, name, args, err, text)
		}
	}
	same := func(what string) {
		one, err1 := os.ReadFile(path("one.onnx"))
		made, err2 := os.ReadFile(path("out.onnx"))
		if err := errors.Join(err1, err2, os.Remove(path("out.onnx"))); err != nil || !bytes.Equal(one, made) {
			t.Errorf("%s: %v, equal %v", what, err, bytes.Equal(one, made))
		}
	}
	run(nil, "onnxquant", "--bits=4", "--block=32", "--algorithm=gptq", "--calib=ids.npz.npy", "--memory=8GiB", "in.onnx", "one.onnx")

	text, err := os.ReadFile("../../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shards, merge, _ := strings.Cut(string(text), "\n---\n")
	arguments := func(manifest string, index int) (args []string) {
		for _, m := range regexp.MustCompile(`(?m)^ +- (--\S+|/data/\S+)$`).FindAllStringSubmatch(manifest, -1) {
			a := strings.NewReplacer("/data/ids.npz", "ids.npz.npy", "/data/", "", "$(JOB_COMPLETION_INDEX)", strconv.Itoa(index)).Replace(m[1])
			args = append(args, a)
		}
		return args
	}
	of := regexp.MustCompile(`completions: (\d+)`).FindStringSubmatch(shards)
	if len(of) != 2 || !strings.Contains(shards, "--calib-shard=$(JOB_COMPLETION_INDEX)/"+of[1]) {
		t.Fatalf("completions of the manifest: %q", of)
	}
	n, _ := strconv.Atoi(of[1])
	for i := range n {
		run(nil, "onnxquant", arguments(shards, i)...)
	}
	run(nil, "onnxquant", arguments(merge, 0)...)
	same("kubernetes.yaml")

	script, err := filepath.Abs("../../deploy/slurm.sh")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{script, "--bits=4", "--block=32", "ids.npz.npy", "in.onnx", "out.onnx"}
	for _, i := range []string{"0", "1"} {
		run([]string{"SLURM_ARRAY_TASK_ID=" + i, "SLURM_ARRAY_TASK_COUNT=2"}, "bash", args...)
	}
	run(nil, "bash", args...)
	same("slurm.sh")
}
