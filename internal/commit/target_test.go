package commit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// version is a model that knows its data: all hold the same letter.
func version(v string, locations ...string) *onnxpb.ModelProto {
	tensor := func() *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: proto.String("w"), DataType: proto.Int32(int32(dtype.Uint8)), Dims: []int64{5000}}
	}
	var all []*onnxpb.TensorProto
	for _, location := range locations {
		w := tensor()
		w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: proto.String("location"), Value: &location}}
		all = append(all, w)
	}
	if len(all) == 0 {
		all = append(all, tensor())
		all[0].RawData = bytes.Repeat([]byte(v), 5000)
	}
	return &onnxpb.ModelProto{IrVersion: proto.Int64(10), DocString: &v, Graph: &onnxpb.GraphProto{Initializer: all}}
}

// dataPath1 is the path of the only external data file.
func dataPath1(path string) string { return Beside(path, DataNames(path, "", 1)[0]) }

// namesOf returns the names of the external data files of a form.
func namesOf(path, form string) []string {
	switch form {
	case "external":
		return DataNames(path, "", 1)
	case "shards":
		return DataNames(path, "weights.bin", 2)
	}
	return nil
}

func formOf(external bool) string {
	if external {
		return "external"
	}
	return "embedded"
}

// put makes a version the model at path, with external data or without.
func put(path, v string, external bool) error { return putForm(path, v, formOf(external)) }

func putForm(path, v, form string) error {
	names := namesOf(path, form)
	target, err := Create(context.Background(), path, nil, names)
	if err != nil {
		return err
	}
	defer target.Abort()
	write := func(w io.WriterAt, locations []string) error {
		b, err := proto.Marshal(version(v, locations...))
		if err != nil {
			return err
		}
		_, err = w.WriteAt(b, 0)
		return err
	}
	for _, f := range target.Data {
		if _, err := f.WriteString(strings.Repeat(v, 5000)); err != nil {
			return err
		}
	}
	if err := write(target.Model, names); err != nil {
		return err
	}
	target.Flush()
	m, err := target.Reopen()
	if err != nil {
		return err
	}
	m.Close()
	return target.Commit(context.Background(), write)
}

func mustPut(t *testing.T, path, v string, external bool) {
	t.Helper()
	if err := put(path, v, external); err != nil {
		t.Fatal(err)
	}
}

