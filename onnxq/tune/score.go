package tune

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"onnxquant/internal/process"
	"onnxquant/internal/regularfile"
)

// Score is a program of the user that judges a model. Command is a line for the shell, in which {} stands for the path of
// the model, quoted: no quotes may be around it. Without {} the path follows at the end. The last line that it prints ends with a number.
type Score struct {
	Command       string
	LowerIsBetter bool
	Timeout       time.Duration // of a run; 0: DefaultScoreTimeout

	// Final, if not "", judges the winner at the end, on data that Command does not use.
	Final string
}

// DefaultScoreTimeout is the time that a run of the user's program may take.
const DefaultScoreTimeout = 10 * time.Minute

// Judge implements Judge.
func (s *Score) Judge(ctx context.Context, path string, final bool) (q Quality, err error) {
	command := s.Command
	if final && s.Final != "" {
		command = s.Final
	}
	limit := s.Timeout
	if limit <= 0 {
		limit = DefaultScoreTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the score command was stopped after %v; --score-timeout lets it take more", limit))
	defer cancel()
	printed, err := run(ctx, shell(ctx, command, path))
	if ctx.Err() != nil {
		return q, context.Cause(ctx)
	}
	if err != nil {
		return q, fmt.Errorf("the score command failed (%w)%s", err, said(printed.stderr))
	}
	score, err := number(printed.stdout)
	if err != nil {
		return q, fmt.Errorf("the score command %w%s", err, said(printed.stderr))
	}
	return Quality{Score: &score}, nil
}

// programs are the SHA-256 sums of the files that the command names: with another one, earlier scores do not count.
func (s *Score) programs() (sums []string) {
	for _, word := range strings.Fields(s.Command) {
		f, _, err := regularfile.Open(strings.Trim(word, `'";`))
		if err != nil {
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err == nil {
			sums = append(sums, hex.EncodeToString(sum.Sum(nil)))
		}
		f.Close()
	}
	return sums
}

// fewestScores is the number of candidates from which equal scores are suspicious.
const fewestScores = 3

// checkScores warns if the user's program gave all models the same score.
func (s *search) checkScores() {
	scored, float := 0, s.result.Float.Score
	if s.opts.Score == nil || float == nil {
		return
	}
	for _, t := range s.trials {
		if score := t.Quality.Score; score != nil {
			if scored++; *score != *float {
				return
			}
		}
	}
	if scored >= fewestScores {
		s.warn(fmt.Sprintf("the score of %s and of all %d models that were tried is %.6g: does the score command use the path of the model?", s.result.Input, scored, *float))
	}
}

func said(stderr []byte) string {
	if line := lastLine(stderr); line != "" {
		return ": " + line
	}
	return ""
}

// number is at the end of the last line of a text.
func number(text []byte) (float64, error) {
	line := lastLine(text)
	if line == "" {
		return 0, errors.New("printed nothing; its last line must be a number")
	}
	words := strings.Fields(line)
	v, err := strconv.ParseFloat(strings.TrimSuffix(words[len(words)-1], "%"), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("printed %.80q at last, which does not end with a number", line)
	}
	return v, nil
}

// lastLine is the last line of a text that is not empty.
func lastLine(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}

// quoted reports whether {} is inside of quotes, or beside one: withPath quotes the path, and quotes do not nest.
func quoted(command string) bool {
	var quote byte
	since := 0
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote == 0 && (c == '\'' || c == '"'):
			quote, since = c, i
		case c == quote:
			quote = 0
		case strings.HasPrefix(command[i:], "{}"):
			if inside := command[since:i]; quote == '\'' || quote == '"' && !strings.Contains(inside, "$(") && !strings.Contains(inside, "`") {
				return true
			}
			if i > 0 && strings.ContainsAny(command[i-1:i], `'"`) || i+2 < len(command) && strings.ContainsAny(command[i+2:i+3], `'"`) {
				return true
			}
		}
	}
	return false
}

// withPath puts the path of a model into a command.
func withPath(command, path string) string {
	if !strings.Contains(command, "{}") {
		return command + " " + path
	}
	return strings.ReplaceAll(command, "{}", path)
}

// printed is what a program printed.
type printed struct{ stdout, stderr []byte }

// grace is the time that a program has to clean up when it is told to end.
const grace = 5 * time.Second

// grouped is a command that the end of the context ends with all that it started: first with SIGTERM; what is left is killed by run.
func grouped(ctx context.Context, path string, args ...string) *exec.Cmd {
	return process.Grouped(ctx, syscall.SIGTERM, path, args...)
}

// run runs a command of grouped, and ends all that it started, also if this process is killed.
func run(ctx context.Context, cmd *exec.Cmd) (printed, error) {
	var stdout, stderr tail
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, grace
	if err := cmd.Start(); err != nil {
		return printed{}, err
	}
	wait := process.Follow(cmd)
	err := cmd.Wait()
	process.KillGroup(cmd)
	wait()
	return printed{stdout, stderr}, err
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	const most = 1 << 16
	*t = append(*t, p...)
	if n := len(*t); n > 2*most {
		*t = append((*t)[:0], (*t)[n-most:]...)
	}
	return len(p), nil
}
