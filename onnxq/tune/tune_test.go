package tune_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/tune"
	"onnxquant/rules"
	"onnxquant/spec"
)

// converter makes candidates in this process, and counts them.
type converter struct {
	made     int
	external spec.ExternalData
	places   []string
}

func (c *converter) make(ctx context.Context, args []string) error {
	c.made++
	o := onnxq.Options{ExternalData: c.external}
	files := args[len(args)-2:]
	c.places = append(c.places, files[1])
	for i, arg := range args {
		var err error
		switch arg {
		case "--bits":
			o.Bits, err = strconv.Atoi(args[i+1])
		case "--block":
			o.Block, err = strconv.Atoi(args[i+1])
		case "--zero-point":
			o.ZeroPoint = true
		case "--algorithm":
			o.Algorithm = spec.Algorithm(args[i+1])
		case "--float16":
			o.FloatType = spec.Float16
		case "--allow-fallback":
			o.AllowFallback = true
		case "--precision-info":
			o.Precision, err = rules.LoadPrecision(args[i+1])
		}
		if err != nil {
			return err
		}
	}
	_, err := onnxq.Convert(ctx, files[0], files[1], o)
	return err
}

// bytesJudge has a score that falls with the size.
type bytesJudge struct{ least, final int64 }

func (j bytesJudge) Judge(_ context.Context, path string, final bool) (tune.Quality, error) {
	info, err := os.Stat(path)
	if err != nil {
		return tune.Quality{}, err
	}
	least, score := j.least, 1.0
	if final {
		least = j.final
	}
	if info.Size() < least {
		score = float64(info.Size()) / float64(least)
	}
	return tune.Quality{Score: &score}, nil
}

func options(c *converter, j tune.Judge) tune.Options {
	o := tune.Options{Judge: j, Make: c.make, Try: []tune.Kind{tune.Weights, tune.Mixes, tune.Half}}
	o.Goal.MaxDrop = &tune.Drop{Amount: 0.01, Relative: true}
	return o
}

func TestSearch(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	for _, test := range []struct {
		name         string
		least, final int64
	}{{"nearly nothing is lost", 1 << 20, 0}, {"half", 16000, 16000}, {"a quarter", 12000, 0}, {"the final samples want more", 9000, 11000}} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(out)
			c := &converter{}
			o := options(c, bytesJudge{test.least, test.final})
			o.Most = 40
			r, err := tune.Search(t.Context(), in, out, o)
			if test.least == 1<<20 {
				if !errors.Is(err, tune.ErrGoal) {
					t.Fatalf("%v, want %v", err, tune.ErrGoal)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("OUT is written")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(out)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != tune.Reached || info.Size() != r.Winner.Bytes || info.Size() < max(test.least, test.final)*99/100 || !r.Winner.Holds {
				t.Errorf("%s: OUT has %d bytes, winner %+v", r.Verdict, info.Size(), r.Winner)
			}
			for _, trial := range r.Trials {
				if trial.Holds && trial.Bytes < r.Winner.Bytes {
					t.Errorf("%v is smaller", trial.Flags)
				}
			}
			again := append(slices.Clone(r.Command[:len(r.Command)-1]), filepath.Join(t.TempDir(), filepath.Base(out)))
			if err := c.make(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			first, _ := os.ReadFile(out)
			if second, _ := os.ReadFile(again[len(again)-1]); string(first) != string(second) {
				t.Errorf("%s makes other bytes", r.CommandLine())
			}
		})
	}
}

// A search in a folder with results makes nothing but the winner's file again.
func TestResume(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	c := &converter{}
	o := options(c, bytesJudge{12000, 0})
	o.Work = t.TempDir()
	first, err := tune.Search(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	made := c.made
	journal := filepath.Join(o.Work, "trials.jsonl")
	raw, err := os.ReadFile(journal)
	if err != nil || strings.Count(string(raw), "\n") != made {
		t.Fatalf("%v, %d candidates, journal %s", err, made, raw)
	}
	if err := os.WriteFile(journal, append(raw, raw[:len(raw)/made/2]...), 0o666); err != nil { // a crash cut the last line
		t.Fatal(err)
	}
	c.made = 0
	other := filepath.Join(t.TempDir(), "another-name.onnx")
	again, err := tune.Search(t.Context(), in, other, o) // OUT does not count
	if err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(out)
	if b, err := os.ReadFile(other); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%v, or OUT has other bytes under another name", err)
	}
	if c.made > 1 || !slices.Equal(first.Winner.Flags, again.Winner.Flags) {
		t.Errorf("%d of %d candidates were made again; %s, first %s", c.made, made, again.CommandLine(), first.CommandLine())
	}
}