// found returns the version at path, "" if there is none.
func found(t *testing.T, path string) string {
	t.Helper()
	m, err := modelfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !fileExists(path) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	v := m.Proto.GetDocString()
	for _, w := range m.Proto.Graph.Initializer {
		p, err := m.Payload(w)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, p.Size())
		if _, err := p.ReadAt(got, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if string(got) != strings.Repeat(v, 5000) {
			t.Fatalf("the model is version %s, its data begin with %.1s", v, got)
		}
	}
	return v
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wantFiles checks that a model is alone in its folder, or with its data.
func wantFiles(t *testing.T, path string, external bool) {
	t.Helper()
	wantForm(t, path, formOf(external))
}

func wantForm(t *testing.T, path, form string) {
	t.Helper()
	want := append([]string{filepath.Base(path)}, namesOf(path, form)...)
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

// before makes a fresh target that holds version A in the old form.
func before(t *testing.T, old string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out.onnx")
	if old != "none" {
		if err := putForm(path, "A", old); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// changes lists forms of an old model and of the new one that replaces it.
var changes = [][2]string{
	{"none", "embedded"}, {"none", "external"},
	{"embedded", "embedded"}, {"embedded", "external"},
	{"external", "embedded"}, {"external", "external"}, {"external", "shards"},
	{"shards", "shards"},
}

// nexts lists forms of a model that replaces one of the form new, of which it leaves nothing.
func nexts(form string) []string {
	if form == "shards" {
		return []string{"shards"}
	}
	return []string{"embedded", "external"}
}

// stopAt has the nth change of a Commit fail by stop.
func stopAt(n int, stop func() error) {
	step = func() error {
		if n--; n == 0 {
			return stop()
		}
		return nil
	}
}

// dieConverting puts version B in place, and exits at a step of that.
func dieConverting(args []string) {
	lockWait = 50 * time.Millisecond
	n, _ := strconv.Atoi(args[2])
	linkShards(args[1])
	stopAt(n, func() error { os.Exit(3); return nil })
	if err := putForm(args[0], "B", args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// linkShards has an exchange link the data of the form shards, as if they were large, and copy
// those of other forms.
func linkShards(form string) (undo func()) {
	n := mostCopied
	if form == "shards" {
		mostCopied = 0
	}
	return func() { mostCopied = n }
}

// Whenever a conversion dies, the target is old or new as a whole, and the next
// one works and leaves nothing.
func TestDyingCommit(t *testing.T) {
	for _, change := range changes {
		old, form := change[0], change[1]
		for n := 1; ; n++ {
			died := false
			for _, next := range nexts(form) {
				path := before(t, old)
				out, err := converting(path, form, strconv.Itoa(n)).CombinedOutput()
				var exit *exec.ExitError
				if died = errors.As(err, &exit) && exit.ExitCode() == 3; !died && err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				checkStopped(t, fmt.Sprintf("%s, then %s, step %d", old, form, n), path, old, next)
			}
			if !died {
				if n < 3 {
					t.Errorf("%s, then %s: only %d steps", old, form, n-1)
				}
				break
			}
		}
	}
}

// The onnx package refuses external data with several names. What is in place at any step of an
// exchange has one, unless it is large.
func TestNamesOfData(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the number of names is not in os.FileInfo")
	}
	defer func(n int64) { step, mostCopied = func() error { return nil }, n }(mostCopied)
	for _, form := range []string{"external", "shards"} {
		for _, large := range []bool{false, true} {
			mostCopied = 5000
			if form == "shards" {
				mostCopied += 5000
			}
			if large {
				mostCopied--
			}
			path := before(t, form)
			several := 0
			step = func() error {
				m, err := modelfile.Open(path)
				if err != nil {
					return err
				}
				defer m.Close()
				for name := range m.Externals() {
					info, err := os.Stat(Beside(path, name))
					if err != nil {
						return err
					}
					if reflect.ValueOf(info.Sys()).Elem().FieldByName("Nlink").Convert(reflect.TypeFor[int]()).Int() > 1 {
						several++
					}
				}
				return nil
			}
			if err := putForm(path, "B", form); err != nil {
				t.Fatal(err)
			}
			if (several > 0) != large {
				t.Errorf("%s, large %v: %d times, data have several names", form, large, several)
			}
			if v := found(t, path); v != "B" {
				t.Errorf("found version %q", v)
			}
			wantForm(t, path, form)
		}
	}
}

// So it is whenever one fails; it leaves nothing that is not needed.
func TestFailingCommit(t *testing.T) {
	defer func() { step = func() error { return nil } }()
	errStop := errors.New("stopped")
	for _, change := range changes {
		old, form := change[0], change[1]
		for n, failed := 1, true; failed; n++ {
			for _, next := range nexts(form) {
				path := before(t, old)
				stopAt(n, func() error { return errStop })
				undo := linkShards(form)
				err := putForm(path, "B", form)
				undo()
				stopAt(0, nil)
				if failed = errors.Is(err, errStop); !failed && err != nil {
					t.Fatal(err)
				}
				for _, name := range names(t, filepath.Dir(path)) {
					if strings.HasSuffix(name, "lock") || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".ref") || strings.HasSuffix(name, ".new") {
						t.Errorf("%s, then %s, step %d: left %s", old, form, n, name)
					}
				}
				checkStopped(t, fmt.Sprintf("%s, then %s, step %d", old, form, n), path, old, next)
			}
		}
	}
}

// checkStopped checks a target where version A was and B should have been put.
func checkStopped(t *testing.T, what, path, old, form string) {
	t.Helper()
	v := found(t, path)
	if v == "" && old != "none" || v != "" && !strings.Contains("AB", v) {
		t.Errorf("%s: found version %q", what, v)
	}
	if err := Check(path, nil, namesOf(path, form)); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	// One that is given up does no harm either.
	target, err := Create(t.Context(), path, nil, namesOf(path, form))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	target.Abort()
	if now := found(t, path); now != v {
		t.Errorf("%s: version %q became %q", what, v, now)
	}
	if err := putForm(path, "C", form); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if v := found(t, path); v != "C" {
		t.Errorf("%s: found version %q after the next conversion", what, v)
	}
	wantForm(t, path, form)
}

func TestOneAtATime(t *testing.T) {
	defer func(d time.Duration) { lockWait = d }(lockWait)
	lockWait = 50 * time.Millisecond
	path := filepath.Join(t.TempDir(), "out.onnx")
	first, err := Create(t.Context(), path, nil, namesOf(path, "external"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), path, nil, nil); !errors.Is(err, ErrTarget) || !strings.HasSuffix(err.Error(), "another conversion is writing out.onnx") {
		t.Errorf("error %v", err)
	}
	if out, err := converting(path, "embedded", "0").CombinedOutput(); err == nil || !strings.Contains(string(out), "another conversion is writing") {
		t.Errorf("another process: %v, %s", err, out)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	lockWait = time.Hour
	errStop := errors.New("stopped")
	time.AfterFunc(time.Millisecond, func() { stop(errStop) })
	if _, err := Create(ctx, path, nil, namesOf(path, "external")); !errors.Is(err, errStop) {
		t.Errorf("waiting in vain: %v", err)
	}
	first.Abort()
	if left := names(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	mustPut(t, path, "A", true)
	wantFiles(t, path, true)
}

// The lock excludes, though its file is removed and made anew all the time.
func TestLockExcludes(t *testing.T) {
	defer func(d time.Duration) { lockWait = d }(lockWait)
	lockWait = time.Millisecond
	path := filepath.Join(t.TempDir(), "out.onnx")
	var owners atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := 0; n < 300 && !t.Failed(); {
				f, err := lock(t.Context(), path, nil)
				if err != nil {
					continue // busy
				}
				if owners.Add(1) != 1 {
					t.Error("two have the lock")
				}
				runtime.Gosched()
				owners.Add(-1)
				removeLocked(f)
				n++
			}
		})
	}
	wg.Wait()
}

func TestManyAtOnce(t *testing.T) {
	defer func(d time.Duration) { lockWait = d }(lockWait)
	lockWait = 20 * time.Second
	path := filepath.Join(t.TempDir(), "out.onnx")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				if err := put(path, string(rune('A'+i)), (i+j)%3 > 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustPut(t, path, "Z", true)
	if v := found(t, path); v != "Z" {
		t.Errorf("found version %s", v)
	}
	wantFiles(t, path, true)
}

// Whether a data file is ours cannot be told while another conversion puts its own
// in place: it is that one's turn.
func TestTakingTurns(t *testing.T) {
	path := before(t, "none")
	held, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dataPath1(path), []byte("half of a pair"), 0o666); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- put(path, "B", true) }()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(5 * lockPoll):
	}
	if err := os.Remove(dataPath1(path)); err != nil {
		t.Fatal(err)
	}
	removeLocked(held)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if v := found(t, path); v != "B" {
		t.Errorf("found version %q", v)
	}
	wantFiles(t, path, true)
}

func TestForms(t *testing.T) {
	path := before(t, "none")
	for i, form := range []string{"external", "embedded", "external", "external", "embedded", "embedded", "external"} {
		v := string(rune('A' + i))
		mustPut(t, path, v, form == "external")
		if got := found(t, path); got != v {
			t.Fatalf("found version %s, want %s", got, v)
		}
		wantFiles(t, path, form == "external")
	}
}

// A data file that no model of that name refers to is nobody's to touch.
func TestDataOfOthers(t *testing.T) {
	path := before(t, "embedded")
	if err := os.WriteFile(dataPath1(path), []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := put(path, "B", true); !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "belongs to no model") {
		t.Errorf("error %v", err)
	}
	mustPut(t, path, "C", false)
	if b, err := os.ReadFile(dataPath1(path)); string(b) != "precious" {
		t.Errorf("the file of another holds %q, %v", b, err)
	}
	wantFiles(t, path, true)

	// Nor is the data file that the input shares.
	shared := before(t, "external")
	other := filepath.Join(filepath.Dir(shared), "other.onnx")
	b, err := os.ReadFile(shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, b, 0o666); err != nil {
		t.Fatal(err)
	}
	in, err := modelfile.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := Check(shared, in, namesOf(shared, "external")); err == nil || !strings.Contains(err.Error(), "file of the input model") {
		t.Errorf("error %v", err)
	}
	target, err := Create(t.Context(), shared, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ = proto.Marshal(version("B"))
	if _, err := target.Model.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := target.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if found(t, shared) != "B" || found(t, other) != "A" {
		t.Error("the input was changed")
	}
}

// A data file that another model uses, too, is neither replaced nor removed.
func TestSharedData(t *testing.T) {
	path := before(t, "external")
	other := filepath.Join(filepath.Dir(path), "other.onnx")
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(other, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := put(path, "B", true); !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "external data of other.onnx, too") {
		t.Errorf("error %v", err)
	}
	mustPut(t, path, "C", false)
	if found(t, path) != "C" || found(t, other) != "A" {
		t.Error("the other model was changed")
	}
}

// Temporary files are not taken for models, and data keep the length of their
// name, on which relocation depends.
func TestTemporaryNames(t *testing.T) {
	path := before(t, "none")
	target, err := Create(t.Context(), path, nil, namesOf(path, "external"))
	if err != nil {
		t.Fatal(err)
	}
	defer target.Abort()
	for _, name := range names(t, filepath.Dir(path)) {
		if strings.HasSuffix(name, ".onnx") || strings.HasSuffix(name, ".data") {
			t.Errorf("temporary file %s", name)
		}
	}
	if data := target.Data[0].Name(); len(data) != len(dataPath1(path)) {
		t.Errorf("temporary data file %s", data)
	}
}

// Files that only look like temporary ones stay.
func TestOtherFilesStay(t *testing.T) {
	path := before(t, "embedded")
	others := []string{"out.onnx.~1~", "out.onnx.~abc", "out.onnx.~ABCD", "out.onnx.~ABC.onnx", "out.onnx.bak", "xout.onnx.~ABC"}
	for _, name := range append(others, "out.onnx.~ABC", "out.onnx.~ABC.tmp") {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	target, err := Create(t.Context(), path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(append(others, "out.onnx", "out.onnx.~lock", filepath.Base(target.Model.Name()))))
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, want) {
		t.Errorf("meanwhile the folder holds %q, want %q", got, want)
	}
	target.Abort()
	want = slices.Sorted(slices.Values(append(others, "out.onnx")))
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestRefusedNames(t *testing.T) {
	folder := t.TempDir()
	for name, want := range map[string]string{
		"m:int4.onnx":  "cannot have external data",
		"we\\ird.onnx": "cannot have external data",
		"\xff.onnx":    "cannot have external data",
		"in/none.onnx": "no such file",
	} {
		if runtime.GOOS == "windows" {
			break // no names there
		}
		path := filepath.Join(folder, name)
		err := Check(path, nil, namesOf(path, "external"))
		if !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%q: error %v", name, err)
		}
		if _, err2 := Create(t.Context(), path, nil, namesOf(path, "external")); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("%q: Create's error %v", name, err2)
		}
		if err := Check(path, nil, nil); (err != nil) != strings.Contains(name, "/") {
			t.Errorf("%q embedded: error %v", name, err)
		}
	}
	if err := Check("", nil, nil); !errors.Is(err, ErrTarget) {
		t.Errorf("no name: error %v", err)
	}
	if left := names(t, folder); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func symlink(t *testing.T, to, link string) {
	t.Helper()
	if err := os.Symlink(to, link); err != nil {
		t.Skip(err) // a system without symbolic links
	}
}

func TestSymbolicLinkTarget(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, "real.onnx")
	link := filepath.Join(folder, "link.onnx")
	far := filepath.Join(elsewhere, "far.onnx")
	symlink(t, "real.onnx", link)
	symlink(t, link, far)

	mustPut(t, far, "A", false) // what it leads to is not there yet
	mustPut(t, link, "B", true)
	if found(t, path) != "B" || found(t, link) != "B" {
		t.Error("not written through the link")
	}
	if err := Check(far, nil, namesOf(far, "external")); err == nil || !strings.Contains(err.Error(), "choose "+path+" itself") {
		t.Errorf("pair through a link from another folder: error %v", err)
	}
	mustPut(t, far, "C", false)
	if found(t, far) != "C" {
		t.Error("not written through two links")
	}
	if got, want := names(t, folder), []string{"link.onnx", "real.onnx"}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %q", got)
	}
	for _, name := range []string{link, far} {
		if info, err := os.Lstat(name); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", name)
		}
	}

	t.Chdir(folder)
	mustPut(t, "link.onnx", "D", true)
	if found(t, path) != "D" {
		t.Error("not written through a link in the working folder")
	}
	for name, to := range map[string]string{"circle": "circle", "lost": "no/such", "folder": "."} {
		symlink(t, to, name)
		if err := Check(name, nil, nil); !errors.Is(err, ErrTarget) {
			t.Errorf("link to %s: error %v", to, err)
		}
	}
}

