package tune

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// journal keeps trials in a file of JSON lines. What a trial depends on is its key: the model, the data, the judge, and the
// version of the program. Trials with other keys, and a line that was cut, are not read.
type journal struct {
	path   string
	key    string
	timed  string           // see search.machine
	trials map[string]Trial // by their flags
}

// entry is a line.
type entry struct {
	Key     string  `json:"key"`
	Timed   string  `json:"timed,omitempty"` // what times depend on
	Trial   Trial   `json:"trial"`
	Elapsed float64 `json:"elapsed"` // seconds of the search when the trial ended
}

const journalName = "trials.jsonl"

// openJournal opens the journal of a folder. Times that were measured on another machine, or with other settings, are left out.
func openJournal(folder, machine string, key ...string) (*journal, error) {
	sum := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	j := &journal{path: filepath.Join(folder, journalName), key: hex.EncodeToString(sum[:16]), timed: machine, trials: map[string]Trial{}}
	return j, eachLine(j.path, func(raw []byte) {
		var e entry
		if json.Unmarshal(raw, &e) == nil && e.Key == j.key {
			e.Trial.Kept, e.Trial.elapsed = true, e.Elapsed
			if e.Timed != machine {
				e.Trial.Time = nil
			}
			j.trials[flagsKey(e.Trial.Flags)] = e.Trial
		}
	})
}

// eachLine reads the lines of a file, which may be missing.
func eachLine(path string, do func(raw []byte)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		do(lines.Bytes())
	}
	return lines.Err()
}

func flagsKey(flags []string) string { return strings.Join(flags, "\x00") }

// kept returns the trial of an earlier search. One that failed is tried again: the user may have mended the cause.
func (j *journal) kept(flags []string) (Trial, bool) {
	t, ok := j.trials[flagsKey(flags)]
	return t, ok && t.Failed == ""
}

// add writes a trial behind the others.
func (j *journal) add(t Trial) error {
	j.trials[flagsKey(t.Flags)] = t
	return appendLine(j.path, entry{j.key, j.timed, t, t.elapsed})
}

// appendLine writes a line of JSON at the end of a file. A line that a crash cut ends first.
func appendLine(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	if size, err := f.Seek(0, 2); err == nil && size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err == nil && last[0] != '\n' {
			raw = append([]byte{'\n'}, raw...)
		}
	}
	_, err = f.Write(append(raw, '\n'))
	return errors.Join(err, f.Close())
}
