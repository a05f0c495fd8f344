//go:build unix

package tune

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestScore(t *testing.T) {
	for _, test := range []struct {
		command string
		want    float64
		message string
	}{
		{"echo loading; : {}; echo score: 0.5", 0.5, ""},
		{": {}; echo 97.5%", 97.5, ""},
		{"test -e {} && echo 1", 1, ""},
		{"echo 3; test -e", 3, ""},
		{"test -d {}", 0, "exit status 1"},
		{"echo fine #{}", 0, "does not end with a number"},
		{"echo nan #{}", 0, "does not end with a number"},
		{"true {}", 0, "printed nothing"},
		{"echo broken >&2; exit 3 #{}", 0, "exit status 3): broken"},
	} {
		path := filepath.Join(t.TempDir(), "a 'model' $x.onnx")
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		q, err := (&Score{Command: test.command}).Judge(t.Context(), path, false)
		switch {
		case test.message != "":
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("%s: %v, want %s", test.command, err, test.message)
			}
		case err != nil:
			t.Errorf("%s: %v", test.command, err)
		case *q.Score != test.want:
			t.Errorf("%s: %v, want %v", test.command, *q.Score, test.want)
		}
	}
}

// Scores do not count for a program that changed.
func TestScorePrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "score.sh")
	s := &Score{Command: "sh '" + path + "' {}; echo 1"}
	if sums := s.programs(); len(sums) != 0 {
		t.Errorf("%q without a file", sums)
	}
	var seen []string
	for _, text := range []string{"echo 1", "echo 2"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		sums := s.programs()
		if len(sums) != 1 || slices.Contains(seen, sums[0]) {
			t.Errorf("%q for %s, before: %q", sums, text, seen)
		}
		seen = append(seen, sums...)
	}
}

// A program that gives all models the same score does not look at them.
func TestSameScores(t *testing.T) {
	same, other := 90.0, 89.0
	for _, test := range []struct {
		scores []*float64
		warned bool
	}{
		{[]*float64{&same, &same, &same}, true},
		{[]*float64{&same, &same}, false},
		{[]*float64{&same, &same, &other, &same}, false},
		{[]*float64{&same, nil, &same}, false},
	} {
		s := &search{opts: &Options{Score: &Score{}}, result: &Result{Float: Quality{Score: &same}}}
		for _, score := range test.scores {
			s.trials = append(s.trials, &Trial{Quality: Quality{Score: score}})
		}
		if s.checkScores(); len(s.result.Warnings) > 0 != test.warned {
			t.Errorf("%d scores: %q", len(test.scores), s.result.Warnings)
		}
	}
}

// What a score command starts ends with it, and the time is bounded.
func TestScoreTimeout(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	s := &Score{Command: "(sleep 2; touch " + alive + ") & sleep 100 #{}", Timeout: 100 * time.Millisecond}
	start := time.Now()
	_, err := s.Judge(t.Context(), "x.onnx", false)
	if err == nil || !strings.Contains(err.Error(), "--score-timeout") || time.Since(start) > 2*time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Judge(ctx, "x.onnx", false); err == nil {
		t.Error("it ran")
	}
	time.Sleep(2100*time.Millisecond - time.Since(start))
	if _, err := os.Stat(alive); err == nil {
		t.Error("a process that it started is left")
	}
}

func TestQuoted(t *testing.T) {
	for command, want := range map[string]bool{
		`eval {}`: false, `eval "a b" {} 'c'`: false, `echo "$(eval {})"`: false, "echo \"`eval {}`\"": false, `eval \" {} \"`: false, `eval`: false,
		`eval "{}"`: true, `eval '{}'`: true, `eval "x {} y"`: true, `python -c 'd = {} '`: true, `eval {}"x"`: true, `echo "$(eval "{}")"`: true,
	} {
		if got := quoted(command); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}

// What a score command started ends also if this process is killed.
func TestKilled(t *testing.T) {
	if folder := os.Getenv("TEST_KILLED"); folder != "" {
		s := &Score{Command: "cd " + folder + "; touch started; sleep 2; touch alive; echo 1; : {}"}
		s.Judge(t.Context(), "x.onnx", false)
		return
	}
	folder := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "TEST_KILLED="+folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for {
		if _, err := os.Stat(filepath.Join(folder, "started")); err == nil {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the command does not start")
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond) // until it is followed
	cmd.Process.Kill()
	cmd.Wait()
	time.Sleep(2 * time.Second)
	if _, err := os.Stat(filepath.Join(folder, "alive")); err == nil {
		t.Error("the command is left")
	}
}

// A belief moves towards what it saw.
func TestBelief(t *testing.T) {
	b := newBelief(0.01, 2)
	before := b.chance(0.02, 0.3)
	b.saw(0.03, 0.15, true)
	if b.chance(0.02, 0.3) < max(before, 0.9) {
		t.Error("a smaller loss than one that is allowed should be likely")
	}
	b.saw(0.04, 0.15, false)
	if p := b.chance(0.08, 0.3); p > 0.1 {
		t.Errorf("a larger loss than one that is not allowed has chance %v", p)
	}
	if p := b.chance(0.035, 0.05); p < 0.2 || p > 0.8 {
		t.Errorf("between both the chance is %v", p)
	}
}
