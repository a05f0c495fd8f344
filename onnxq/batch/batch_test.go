package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/attest"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

// copier converts by copying: its outputs are the options and the input. Inputs that say bad fail, those that say poor
// are poor.
type copier struct {
	mu    sync.Mutex
	made  []string
	calls atomic.Int32
}

func (c *copier) convert(_ context.Context, call Call) (*Result, error) {
	c.calls.Add(1)
	c.mu.Lock()
	c.made = append(c.made, filepath.Base(call.Out))
	c.mu.Unlock()
	b, err := os.ReadFile(call.In)
	if err != nil {
		return nil, err
	}
	r := &Result{Judged: &verify.Judged{Verdict: verify.Sound, Reasons: []string{}}, Figures: &Figures{InBytes: int64(len(b)), OutBytes: 1}}
	switch {
	case strings.Contains(string(b), "bad"):
		return nil, errors.New("it is bad")
	case strings.Contains(string(b), "codes"):
		r.Figures.Quantized = 1
	case strings.Contains(string(b), "poor"):
		if r.Judged.Verdict = verify.Poor; call.Gate == verify.Sound {
			return r, fmt.Errorf("%w: poor", verify.ErrGate)
		}
	}
	if call.Attest != "" {
		if err := os.WriteFile(call.Attest, []byte("{}"), 0o666); err != nil {
			return nil, err
		}
	}
	r.Outputs = []string{call.Out}
	return r, os.WriteFile(call.Out, fmt.Appendf(nil, "%q %s", call.Options, b), 0o666)
}

// take returns what was converted since the last call.
func (c *copier) take() []string {
	made := c.made
	c.made = nil
	slices.Sort(made)
	return made
}

// bench is a folder of inputs that are old enough for their time of modification to be believed.
type bench struct {
	*testing.T
	in, out string
	copier
	opts Options
}

func newBench(t *testing.T, contents ...string) (*bench, []Job) {
	b := &bench{T: t, in: t.TempDir(), out: filepath.Join(t.TempDir(), "out")}
	b.opts = Options{Folder: b.out, Version: "v1", Gate: verify.Failed, Convert: b.convert}
	var jobs []Job
	for i, content := range contents {
		name := fmt.Sprintf("m%d.onnx", i)
		b.write(name, content)
		jobs = append(jobs, Job{In: filepath.Join(b.in, name), Out: name})
	}
	return b, jobs
}

func (b *bench) write(name, content string) {
	b.Helper()
	path := filepath.Join(b.in, name)
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o666), os.Chtimes(path, old, old)); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) run(jobs []Job, want Summary, made ...string) {
	b.Helper()
	s, err := Run(b.Context(), jobs, b.opts)
	if err != nil {
		b.Fatal(err)
	}
	if s.Done != want.Done || s.Kept != want.Kept || s.Failed != want.Failed || s.Refused != want.Refused || len(s.Missing) != s.Failed+s.Refused {
		b.Errorf("%+v, want %+v", s, want)
	}
	if got := b.take(); !slices.Equal(got, made) {
		b.Errorf("made %q, want %q", got, made)
	}
}

