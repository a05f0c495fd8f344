package tune

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
	"onnxquant/rules"
)

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
			return false, fmt.Errorf("%s: %w", s.result.Input, err)
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
		s.refuse(t, q)
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
	s.progress("writing "+filepath.Base(s.out), 0, 0)
	mix := mixPath(s.out)
	if t.candidate.mix != nil {
		if err := s.checkPrecision(mix); err != nil {
			return err
		}
	}
	if err := s.put(ctx, s.place(t.candidate)); err != nil {
		return err
	}
	r := s.result
	r.Output, r.Command, r.Winner = s.out, arguments(t.candidate.flags, mix, r.Input, s.out), clone(t)
	if t.candidate.mix != nil {
		if err := writePrecision(mix, t.candidate.mix); err != nil {
			return err
		}
		r.Precision = mix
	}
	return nil
}

// put copies the files that were judged to the output. They appear complete and together, or not at all.
func (s *search) put(ctx context.Context, judged string) error {
	from, names := []string{judged}, []string(nil)
	if _, err := os.Stat(judged + dataSuffix); err == nil {
		from, names = append(from, judged+dataSuffix), []string{filepath.Base(judged) + dataSuffix}
	}
	to, err := commit.Create(ctx, s.out, s.model.Graph().File, names)
	if err != nil {
		return err
	}
	for i, f := range append([]*os.File{to.Model}, to.Data...) {
		if err := copyTo(f, from[i]); err != nil {
			to.Abort()
			return err
		}
	}
	return to.Commit(ctx, func(w io.WriterAt, locations []string) error { return relocate(w, judged, names[0], locations[0]) })
}

// dataSuffix ends the names of external data.
const dataSuffix = ".data"

func copyTo(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// relocate replaces the name of the external data in a copy of the model at path by another one of the same length.
func relocate(w io.WriterAt, path, name, other string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// An entry of external_data, as protobuf encodes it: field 1 is the key, field 2 its value.
	front := protowire.AppendVarint([]byte("\x0a\x08location\x12"), uint64(len(name)))
	entry := append(slices.Clone(front), name...)
	if !bytes.Contains(raw, entry) {
		return fmt.Errorf("%s does not refer to %s", path, name)
	}
	_, err = w.WriteAt(bytes.ReplaceAll(raw, entry, append(front, other...)), 0)
	return err
}

// compareTimes names the runner-up. It measures a winner without a time beside the float model if the goal is about time, for at most
// mostTiming. What fails there does not matter.
func (s *search) compareTimes(ctx context.Context, t *Trial) {
	for _, other := range s.ranked() {
		if other != t {
			s.result.RunnerUp = clone(other)
			break
		}
	}
	if !s.goal.needsTime() || t.Time != nil || s.over() || ctx.Err() != nil {
		return
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, mostTiming)
	defer stop()
	s.progress("timing the winner", 0, 0)
	if took, err := s.timer(ctx, s.place(t.candidate), timing); err == nil {
		t.Time = took
		s.journal.add(*t)
	}
}

// mostTiming bounds the timing of a winner that misses the goal.
const mostTiming = 10 * time.Second

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

// checkPrecision refuses to replace a file that is no precision_info.
func (s *search) checkPrecision(path string) error {
	if _, err := os.Stat(path); err == nil && !s.opts.Force {
		if _, err := rules.LoadPrecision(path); err != nil {
			return fmt.Errorf("%s is not a precision_info, which the search would write there; --force replaces it", path)
		}
	}
	return nil
}

// writePrecision writes a precision_info.
func writePrecision(path string, p *rules.Precision) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return commit.ReplaceFile(path, append(raw, '\n'))
}
