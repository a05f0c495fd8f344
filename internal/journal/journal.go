// Package journal keeps what a long search measures, so that a run after an interruption goes on from there.
//
// [Open] gets a folder and a key of all that measurements depend on; it locks the folder until [Journal.Close]. [Remember] returns a
// measurement: what an earlier run has kept, or what the search finds now. The file has a checksum for each, so what a crash cuts is
// measured again.
package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"onnxquant/internal/commit"
)

// A Journal keeps what was measured in a folder, for a run that goes on after an interruption. A search asks for the same
// measurements in the same order each time, so it gets those that are kept, and continues behind them. A nil Journal keeps nothing.
type Journal struct {
	folder string
	key    string // of all that measurements depend on
	file   *os.File
	end    int64   // place in the file behind the entries that hold
	known  []entry // kept by an earlier run, in order; those asked for are gone
	unlock func()
}

// entry is a measurement in the file.
type entry struct {
	What  string
	Value []byte
	end   int64 // place behind it in the file
}

const (
	fileName = "measured"
	maxEntry = 1 << 30 // a longer one is damage of the file
)

// Options say how a journal is opened.
type Options struct {
	Resume    bool           // with the same key, it has what an earlier run measured
	Temporary string         // prefix of folders in it that a killed run leaves, which are removed
	Waits     func()         // is called if another process has the folder; may be nil
	Resumed   func(kept int) // gets the number of measurements of an earlier run; may be nil
	Begins    func()         // is called if Resume is set and there is nothing to resume; may be nil
}

func (o *Options) waits() {
	if o.Waits != nil {
		o.Waits()
	}
}

func (o *Options) resumed(kept int) {
	if o.Resumed != nil {
		o.Resumed(kept)
	}
}

func (o *Options) begins() {
	if o.Begins != nil {
		o.Begins()
	}
}

// Open opens the journal in a folder.
func Open(ctx context.Context, folder, key string, o Options) (_ *Journal, err error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o777); err != nil {
		return nil, err
	}
	j := &Journal{folder: folder, key: key}
	if j.unlock, err = commit.Lock(ctx, folder, o.waits); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.unlock()
		}
	}()
	path := filepath.Join(folder, fileName)
	if o.Resume {
		found, err := j.resume(path, o.Temporary)
		if err != nil { // what was measured stays
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
		if found {
			o.resumed(len(j.known))
			return j, nil
		}
		o.begins()
	}
	if err = os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if err = os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err = j.add(key, nil); err != nil {
		j.file.Close()
		return nil, err
	}
	return j, nil
}

// resume opens what an earlier run with the same key measured, if there is that.
func (j *Journal) resume(path, temporary string) (found bool, err error) {
	j.file, err = os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	known := readEntries(j.file)
	if found = len(known) > 0 && known[0].What == j.key; found {
		err = j.removeTemporary(temporary)
	}
	if !found || err != nil {
		j.file.Close()
		return false, err
	}
	j.known = known
	j.take()
	return true, nil
}

// removeTemporary removes folders that a killed run left.
func (j *Journal) removeTemporary(prefix string) error {
	left, err := os.ReadDir(j.folder)
	for _, f := range left {
		if prefix != "" && strings.HasPrefix(f.Name(), prefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(j.folder, f.Name())))
		}
	}
	return err
}

// Close ends the use of a journal. Unless it is kept, its folder is removed.
func (j *Journal) Close(keep bool) error {
	if j == nil || j.unlock == nil {
		return nil
	}
	err := j.file.Close()
	if !keep {
		err = errors.Join(err, os.RemoveAll(j.folder))
	}
	j.unlock()
	j.unlock = nil
	return err
}

// An entry in the file is its length and its checksum, of 4 bytes each, and its encoding by package gob.
const entryHead = 8

// readEntries reads the entries up to one that a crash cut.
func readEntries(f *os.File) (all []entry) {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	var head [entryHead]byte
	for at := int64(0); ; {
		if _, err := f.ReadAt(head[:], at); err != nil {
			return all
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if at += entryHead; n > min(maxEntry, info.Size()-at) {
			return all
		}
		raw := make([]byte, n)
		if _, err := f.ReadAt(raw, at); err != nil || crc32.ChecksumIEEE(raw) != binary.LittleEndian.Uint32(head[4:]) {
			return all
		}
		e := entry{end: at + n}
		if gob.NewDecoder(bytes.NewReader(raw)).Decode(&e) != nil {
			return all
		}
		all, at = append(all, e), e.end
	}
}

// add writes an entry behind the others. It does not wait for the disk: checksums show what a power failure lost.
func (j *Journal) add(what string, value []byte) error {
	var b bytes.Buffer
	b.Write(make([]byte, entryHead))
	if err := gob.NewEncoder(&b).Encode(entry{What: what, Value: value}); err != nil {
		return err
	}
	raw := b.Bytes()
	binary.LittleEndian.PutUint32(raw, uint32(len(raw)-entryHead))
	binary.LittleEndian.PutUint32(raw[4:], crc32.ChecksumIEEE(raw[entryHead:]))
	if err := j.file.Truncate(j.end); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(raw, j.end); err != nil {
		return err
	}
	j.end += int64(len(raw))
	return nil
}

// take takes the next entry.
func (j *Journal) take() { j.end, j.known = j.known[0].end, j.known[1:] }

// recall sets the value of a measurement, if the next entry is that one. Else it drops the entries that are left.
func (j *Journal) recall(what string, value any) bool {
	if len(j.known) == 0 {
		return false
	}
	e := j.known[0]
	if e.What == what && gob.NewDecoder(bytes.NewReader(e.Value)).Decode(value) == nil {
		j.take()
		return true
	}
	j.known = nil
	return false
}

// Remember returns what find finds, or what it found in an earlier run.
func Remember[T any](j *Journal, what string, find func() (T, error)) (x T, err error) {
	if j == nil {
		return find()
	}
	if j.recall(what, &x) {
		return x, nil
	}
	x = *new(T)
	if x, err = find(); err != nil {
		return x, err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(x); err != nil {
		return x, err
	}
	return x, j.add(what, b.Bytes())
}

// Folder is where the journal is; the caller may put files of a run there.
func (j *Journal) Folder() string { return j.folder }