func TestPermissionsStay(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has other permissions")
	}
	path := before(t, "external")
	modes := map[string]fs.FileMode{path: 0o640, dataPath1(path): 0o600}
	for name, mode := range modes {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"B", "C"} {
		mustPut(t, path, v, true)
		for name, mode := range modes {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: mode %v, want %v", name, info.Mode(), mode)
			}
		}
		modes[path] = 0o444
		if err := os.Chmod(path, 0o444); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing is left open after the written files are read, or if one is gone.
func TestReopenClosesFiles(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	target, err := Create(t.Context(), before(t, "none"), nil, []string{"out.onnx.data"})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Abort()
	before := open()
	for range 3 {
		r, err := target.Reopen()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	os.Remove(target.Data[0].Name())
	for range 3 {
		if _, err := target.Reopen(); err == nil {
			t.Fatal("no error")
		}
	}
	if after := open(); after != before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

// A lock that is no regular file is neither followed nor waited for.
func TestLockIsNoLink(t *testing.T) {
	folder, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	path := filepath.Join(folder, "out.onnx")
	if err := os.Symlink(elsewhere, lockPath(path)); err != nil {
		t.Skip(err)
	}
	check := func() {
		t.Helper()
		if err := put(path, "a", true); !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "out.onnx.~lock is not a regular file") {
			t.Errorf("error %v", err)
		}
		if got := names(t, folder); !slices.Equal(got, []string{"out.onnx.~lock"}) {
			t.Errorf("the folder holds %q", got)
		}
	}
	check()
	if fileExists(elsewhere) {
		t.Error("the link's target was created")
	}
	if err := os.WriteFile(elsewhere, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	check()
	if b, err := os.ReadFile(elsewhere); string(b) != "precious" {
		t.Errorf("the link's target holds %q, %v", b, err)
	}
}

// A conversion that ends before it replaces anything leaves nothing, whatever is in place
// and whether or not that can be read.
func TestAbortLeavesNothing(t *testing.T) {
	for name, was := range map[string]string{"nothing": "", "no model": "text", "an unreadable model": "secret"} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "out.onnx")
			var want []string
			if was != "" {
				want = []string{"out.onnx"}
				if err := os.WriteFile(path, []byte(was), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if was == "secret" {
				if err := os.Chmod(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			target, err := Create(t.Context(), path, nil, namesOf(path, "external"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := target.Data[0].WriteString("data"); err != nil {
				t.Fatal(err)
			}
			target.Abort()
			if got := names(t, folder); !slices.Equal(got, want) {
				t.Errorf("the folder holds %q, want %q", got, want)
			}
		})
	}
}

// An interrupt while files are synced leaves what was in place, and does not wait for the disk.
func TestInterruptedSync(t *testing.T) {
	path := before(t, "external")
	folder := filepath.Dir(path)
	want := names(t, folder)
	target, err := Create(t.Context(), path, nil, namesOf(path, "external"))
	if err != nil {
		t.Fatal(err)
	}
	defer target.Abort()
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.Link(target.Data[0].Name(), kept); err != nil {
		t.Skip(err)
	}
	if _, err := target.Data[0].WriteString("data"); err != nil {
		t.Fatal(err)
	}
	target.Flush()
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	if err := target.Commit(ctx, nil); !errors.Is(err, stopped) {
		t.Errorf("error %v", err)
	}
	if found(t, path) != "A" || !slices.Equal(names(t, folder), want) {
		t.Errorf("the folder holds version %q, %q", found(t, path), names(t, folder))
	}
	if info, err := os.Stat(kept); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v: what is dropped is still to be written", info, err)
	}
}