// OUT and its data have the bytes that were judged: nothing else is written there. Files of the user beside them stay.
func TestOutputIsJudged(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	mix := strings.TrimSuffix(out, ".onnx") + ".mix.json"
	if err := os.WriteFile(mix+".tmp", []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	mixed := false
	for _, least := range []int64{1000, 3000} { // the second search replaces the files of the first one
		c := &converter{external: spec.ExternalAlways}
		o := options(c, dataJudge{least})
		o.Work, o.Try = t.TempDir(), []tune.Kind{tune.Mixes}
		r, err := tune.Search(t.Context(), in, out, o)
		if err != nil {
			t.Fatal(err)
		}
		mixed = mixed || r.Precision == mix
		if slices.Contains(c.places, out) {
			t.Error("a conversion wrote OUT")
		}
		again := append(slices.Clone(r.Command[:len(r.Command)-1]), filepath.Join(t.TempDir(), filepath.Base(out)))
		if err := c.make(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", ".data"} {
			got, err := os.ReadFile(out + suffix)
			if want, _ := os.ReadFile(again[len(again)-1] + suffix); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v, %d bytes, want %d", out+suffix, err, len(got), len(want))
			}
		}
		m, err := onnxq.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
	if got, err := os.ReadFile(mix + ".tmp"); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	if !mixed {
		t.Error("no mix was chosen")
	}
}

// dataJudge has a score that falls with the size of external data.
type dataJudge struct{ least int64 }

func (j dataJudge) Judge(ctx context.Context, path string, final bool) (tune.Quality, error) {
	if _, err := os.Stat(path + ".data"); err == nil {
		path += ".data"
	}
	return bytesJudge{j.least, j.least}.Judge(ctx, path, final)
}

// brokenJudge fails until it is mended.
type brokenJudge struct {
	bytesJudge
	broken bool
	in     string
}

func (j *brokenJudge) Judge(ctx context.Context, path string, final bool) (tune.Quality, error) {
	if j.broken && path != j.in {
		return tune.Quality{}, errors.New("no module named numpy")
	}
	return j.bytesJudge.Judge(ctx, path, final)
}

// What failed is tried again in the same folder.
func TestFailedAgain(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	j := &brokenJudge{bytesJudge{12000, 0}, true, in}
	o := options(&converter{}, j)
	o.Work, o.Most = t.TempDir(), 3
	if r, err := tune.Search(t.Context(), in, out, o); !errors.Is(err, tune.ErrGoal) || r.Trials[0].Failed == "" {
		t.Fatalf("%v, %+v", err, r)
	}
	j.broken = false
	r, err := tune.Search(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range r.Trials {
		if trial.Failed != "" {
			t.Errorf("%v: %s", trial.Flags, trial.Failed)
		}
	}
}

// The budget ends one of several trials; those that are finished count.
func TestBudgetOfJobs(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	c := &converter{}
	o := options(c, bytesJudge{1000, 0})
	o.DryRun, o.Try = true, []tune.Kind{tune.Weights}
	planned, err := tune.Search(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	var lock sync.Mutex
	o.DryRun, o.Jobs, o.Budget = false, 3, time.Second
	o.Make = func(ctx context.Context, args []string) error {
		if slices.Equal(args[1:len(args)-2], planned.Planned[0].Flags) {
			<-ctx.Done()
			return ctx.Err()
		}
		lock.Lock()
		defer lock.Unlock()
		return c.make(ctx, args)
	}
	r, err := tune.Search(t.Context(), in, out, o)
	if err != nil || len(r.Trials) != 2 {
		t.Errorf("%v, %d trials, want 2", err, len(r.Trials))
	}
}

// An interrupt keeps the best.
func TestInterrupt(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	o := options(&converter{}, bytesJudge{9000, 0})
	o.Tried = func(trial tune.Trial) {
		if trial.Holds {
			cancel()
		}
	}
	r, err := tune.Search(ctx, in, out, o)
	if err != nil || r.Winner == nil || r.Stopped != "it was interrupted" {
		t.Fatalf("%v, %+v", err, r)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	kl, size := 0.1, tune.Goal{Objective: tune.Best}
	for _, test := range []struct {
		change func(*tune.Options)
		want   string
	}{
		{func(o *tune.Options) { o.Judge = nil }, "nothing says what counts"},
		{func(o *tune.Options) { o.Goal = tune.Goal{} }, "needs a limit"},
		{func(o *tune.Options) { o.Goal = size }, "needs a bound"},
		{func(o *tune.Options) { o.Judge, o.Score, o.Goal.MaxKL = nil, &tune.Score{}, &kl }, "limits of the outputs need data"},
		{func(o *tune.Options) { o.Judge, o.Score = nil, &tune.Score{Command: `eval.py "{}"`} }, "leave out the quotes"},
		{func(o *tune.Options) { o.Make = nil }, "Make is nil"},
	} {
		o := options(&converter{}, bytesJudge{})
		test.change(&o)
		_, err := tune.Search(t.Context(), "no.onnx", "out.onnx", o)
		if !errors.Is(err, tune.ErrOptions) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

func TestParseDrop(t *testing.T) {
	for text, want := range map[string]string{"1%": "1%", "0.5": "0.5", "0": "0", "-1": "", "x": "", "Inf": ""} {
		d, err := tune.ParseDrop(text)
		if got := d.String(); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func ExampleSearch() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	goal := tune.Goal{MaxDrop: &tune.Drop{Amount: 0.01, Relative: true}}
	r, err := tune.Search(context.Background(), in, out, tune.Options{
		Goal: goal, Judge: bytesJudge{16000, 0}, Make: new(converter).make, Try: []tune.Kind{tune.Weights},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Verdict, r.Winner.Kind)
	// Output: reached weights
}

// The command of each row of the page makes the model of that row, with the mix that the page gives under its name.
func TestPageCommands(t *testing.T) {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	c := &converter{}
	o := options(c, bytesJudge{12000, 0})
	o.Try = []tune.Kind{tune.Mixes}
	r, err := tune.Search(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?s)<td class="n">([0-9,]+)<td>[^\n]*--precision-info (\S+)[^\n]*?href="data:application/json;base64,([^"]+)" download="([^"]+)"`).FindAllStringSubmatch(page.String(), -1)
	if len(rows) != len(r.Trials) {
		t.Fatalf("%d rows of %d trials have a mix", len(rows), len(r.Trials))
	}
	mixes := map[string]string{}
	for i, row := range rows {
		path, name := row[2], row[4]
		if filepath.Base(path) != name || filepath.Dir(path) != filepath.Dir(out) {
			t.Errorf("the command reads %s, the page has %s", path, name)
		}
		raw, err := base64.StdEncoding.DecodeString(html.UnescapeString(row[3]))
		if other, ok := mixes[name]; err != nil || ok && other != string(raw) {
			t.Errorf("%s: %v, or it is the name of two mixes", name, err)
		}
		mixes[name] = string(raw)
		mix := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(mix, raw, 0o666); err != nil {
			t.Fatal(err)
		}
		made := filepath.Join(t.TempDir(), filepath.Base(out))
		if err := c.make(t.Context(), []string{"--precision-info", mix, "--allow-fallback", in, made}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(made); !slices.ContainsFunc(r.Trials[i].Flags, func(f string) bool { return f == "--float16" || f == "--algorithm" }) && (err != nil || info.Size() != r.Trials[i].Bytes) {
			t.Errorf("%s makes %d bytes, want %d", name, info.Size(), r.Trials[i].Bytes)
		}
	}
	if len(mixes) < 2 {
		t.Errorf("%d mixes", len(mixes))
	}
}

// Without ONNX Runtime a search says once that the models run slowly.
func TestWarnsSlow(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // the helper is not there
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	const samples, width = 8, 64
	header := fmt.Sprintf("%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", samples, width))
	raw := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	raw = append(raw, header...)
	for i := range samples * width {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i*37%19)-9))
	}
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(data, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	sqnr, told := 20.0, []string(nil)
	o := tune.Options{Data: []string{data}, Make: new(converter).make, Try: []tune.Kind{tune.Weights}, DryRun: true, Warn: func(text string) { told = append(told, text) }}
	o.Goal.MinSQNR = &sqnr
	r, err := tune.Search(t.Context(), in, out, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !strings.Contains(told[0], "takes several times as long") || !slices.Equal(told, r.Warnings) {
		t.Errorf("told %q, the result has %q", told, r.Warnings)
	}
}