// What is done and unchanged is not done again; all else is.
func TestAgain(t *testing.T) {
	b, jobs := newBench(t, "a", "b", "bad")
	b.run(jobs, Summary{Done: 2, Failed: 1}, "m0.onnx", "m1.onnx", "m2.onnx")
	b.run(jobs, Summary{Done: 2, Kept: 2, Failed: 1}, "m2.onnx")

	b.write("m0.onnx", "A") // the same size and time as before: that is not seen
	b.run(jobs, Summary{Done: 2, Kept: 2, Failed: 1}, "m2.onnx")
	now := time.Now()
	if err := os.Chtimes(filepath.Join(b.in, "m0.onnx"), now, now); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Done: 2, Kept: 1, Failed: 1}, "m0.onnx", "m2.onnx")
	b.run(jobs, Summary{Done: 2, Kept: 2, Failed: 1}, "m2.onnx") // new, but read again

	if err := os.Chtimes(filepath.Join(b.in, "m1.onnx"), now, now); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Done: 2, Kept: 2, Failed: 1}, "m2.onnx") // another time, the same content

	if err := os.WriteFile(filepath.Join(b.out, "m0.onnx"), []byte("edited"), 0o666); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Done: 2, Kept: 1, Failed: 1}, "m0.onnx", "m2.onnx")
	if err := os.Remove(filepath.Join(b.out, "m1.onnx")); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Done: 2, Kept: 1, Failed: 1}, "m1.onnx", "m2.onnx")

	jobs[0].Options = Flags{"--bits=8"}
	b.run(jobs, Summary{Done: 2, Kept: 1, Failed: 1}, "m0.onnx", "m2.onnx")
	b.write("m2.onnx", "good")
	b.run(jobs, Summary{Done: 3, Kept: 2}, "m2.onnx")
	b.opts.Attest = true
	b.run(jobs, Summary{Done: 3}, "m0.onnx", "m1.onnx", "m2.onnx")
	b.run(jobs, Summary{Done: 3, Kept: 3})
	b.opts.Version = "v2"
	b.run(jobs, Summary{Done: 3}, "m0.onnx", "m1.onnx", "m2.onnx")
	if pending, err := Pending(t.Context(), jobs, b.opts); err != nil || len(pending) > 0 {
		t.Errorf("%v, %v", pending, err)
	}
}

// An output stays done if a later run could not do its job, for a reason that is gone.
func TestFailureBetween(t *testing.T) {
	b, jobs := newBench(t, "a")
	b.run(jobs, Summary{Done: 1}, "m0.onnx")
	path := filepath.Join(b.in, "m0.onnx")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Failed: 1})
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Done: 1, Kept: 1})
}

