package sensitivity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/commit"
	"onnxquant/internal/convert"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
)

// A journal keeps what was measured in a folder, for a run that goes on after an interruption. A search asks for the same
// measurements in the same order each time, so it gets those that are kept, and continues behind them. A nil journal keeps nothing.
type journal struct {
	folder string
	key    string // of all that measurements depend on
	file   *os.File
	end    int64   // place in the file behind the entries that hold
	known  []entry // kept by an earlier run, in order; those asked for are gone
	codes  int     // searches for codes so far
	unlock func()
}

// entry is a measurement in the file.
type entry struct {
	What  string
	Value []byte
	end   int64 // place behind it in the file
}

const (
	journalName    = "measured"
	journalVersion = 2       // increases when the same options are measured in another way
	maxEntry       = 1 << 30 // a longer one is damage of the file
)

// openJournal opens the journal in a folder. With resume, and the same key, it has what an earlier run measured.
func openJournal(ctx context.Context, folder, key string, resume bool, notify func(text string)) (_ *journal, err error) {
	if notify == nil {
		notify = func(string) {}
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o777); err != nil {
		return nil, err
	}
	j := &journal{folder: folder, key: key}
	j.unlock, err = commit.Lock(ctx, folder, func() {
		notify(fmt.Sprintf("another process calibrates in %s; waiting for its end", filepath.Base(folder)))
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.unlock()
		}
	}()
	path := filepath.Join(folder, journalName)
	if resume {
		if j.file, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
			if j.known = readEntries(j.file); len(j.known) > 0 && j.known[0].What == key {
				if err = j.removeSamples(); err == nil {
					j.take()
					notify(fmt.Sprintf("going on behind %s of the interrupted run; the float model runs on the samples again", english.Plural(len(j.known), "measurement", "")))
					return j, nil
				}
			}
			j.file.Close()
		}
		notify("nothing to resume: no calibration of this model with these data and flags was interrupted; calibration starts from the beginning")
	}
	j.known = nil
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

// removeSamples removes the samples that a killed search left.
func (j *journal) removeSamples() error {
	left, err := os.ReadDir(j.folder)
	for _, f := range left {
		if strings.HasPrefix(f.Name(), samplesPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(j.folder, f.Name())))
		}
	}
	return err
}

// close ends the use of a journal. Unless it is kept, its folder is removed.
func (j *journal) close(keep bool) error {
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
func (j *journal) add(what string, value []byte) error {
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
func (j *journal) take() { j.end, j.known = j.known[0].end, j.known[1:] }

// recall sets the value of a measurement, if the next entry is that one. Else it drops the entries that are left.
func (j *journal) recall(what string, value any) bool {
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

// remembered returns what find finds, or what it found in an earlier run.
func remembered[T any](j *journal, what string, find func() (T, error)) (x T, err error) {
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

// codesFolder returns a folder for a search for codes, and the key of its result.
func (j *journal) codesFolder() (folder, key string) {
	j.codes++
	return filepath.Join(j.folder, fmt.Sprintf("codes-%d", j.codes)), fmt.Sprintf("%s %d", j.key, j.codes)
}

// keptLoss is an OutputLoss in a journal, which tells 0 from nil.
type keptLoss struct {
	Damage         float64
	KL, SQNR, Drop []float64
	Poor           string
	Failed         string // why the runtime could not run the model, or ""
}

func keepLoss(x onnxq.OutputLoss) keptLoss {
	list := func(v *float64) []float64 {
		if v == nil {
			return nil
		}
		return []float64{*v}
	}
	return keptLoss{Damage: x.Damage, KL: list(x.KL), SQNR: list(x.SQNR), Drop: list(x.Drop), Poor: x.Poor}
}

func (k keptLoss) loss() onnxq.OutputLoss {
	pointer := func(v []float64) *float64 {
		if len(v) == 0 {
			return nil
		}
		return &v[0]
	}
	return onnxq.OutputLoss{Damage: k.Damage, KL: pointer(k.KL), SQNR: pointer(k.SQNR), Drop: pointer(k.Drop), Poor: k.Poor}
}

// journalKey is a hash of the version of the program, the model, the data and the options of a search.
func journalKey(ctx context.Context, version string, m *onnxq.Model, data *calibrate.Data, o onnxq.Options, limits Limits) (string, error) {
	h := sha256.New()
	sum, err := m.Graph().File.SHA256()
	if err != nil {
		return "", err
	}
	key, err := data.Key(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, journalVersion, version, sum, key, data.Len(), data.Engine().Name(), limits.given())
	if err := convert.HashContents(ctx, m.Graph().File, h); err != nil {
		return "", err
	}
	if err := json.NewEncoder(h).Encode([]any{o.Precision.Entries(), limits}); err != nil {
		return "", err
	}
	o.Precision, o.Provenance, o.Codes, o.Resume = nil, nil, nil, false // hashed, or without effect
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if kind := v.Field(i).Kind(); kind == reflect.Func || kind == reflect.Interface {
			continue
		}
		raw, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s\n", v.Type().Field(i).Name, raw)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
