package sensitivity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

// A journal that cannot be opened is none. One that is resumed has no samples of the search that was killed.
func TestOpenJournal(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	j, err := openJournal(t.Context(), folder, "key", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add("entry", nil); err != nil {
		t.Fatal(err)
	}
	if err := j.close(true); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(folder, samplesPrefix+"1")
	if err := os.MkdirAll(filepath.Join(left, "more"), 0o777); err != nil {
		t.Fatal(err)
	}
	told := ""
	j, err = openJournal(t.Context(), folder, "key", true, func(text string) { told = text })
	if err != nil || len(j.known) != 1 || told != "going on behind 1 measurement of the interrupted run; the float model runs on the samples again" {
		t.Fatalf("%+v, %v, %q", j, err, told)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("samples are left")
	}
	if err := j.close(true); err != nil {
		t.Fatal(err)
	}
	// The folder cannot be removed by this name, after it is locked.
	if j, err := openJournal(t.Context(), folder+string(filepath.Separator)+".", "other", false, nil); j != nil || err == nil {
		t.Errorf("%+v, %v", j, err)
	}
}

// fails is a session whose runs fail.
type fails struct{ err error }

func (f fails) Run([]*execute.Tensor, ...string) ([]*execute.Tensor, error) { return nil, f.err }
func (fails) Close()                                                        {}

// Errors of the runtime about a model are its damage. The journal keeps no others: those of a process that was killed, of a search
// that was stopped, and of samples.
func TestDefects(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	one := samples{list: []*sample{{}}}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want bool
	}{
		{t.Context(), errors.New("no kernel"), true},
		{t.Context(), ort.ErrEnded, true},
		{t.Context(), fmt.Errorf("%w: 9", ort.ErrKilled), false},
		{stopped, errors.New("no kernel"), false},
	} {
		_, err := new(Sensitivity).damageOn(c.ctx, fails{c.err}, one)
		if _, got := errors.AsType[defect](err); got != c.want || err == nil {
			t.Errorf("%v: %v is a defect: %v", c.err, err, got)
		}
	}
	path := modeltest.Build(t, "mlp")
	m, err := onnxq.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	engine, err := observe.Find(t.Context(), observe.Go, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sample *sample
		kept   int // entries
		failed bool
	}{
		{&sample{}, 2, false}, // it lacks inputs of the model
		{&sample{folder: filepath.Join(t.TempDir(), "missing")}, 1, true},
	} {
		j, err := openJournal(t.Context(), filepath.Join(t.TempDir(), "state"), "key", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &Sensitivity{engine: engine, journal: j, others: samples{list: []*sample{c.sample}}}
		if _, err := s.lossOfOutput(t.Context(), m, onnxq.Options{}); (err != nil) != c.failed {
			t.Error(err)
		}
		if got := readEntries(j.file); len(got) != c.kept {
			t.Errorf("%d entries: %+v", len(got), got)
		}
		if err := j.close(false); err != nil {
			t.Error(err)
		}
	}
}
