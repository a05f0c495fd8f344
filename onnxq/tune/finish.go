package tune

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
	"onnxquant/rules"
)

// refusedShare is the largest severity of other trials, over that of one that the final samples refused.
const refusedShare = 0.7

// final judges a trial on samples that the search never saw.
func (s *search) final(ctx context.Context, t *Trial) (ok bool, err error) {
	if !s.unseen() {
		s.result.Verdict, s.result.Reason = Chosen, "by the score that the search saw; no other data judged it"
		return true, s.again(ctx, t)
	}
	path, err := s.made(ctx, t)
	if err != nil {
		return false, err
	}
	s.progress("judging the winner", 0, 0)
	float := s.result.Float
	if s.result.FinalOf != nil {
		float = *s.result.FinalOf
	} else if s.result.Float.Score != nil {
		if float, err = s.judge.Judge(ctx, s.in, true); err != nil {
			return false, fmt.Errorf("%s: %w", s.in, err)
		}
		s.result.FinalOf = &float
	}
	q, err := s.judge.Judge(ctx, path, true)
	if err != nil {
		return false, err
	}
	s.result.Judged++
	s.result.Final, t.Final = &q, true
	if lost := s.goal.lost(float, q, s.lower); lost != "" {
		t.Holds, t.Why = false, "on samples that the search never saw: "+lost
		s.learn(t, false)
		s.severe = refusedShare * s.severity(t)
		return false, nil
	}
	s.result.Verdict = Reached
	s.result.Reason = "also on data that the search never saw"
	if s.outputs != nil && s.result.Float.Score == nil {
		s.result.Reason = fmt.Sprintf("also on %d samples that the search never saw", s.result.Samples.Final)
	}
	if n := s.result.Judged; n > 1 {
		s.result.Reason += fmt.Sprintf("; %d candidates were judged on them in turn", n)
	}
	return true, nil
}

// unseen reports whether there is something that only the final judgement uses.
func (s *search) unseen() bool {
	switch {
	case s.opts.Judge != nil:
		return true
	case s.opts.Score != nil:
		return s.opts.Score.Final != ""
	}
	return true
}

// again makes the file of a trial if it is not there.
func (s *search) again(ctx context.Context, t *Trial) error {
	_, err := s.made(ctx, t)
	return err
}

// write writes the output: the file that was judged. The result has the command line that makes it again.
func (s *search) write(ctx context.Context, t *Trial) error {
	s.compareTimes(ctx, t)
	s.progress("writing "+filepath.Base(s.out), 0, 0)
	args, err := s.arguments(t.candidate, s.out)
	if err != nil {
		return err
	}
	judged := s.place(t.candidate)
	if _, err = os.Stat(judged + ".data"); err == nil {
		err = s.rewrite(ctx, judged, args)
	} else {
		err = s.copy(ctx, judged)
	}
	if err != nil {
		return err
	}
	r := s.result
	r.Output, r.Command, r.Winner = s.out, args, clone(t)
	if t.candidate.mix != nil {
		r.Precision = mixPath(s.out)
	}
	return nil
}

// copy copies the file that was judged to the output, which appears complete or not at all.
func (s *search) copy(ctx context.Context, judged string) error {
	from, err := os.Open(judged)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := commit.Create(ctx, s.out, s.model.Graph().File, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to.Model, from); err != nil {
		to.Abort()
		return err
	}
	return to.Commit(ctx, nil)
}

// rewrite converts once more, to the output: external data are committed together with their model. The files must have the
// bytes that were judged.
func (s *search) rewrite(ctx context.Context, judged string, args []string) error {
	more := []string{"--quiet"}
	if s.opts.Force {
		more = append(more, "--force")
	}
	if err := s.opts.Make(ctx, append(more, args...)); err != nil {
		return err
	}
	for _, suffix := range []string{"", ".data"} {
		same, err := sameFile(judged+suffix, s.out+suffix)
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("%s has other bytes than the candidate that was judged: the conversion is not deterministic here", s.out+suffix)
		}
	}
	return nil
}

// compareTimes measures the winner beside the runner-up, for the report. What fails there does not matter.
func (s *search) compareTimes(ctx context.Context, t *Trial) {
	for _, other := range s.ranked() {
		if other != t {
			s.result.RunnerUp = clone(other)
			break
		}
	}
	if !s.library || t.Time != nil || s.over() {
		return
	}
	s.progress("timing the winner", 0, 0)
	if times, err := s.bench(ctx, s.place(t.candidate)); err == nil {
		t.Time = times[0]
	}
}

func clone(t *Trial) *Trial {
	c := *t
	return &c
}

// place is the path of a candidate's file.
func (s *search) place(c *candidate) string {
	sum := sha256.Sum256([]byte(flagsKey(c.flags)))
	return filepath.Join(s.folder, "made", hex.EncodeToString(sum[:8]), filepath.Base(s.out))
}

// sizeOf is the size of a model and its external data.
func sizeOf(path string) (int64, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.Size(), nil
}

// writePrecision writes a precision_info. It replaces only a file that is one.
func writePrecision(path string, p *rules.Precision, force bool) error {
	if _, err := os.Stat(path); err == nil && !force {
		if _, err := rules.LoadPrecision(path); err != nil {
			return fmt.Errorf("%s is not a precision_info, which the search would write there; --force replaces it", path)
		}
	}
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, append(raw, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
