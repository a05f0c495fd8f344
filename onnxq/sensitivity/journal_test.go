package sensitivity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/internal/journal"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

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
		kept   bool // the loss
		failed bool
	}{
		{&sample{}, true, false}, // it lacks inputs of the model
		{&sample{folder: filepath.Join(t.TempDir(), "missing")}, false, true},
	} {
		folder := filepath.Join(t.TempDir(), "state")
		j, err := journal.Open(t.Context(), folder, "key", journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		size := func() int64 {
			info, err := os.Stat(filepath.Join(folder, "measured"))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		before := size()
		s := &Sensitivity{engine: engine, journal: j, others: samples{list: []*sample{c.sample}}}
		if _, err := s.lossOfOutput(t.Context(), m, onnxq.Options{}); (err != nil) != c.failed {
			t.Error(err)
		}
		if got := size() > before; got != c.kept {
			t.Errorf("%+v is kept: %v", c.sample, got)
		}
		if err := j.Close(false); err != nil {
			t.Error(err)
		}
	}
}
