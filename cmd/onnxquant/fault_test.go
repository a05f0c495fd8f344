//go:build linux || darwin

package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/modelfile"
	"onnxquant/testmodels"
)

// What may befall a conversion. Whatever does: the output is the old one whole or
// the new one whole, model and external data are of one run, the input is as it
// was, and the next conversion leaves no other file.
//
// make crash runs all this longer and on larger models.
var (
	kills     = flag.Int("fault.kills", 50, "conversions to kill")
	faultSeed = flag.Uint64("fault.seed", 1, "seed of the faults")
	faultSide = flag.Int("fault.side", 96, "rows and columns of the models' weights")
)

// Commands that the tests run beside onnxquant itself, under a handicap that they
// take from their first argument.
var handicapped = map[string]func(){
	"onnxquant-filesize": handicap(func(n int) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(n), Max: uint64(n)})
	}),
	"onnxquant-user": handicap(syscall.Setuid),
}

func handicap(set func(n int) error) func() {
	return func() {
		n, err := strconv.Atoi(os.Args[1])
		if err == nil {
			err = set(n)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Args = slices.Delete(os.Args, 1, 2)
		main()
	}
}

// A job is a conversion.
type job struct {
	in    string
	form  string // of --external-data
	want  string // the fingerprint of its output
	sizes []int64
}

// stage is a target with the jobs that have it as their output.
type stage struct {
	*testing.T
	rng    *rand.Rand
	folder string
	jobs   []job
	inputs map[string]string // names and hashes of their files
}

const noModel = "no model"

func newStage(t *testing.T) *stage {
	s := &stage{T: t, rng: rand.New(rand.NewPCG(*faultSeed, 0)), folder: t.TempDir(), inputs: map[string]string{}}
	n := *faultSide
	for seed := range uint64(2) {
		in := filepath.Join(t.TempDir(), "in.onnx")
		// The fourth weight is copied, not quantized.
		if err := testmodels.External(testmodels.MLP(seed, n, n, n, 3*n, 1), "weights.bin").Write(in); err != nil {
			t.Fatal(err)
		}
		maps.Copy(s.inputs, hashes(t, filepath.Dir(in)))
		for _, form := range []string{"never", "always"} {
			j := job{in: in, form: form}
			out := filepath.Join(t.TempDir(), "out.onnx")
			if b, err := s.command("onnxquant", j, out).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			j.want, j.sizes = fingerprint(t, out), fileSizes(t, filepath.Dir(out))
			s.jobs = append(s.jobs, j)
		}
	}
	return s
}

func (s *stage) out() string { return filepath.Join(s.folder, "out.onnx") }

func (s *stage) job() job { return s.jobs[s.rng.IntN(len(s.jobs))] }

func (s *stage) command(name string, j job, out string, before ...string) *exec.Cmd {
	return exec.Command(name, append(before, "--quiet", "--no-provenance", "--block", "32", "--exclude", "w3", "--external-data", j.form, j.in, out)...)
}

// convert does a job undisturbed and checks all that there is then.
func (s *stage) convert(j job) {
	s.Helper()
	if b, err := s.command("onnxquant", j, s.out()).CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, b)
	}
	s.check(j.want)
	want := []string{"out.onnx"}
	if j.form == "always" {
		want = append(want, "out.onnx.data")
	}
	if got := slices.Sorted(maps.Keys(hashes(s.T, s.folder))); !slices.Equal(got, paths(s.folder, want)) {
		s.Fatalf("the folder holds %q, want %q", got, want)
	}
}

func paths(folder string, names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(folder, name))
	}
	return paths
}