// Data that options name are inputs, also the files of folders.
func TestData(t *testing.T) {
	b, jobs := newBench(t, "a")
	data := filepath.Join(b.in, "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	b.write("data/1.npy", "x")
	b.opts.DataFiles = func([]string) []string { return []string{data} }
	b.run(jobs, Summary{Done: 1}, "m0.onnx")
	b.run(jobs, Summary{Done: 1, Kept: 1})
	b.write("data/1.npy", "xx")
	b.run(jobs, Summary{Done: 1}, "m0.onnx")
	b.write("data/2.npy", "y")
	b.run(jobs, Summary{Done: 1}, "m0.onnx")
	b.run(jobs, Summary{Done: 1, Kept: 1})
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	b.run(jobs, Summary{Failed: 1})
}

// The gate keeps bad outputs out, also one that is there.
func TestGate(t *testing.T) {
	b, jobs := newBench(t, "poor", "fine")
	b.run(jobs, Summary{Done: 2}, "m0.onnx", "m1.onnx")
	b.opts.Gate = verify.Sound
	b.run(jobs, Summary{Done: 1, Kept: 1, Refused: 1}, "m0.onnx")
	if _, err := os.Stat(filepath.Join(b.out, "m0.onnx")); err == nil {
		t.Error("the refused output is there")
	}
	b.run(jobs, Summary{Done: 1, Kept: 2, Refused: 1})
	b.opts.Gate = verify.Poor
	b.run(jobs, Summary{Done: 2, Kept: 1}, "m0.onnx")
	b.opts.Gate = ""
	b.run(jobs, Summary{Done: 2, Kept: 2})
}

// Each job is in one shard of N. A run with other shards, or none, finds what they did.
func TestShards(t *testing.T) {
	contents := make([]string, 40)
	b, jobs := newBench(t, contents...)
	done := 0
	for i := range 4 {
		b.opts.Shard = spec.Share{I: i, N: 4}
		s, err := Run(t.Context(), jobs, b.opts)
		if err != nil {
			t.Fatal(err)
		}
		if s.Jobs != s.Done || s.Jobs < 2 || s.Kept > 0 {
			t.Errorf("shard %d: %+v", i, s)
		}
		done += s.Done
	}
	if made := b.take(); len(made) != 40 || len(slices.Compact(made)) != 40 || done != 40 {
		t.Errorf("%d jobs, made %q", done, made)
	}
	b.opts.Shard = spec.Share{}
	b.run(jobs, Summary{Done: 40, Kept: 40})
	b.opts.Shard = spec.Share{I: 2, N: 3}
	s, err := Run(t.Context(), jobs, b.opts)
	if err != nil || s.Kept != s.Jobs || s.Jobs == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A crash may cut the last line of a manifest short at any place. The jobs before it stay done.
func TestCutLine(t *testing.T) {
	b, jobs := newBench(t, "a", "b")
	b.opts.Jobs = 1
	b.run(jobs, Summary{Done: 2}, "m0.onnx", "m1.onnx")
	path := filepath.Join(b.out, "manifest.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	for _, end := range []int{len(whole) - 1, len(whole) - 20, second + 1, second} {
		if err := os.WriteFile(path, whole[:end], 0o666); err != nil {
			t.Fatal(err)
		}
		b.run(jobs, Summary{Done: 2, Kept: 1}, "m1.onnx")
		b.run(jobs, Summary{Done: 2, Kept: 2})
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, bad := range []string{"hello\n", `{"schema_version":2}` + "\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), jobs, b.opts); err == nil || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Records that lack fields, or name files outside of the folder, do no harm.
func TestOddRecords(t *testing.T) {
	b, jobs := newBench(t, "poor")
	b.opts.Gate = verify.Sound
	b.write("mine", "x")
	info, err := os.Stat(filepath.Join(b.in, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	outside, err := filepath.Rel(b.out, filepath.Join(b.in, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Record{
		{Status: Refused},
		{Status: Done},
		{Status: "odd", Judged: &verify.Judged{Verdict: "odd"}},
		{Status: Done, Outputs: []attest.File{{Path: filepath.ToSlash(outside), Bytes: 1, Modified: info.ModTime()}}},
	} {
		r.SchemaVersion, r.Out, r.In, r.Version, r.Options = schemaVersion, "m0.onnx", jobs[0].In, "v1", []string{}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(b.out, 0o777), os.WriteFile(filepath.Join(b.out, "manifest.jsonl"), append(line, '\n'), 0o666)); err != nil {
			t.Fatal(err)
		}
		b.run(jobs, Summary{Refused: 1}, "m0.onnx")
	}
	if _, err := os.Stat(filepath.Join(b.in, "mine")); err != nil {
		t.Error(err)
	}
}

// Two runs of a shard exclude each other; those of two shards do not.
func TestLock(t *testing.T) {
	lockWait = 50 * time.Millisecond
	defer func() { lockWait = 10 * time.Second }()
	b, jobs := newBench(t, "a", "b", "c", "d", "e")
	working, goOn := make(chan bool), make(chan bool)
	var once sync.Once
	slow := b.opts
	slow.Jobs = 1
	slow.Convert = func(ctx context.Context, c Call) (*Result, error) {
		once.Do(func() { working <- true; <-goOn })
		return b.convert(ctx, c)
	}
	ended := make(chan error)
	go func() { _, err := Run(context.Background(), jobs, slow); ended <- err }()
	<-working
	if _, err := Run(t.Context(), jobs, b.opts); err == nil || !strings.Contains(err.Error(), "another run of this batch") {
		t.Errorf("%v", err)
	}
	b.opts.Shard = spec.Share{I: 0, N: 2}
	if _, err := Run(t.Context(), jobs, b.opts); err != nil {
		t.Error(err)
	}
	goOn <- true
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An interrupt ends a run. Jobs that it stopped are not recorded.
func TestInterrupt(t *testing.T) {
	b, jobs := newBench(t, "a", "b", "c")
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	b.opts.Jobs = 1
	opts := b.opts
	opts.Convert = func(ctx context.Context, c Call) (*Result, error) {
		if strings.HasSuffix(c.In, "m1.onnx") {
			stop(stopped)
			return nil, ctx.Err()
		}
		return b.convert(ctx, c)
	}
	if _, err := Run(ctx, jobs, opts); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	b.take()
	b.run(jobs, Summary{Done: 3, Kept: 1}, "m1.onnx", "m2.onnx")
}

// Conversions whose estimated memory is more than the budget run alone.
func TestMemory(t *testing.T) {
	contents := make([]string, 12)
	b, jobs := newBench(t, contents...)
	b.opts.Jobs = 6
	var now, most atomic.Int32
	convert := b.opts.Convert
	b.opts.Convert = func(ctx context.Context, c Call) (*Result, error) {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(5 * time.Millisecond)
		defer now.Add(-1)
		return convert(ctx, c)
	}
	b.opts.Memory = leastMemory + leastMemory/2
	b.run(jobs, Summary{Done: 12}, b.names(jobs)...)
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

func (b *bench) names(jobs []Job) (names []string) {
	for _, j := range jobs {
		names = append(names, j.Out)
	}
	slices.Sort(names)
	return names
}

// An input that changes while its model is converted makes the job fail, and it is done again.
func TestInputChanges(t *testing.T) {
	b, jobs := newBench(t, "a")
	opts := b.opts
	opts.Convert = func(ctx context.Context, c Call) (*Result, error) {
		b.write("m0.onnx", "changed")
		return b.convert(ctx, c)
	}
	s, err := Run(t.Context(), jobs, opts)
	if err != nil || s.Failed != 1 || !strings.Contains(s.Missing[0].Error, "the file changed while") {
		t.Errorf("%+v, %v", s, err)
	}
	b.take()
	b.run(jobs, Summary{Done: 1}, "m0.onnx")
}

// A signature in a URL goes to the conversion, and into no record or message. Another one does not make the model another.
func TestSigned(t *testing.T) {
	content, err := os.ReadFile(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Query().Get("s"), "hidden") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer s.Close()
	b, _ := newBench(t)
	b.opts.Convert = func(_ context.Context, c Call) (*Result, error) {
		if !strings.Contains(c.In, "?s=hidden") {
			t.Errorf("converted from %s", c.In)
		}
		return &Result{Judged: &verify.Judged{Verdict: verify.Sound}, Outputs: []string{c.Out}}, os.WriteFile(c.Out, nil, 0o666)
	}
	for i, signature := range []string{"hidden1", "hidden2"} {
		jobs, err := List([]string{s.URL + "/m.onnx?s=" + signature}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.run(jobs, Summary{Done: 1, Kept: i})
	}
	b.run([]Job{{In: s.URL + "/none/n.onnx?t=hidden", Out: "n.onnx"}}, Summary{Failed: 1})
	text, err := os.ReadFile(filepath.Join(b.out, "manifest.jsonl"))
	if err != nil || strings.Contains(string(text), "hidden") || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%s, %v", text, err)
	}
	if err := check([]Job{{In: "https://h/m.onnx?s=hidden", Out: "m"}}, b.out); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}

func TestRead(t *testing.T) {
	jobs, err := Read(strings.NewReader(`{"in": "d/a.onnx"}

{"in": "b.onnx", "out": "x/b.onnx", "options": ["--bits", "4"]}
{"in": "c.onnx", "options": {"zero-point": true, "bits": 4, "exclude": ["a*", "b*"], "memory": "1GiB"}}
`), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{In: "d/a.onnx", Out: "a.onnx", place: "jobs:1"},
		{In: "b.onnx", Out: "x/b.onnx", Options: Flags{"--bits", "4"}, place: "jobs:3"},
		{In: "c.onnx", Out: "c.onnx", Options: Flags{"--bits=4", "--exclude=a*", "--exclude=b*", "--memory=1GiB", "--zero-point=true"}, place: "jobs:4"},
	}
	if fmt.Sprint(jobs) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", jobs, want)
	}
	for line, why := range map[string]string{
		"{}":         `jobs:1: "in" is missing`,
		"":           "jobs: there is no job in it",
		"\n \n":      "jobs: there is no job in it",
		"a.onnx":     "jobs:1: the line is no JSON from character 1 on",
		`["a"]`:      "jobs:1: the line is no object but a JSON array",
		`{"in": "a"`: "jobs:1: the line ends before its object does",
		`{"in": 3}`:  `jobs:1: "in" is a JSON number`,
		"{\"in\": \"a\"}\n" + strings.Repeat("x", longestLine+1): "jobs:2: the line is longer than 1 MiB",
		`{"in": "a", "bits": 4}`:                                 `"bits" is no key of a job: want "in", "out", "options"`,
		`{"IN": "a"}`:                                            `"IN" is no key of a job`,
		`{"in": "a", "in": "b"}`:                                 `"in" is given twice`,
		`{"in": "a", "options": {"bits": 8, "bits": 4}}`:         `"bits" is given twice`,
		`{"in": "a", "options": 3}`:                              "want a list of words",
		`{"in": "a", "options": {"x": {}}}`:                      `the value of "x"`,
		`{"in": "a"} {"in": "b"}`:                                "more than one object",
		`{"in": "a"},`:                                           "jobs:1: a comma follows the object",
		`{"in": "a",}`:                                           "jobs:1: the line is no JSON from character 12 on",
		`{"in": "a"} x`:                                          "jobs:1: after the object there is more, from character 13 on",
		`{"in": "a", "options": {"x": [null]}`:                   "jobs:1: ",
	} {
		_, err := Read(strings.NewReader(line), "jobs")
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", line, err, why)
			continue
		}
		for _, word := range []string{"json:", "unmarshal", "Go ", "bufio", "EOF", "token"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v has a word of Go", line, err)
			}
		}
	}
}

// All lines that are wrong are told at once, in their order, whatever is wrong with them.
func TestAllWrongLines(t *testing.T) {
	jobs, err := List([]string{"-"}, strings.NewReader(`{"in": "a.onnx", "out": "mn"}
{"in": "a.onnx"}
{"in": "b.onnx", "bits": 4}
{"in": "c.onnx", "out": "a.onnx"}
{"in": "d.onnx", "out": "../d.onnx"},
{"in": "e.onnx", "out": "../e.onnx"}
`))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "out")
	_, err = Run(t.Context(), jobs, Options{Folder: folder, Convert: new(copier).convert})
	const at = "standard input:"
	want := []string{at + "1: out ", at + `3: "bits" is no key`, at + "2 and " + at + "4 have the same output", at + "5: a comma follows", at + "6: out "}
	got := strings.Split(fmt.Sprint(err), "\n")
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder is made")
	}
}

// Outputs of which nothing is quantized are counted, also those of an earlier run; not if only float16 was asked for.
func TestUnquantized(t *testing.T) {
	for options, want := range map[string]int{"--bits=4": 1, "--float16=true": 0, "--bits=4 --float16=true": 1, "--float16=false": 1} {
		b, jobs := newBench(t, "a", "codes", "bad")
		for i := range jobs {
			jobs[i].Options = strings.Fields(options)
		}
		for range 2 {
			s, err := Run(t.Context(), jobs, b.opts)
			if err != nil || s.Unquantized != want || len(s.Notes()) != want {
				t.Errorf("%s: %v, %+v, want %d of 2", options, err, s, want)
			}
		}
	}
}

func TestList(t *testing.T) {
	b, _ := newBench(t, "a", "b")
	if err := errors.Join(os.MkdirAll(filepath.Join(b.in, "sub"), 0o777), os.MkdirAll(filepath.Join(b.in, ".git"), 0o777)); err != nil {
		t.Fatal(err)
	}
	b.write("sub/m0.onnx", "c")
	b.write(".git/m9.onnx", "c")
	b.write("notes.txt", "")
	b.write("jobs.jsonl", `{"in": "x.onnx"}`)
	b.write("jobs.json", `{"in": "x.onnx"}`)
	t.Chdir(b.in)
	for args, want := range map[string]string{
		".":                          "m0.onnx m1.onnx sub/m0.onnx",
		"sub":                        "m0.onnx",
		"m*.onnx":                    "m0.onnx m1.onnx",
		"m1.onnx sub/m0.onnx":        "m1.onnx m0.onnx",
		"jobs.jsonl m1.onnx -":       "x.onnx m1.onnx y.onnx",
		"none.onnx":                  "error none.onnx: ",
		"n*.onnx":                    "error n*.onnx: no file matches",
		".git/objects.jsonl m0.onnx": "error .git/objects.jsonl: ",
		"jobs.json":                  "error jobs.json: the name of a model ends in .onnx, that of a file of jobs in .jsonl",
	} {
		jobs, err := List(strings.Fields(args), strings.NewReader(`{"in": "y.onnx"}`))
		got := strings.Join(func() (names []string) {
			for _, j := range jobs {
				names = append(names, j.Out)
			}
			return names
		}(), " ")
		if err != nil {
			got = "error " + err.Error()
		}
		if got != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for names, why := range map[string]string{
		"a.onnx b.onnx":      "",
		"a.onnx s/a.onnx":    "",
		"a.onnx A.onnx":      "have the same output",
		"../a.onnx":          "want a name in the folder",
		"/a.onnx":            "want a name in the folder",
		"a/../../b.onnx":     "want a name in the folder",
		"s//a.onnx":          `write "s/a.onnx"`,
		"manifest.jsonl":     "ends in .onnx",
		"in.onnx":            "is the input of",
		`s\a.onnx`:           "want a name in the folder",
		"a.onnx.intoto.json": "ends in .onnx",
	} {
		var jobs []Job
		for _, name := range strings.Fields(names) {
			jobs = append(jobs, Job{In: "folder/in.onnx", Out: name})
		}
		err := check(jobs, "folder")
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", names, err, why)
		}
	}
}

func TestMessages(t *testing.T) {
	warnings, last := messages("onnxquant: warning: odd\n  1 %\nonnxquant: a.onnx: no model\nRun 'onnxquant help' for usage.\n")
	if !slices.Equal(warnings, []string{"odd"}) || last != "a.onnx: no model" {
		t.Errorf("%q, %q", warnings, last)
	}
	if _, last := messages("fatal error: out of memory\ngoroutine 1\n"); last != "fatal error: out of memory" {
		t.Errorf("%q", last)
	}
}

func TestArguments(t *testing.T) {
	got := arguments(&Call{In: "-in.onnx", Out: "out.onnx", Options: []string{"--bits=4"}, Gate: verify.Sound, Attest: "out" + attest.Suffix, Threads: 2})
	want := "--bits=4 --quiet --json --threads=2 --gate=sound --attest=out.intoto.json -- -in.onnx out.onnx"
	if strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
	if got := arguments(&Call{Options: []string{"--threads=4"}, Threads: 2}); slices.Contains(got, "--threads=2") {
		t.Errorf("%q", got)
	}
}

// All wrong lines are told in their order, up to a bound.
func TestWrongLines(t *testing.T) {
	_, err := Read(strings.NewReader(strings.Repeat("no\n{\"in\": \"a.onnx\"}\n", 23)), "jobs")
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || !strings.HasPrefix(lines[19], "jobs:39: ") || lines[20] != "3 more jobs are wrong" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
