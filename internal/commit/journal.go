package commit

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The lock file is also a journal. Each line names a file in the same folder, quoted.
const (
	journalTemporary = "temporary " // temporary external data
	journalData      = "data "      // an external data file of this target, to be replaced or removed
)

// journal has the entries of a conversion that crashed.
type journal struct {
	temporaries []string
	claimed     []string
}

// maxJournal is the largest journal that is read: 100 files with long names.
const maxJournal = 1 << 17

// readJournal reads the journal of the target at path. It ignores unknown lines.
func readJournal(path string) (j journal) {
	info, err := os.Lstat(lockPath(path))
	if err != nil || !info.Mode().IsRegular() {
		return j
	}
	f, err := os.Open(lockPath(path))
	if err != nil {
		return j
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxJournal))
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), journalTemporary); ok {
			j.temporaries = appendName(j.temporaries, name)
		}
		if name, ok := strings.CutPrefix(lines.Text(), journalData); ok {
			j.claimed = appendName(j.claimed, name)
		}
	}
	return j
}

func appendName(names []string, quoted string) []string {
	name, err := strconv.Unquote(quoted)
	if err != nil || filepath.Base(name) != name {
		return names
	}
	return append(names, name)
}

// note adds lines to the journal.
func (t *Target) note(kind string, paths []string) error {
	var lines strings.Builder
	for _, p := range paths {
		lines.WriteString(kind + strconv.Quote(filepath.Base(p)) + "\n")
	}
	if lines.Len() == 0 {
		return nil
	}
	end, err := t.lock.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	_, err = t.lock.WriteAt([]byte(lines.String()), end)
	return err
}