// check checks that the target is one of those that are wanted, and the input what
// it was. It returns the target's fingerprint.
func (s *stage) check(wants ...string) string {
	s.Helper()
	got := fingerprint(s.T, s.out())
	if !slices.Contains(wants, got) {
		s.Fatalf("the target is neither old nor new: %s, want %s", got, strings.Join(wants, " or "))
	}
	now := map[string]string{}
	for _, j := range s.jobs {
		maps.Copy(now, hashes(s.T, filepath.Dir(j.in)))
	}
	if !maps.Equal(now, s.inputs) {
		s.Fatal("the input was changed")
	}
	return got
}

// failed checks a conversion that should have failed, and have left all as it was.
func (s *stage) failed(output []byte, err error, before map[string]string, why string) {
	s.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		s.Fatalf("%v: %s", err, output)
	}
	if line := string(output); strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "onnxquant: ") || !strings.Contains(line, why) {
		s.Errorf("message %q, want %q", line, why)
	}
	if after := hashes(s.T, s.folder); !maps.Equal(after, before) {
		s.Errorf("the folder holds %q, held %q", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// fingerprint identifies a model by its structure, up to where its data are, and
// all contents. It fails if there is a model that is not whole.
func fingerprint(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return noModel
	}
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatalf("the model in place is broken: %v", err)
	}
	defer m.Close()
	h := sha256.New()
	for _, w := range modelfile.Tensors(m.Proto) {
		p, err := m.Payload(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(h, io.NewSectionReader(p, 0, p.Size())); err != nil {
			t.Fatal(err)
		}
		w.ExternalData, w.DataLocation, w.Payload = nil, nil, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	if err != nil {
		t.Fatal(err)
	}
	h.Write(b)
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// hashes returns the files of a folder with hashes of their contents.
func hashes(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		name := filepath.Join(folder, e.Name())
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return found
}

// fileSizes returns the sizes of the files in a folder.
func fileSizes(t *testing.T, folder string) (sizes []int64) {
	t.Helper()
	for name := range hashes(t, folder) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	return sizes
}

var temporary = regexp.MustCompile(`^out\.onnx\.~([A-Z2-7]{3}(\.tmp|\.ref|\.new)?|lock)$`)

// leftovers lists the kinds of temporary files there are, and fails if there are files that
// cannot be told to be such.
func (s *stage) leftovers() (kinds []string) {
	s.Helper()
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "out.onnx" || e.Name() == "out.onnx.data" {
			continue
		}
		found := temporary.FindStringSubmatch(e.Name())
		if found == nil {
			s.Fatalf("left %s", e.Name())
		}
		kind := found[2]
		if kind == "" {
			kind = "data"
		}
		if found[1] == "lock" {
			kind = "lock"
		}
		kinds = append(kinds, strings.TrimPrefix(kind, "."))
	}
	slices.Sort(kinds)
	return kinds
}

// Conversions are killed at moments between their beginning and their end: half of
// them at any, half of them once files are there. A killed one may meet what an
// earlier one left.
func TestFaultKill(t *testing.T) {
	s := newStage(t)
	found := map[string]int{}
	now, longest := noModel, 50*time.Millisecond
	for killed := 0; killed < *kills; {
		j := s.job()
		if !s.killed(j, time.Duration(s.rng.Int64N(int64(longest))), killed%2 == 1) {
			longest -= longest / 10
			now = s.check(j.want)
			continue
		}
		longest += longest / 50
		killed++
		became := s.check(now, j.want)
		what := "old"
		if became != now {
			what = "new"
		}
		found[fmt.Sprintf("%s model, beside it %v", what, s.leftovers())]++
		if now = became; s.rng.IntN(2) == 0 {
			j := s.job()
			s.convert(j)
			now = j.want
		}
		if s.rng.IntN(8) == 0 {
			s.clear()
			now = noModel
		}
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%4d times %s", found[what], what)
	}
}

// killed kills a job after a while, or a while after it has made a file. It reports
// whether it came in time.
func (s *stage) killed(j job, after time.Duration, begun bool) bool {
	s.Helper()
	before := len(s.leftovers())
	cmd := s.command("onnxquant", j, s.out())
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for begun && len(done) == 0 && len(s.leftovers()) == before {
		time.Sleep(50 * time.Microsecond)
	}
	select {
	case <-time.After(after):
		cmd.Process.Kill()
	case err := <-done:
		done <- err
	}
	err := <-done
	if err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		s.Fatal(err)
	}
	return err != nil
}

func (s *stage) clear() {
	for name := range hashes(s.T, s.folder) {
		if err := os.Remove(name); err != nil {
			s.Fatal(err)
		}
	}
}

// Several conversions to one target take turns.
func TestFaultRace(t *testing.T) {
	s := newStage(t)
	for range 1 + *kills/20 {
		var running []*exec.Cmd
		var outputs []*strings.Builder
		for _, j := range s.jobs {
			cmd, b := s.command("onnxquant", j, s.out()), &strings.Builder{}
			cmd.Stdout, cmd.Stderr = b, b
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running, outputs = append(running, cmd), append(outputs, b)
		}
		for i, cmd := range running {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, outputs[i])
			}
		}
		s.check(s.jobs[0].want, s.jobs[2].want)
		if left := s.leftovers(); len(left) > 0 {
			t.Errorf("left %v", left)
		}
		if s.rng.IntN(3) == 0 {
			s.clear()
		}
	}
}

// A limit on the size of files stops the writing at any place.
func TestFaultFileSize(t *testing.T) {
	s := newStage(t)
	for range 1 + *kills/10 {
		j := s.job()
		s.convert(s.job())
		before := hashes(t, s.folder)
		limit := s.rng.Int64N(slices.Max(j.sizes))
		b, err := s.command("onnxquant-filesize", j, s.out(), fmt.Sprint(limit)).CombinedOutput()
		s.failed(b, err, before, syscall.EFBIG.Error())
	}
}

// Nothing may be written to the folder.
func TestFaultDenied(t *testing.T) {
	s := newStage(t)
	t.Chdir(s.folder) // other users do not get here
	for _, old := range []job{{}, s.jobs[0], s.jobs[1]} {
		if old.in != "" {
			s.convert(old)
		}
		before := hashes(t, s.folder)
		for _, j := range s.jobs {
			if err := os.Chmod(s.folder, 0o555); err != nil {
				t.Fatal(err)
			}
			cmd := s.asUser(j)
			b, err := cmd.CombinedOutput()
			if err := os.Chmod(s.folder, 0o777); err != nil {
				t.Fatal(err)
			}
			s.failed(b, err, before, "permission denied")
		}
	}
}

// asUser runs a job as one whom permissions bind.
func (s *stage) asUser(j job) *exec.Cmd {
	const nobody = 65534
	if os.Getuid() != 0 {
		return s.command("onnxquant", j, "out.onnx")
	}
	return s.command("onnxquant-user", j, "out.onnx", fmt.Sprint(nobody))
}

// The external data is cut off at some moment: the conversion was done by then, or
// it fails.
func TestFaultInput(t *testing.T) {
	s := newStage(t)
	longest, failures := 50*time.Millisecond, 0
	for range 1 + *kills/4 {
		old, j := s.job(), s.job()
		s.convert(old)
		before := hashes(t, s.folder)
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(filepath.Dir(j.in))); err != nil {
			t.Fatal(err)
		}
		j.in = filepath.Join(folder, "in.onnx")

		var output strings.Builder
		cmd := s.command("onnxquant", j, s.out())
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(s.rng.Int64N(int64(longest))))
		if err := os.Truncate(filepath.Join(folder, "weights.bin"), s.rng.Int64N(1000)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			s.failed([]byte(output.String()), err, before, "weights.bin")
			longest += longest / 50
			failures++
			continue
		}
		s.check(j.want)
		longest -= longest / 10
	}
	t.Logf("%d conversions failed, %d were done in time", failures, 1+*kills/4-failures)
}
