package layerfit

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"onnxquant/internal/quantize"
)

// store is the file with the codes found. A second file records which groups are done.
type store struct {
	file   *os.File
	key    string
	number string // random: a record with another one is of another file
	size   int64
}

// record is the state of a calibration, without its codes.
type record struct {
	Key    string // as in Options
	Number string
	Groups int // that are done
	Layers []layerRecord
	Error  Errors
}

// layerRecord is the result for a layer, without its codes.
type layerRecord struct {
	Found   bool
	Note    string
	Experts FallbackExperts
}

// openStore opens the file at path. With resume, and if it belongs to the key, the record says what
// the file holds. Otherwise the file is new and empty.
func openStore(path, key string, resume bool) (*store, *record, error) {
	s := &store{key: key}
	if resume {
		if r := s.reopen(path); r != nil {
			return s, r, nil
		}
	}
	for _, old := range []string{path, recordPath(path)} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, err
	}
	s.file, s.number = f, rand.Text()
	s.size = int64(len(s.number))
	if _, err := f.WriteAt([]byte(s.number), 0); err != nil {
		s.close(false)
		return nil, nil, err
	}
	return s, &record{}, nil
}

// reopen opens a file that was kept. It returns nil if that is of no use.
func (s *store) reopen(path string) *record {
	text, err := os.ReadFile(recordPath(path))
	r := new(record)
	if err != nil || json.Unmarshal(text, r) != nil || r.Key != s.key {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	number := make([]byte, len(rand.Text()))
	if _, err := f.ReadAt(number, 0); err != nil || string(number) != r.Number {
		f.Close()
		return nil
	}
	s.file, s.number, s.size = f, r.Number, int64(len(number))
	return r
}

func recordPath(path string) string { return path + ".json" }

// note writes the record, once the codes that it tells of are written.
func (s *store) note(r *record) error {
	r.Key, r.Number = s.key, s.number
	text, err := json.Marshal(r)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return err
	}
	path := recordPath(s.file.Name())
	if err := os.WriteFile(path+".new", text, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// close closes the file, and removes it and the record unless they are kept.
func (s *store) close(keep bool) error {
	path := s.file.Name()
	err := s.file.Close()
	if keep {
		return err
	}
	os.RemoveAll(path + keptSuffix)
	os.Remove(recordPath(path) + ".new")
	os.Remove(recordPath(path))
	return errors.Join(err, os.Remove(path))
}

// record returns the state after some groups.
func (c *calibration) record(groups int) *record {
	r := &record{Groups: groups, Error: c.Error}
	for i := range c.Found {
		r.Layers = append(r.Layers, c.recordOf(i))
	}
	return r
}

func (c *calibration) recordOf(layer int) layerRecord {
	return layerRecord{c.Found[layer] != nil, c.Notes[layer], c.Experts[layer]}
}

// recall restores the results of a group from a file that was kept.
func (c *calibration) recall(group []*inputs, r *record) {
	for _, in := range group {
		for _, i := range in.layers {
			found := c.store.add(c.layers[i].Weight)
			if r.Layers[i].Found {
				c.Found[i] = found
			}
			c.Notes[i], c.Experts[i] = r.Layers[i].Note, r.Layers[i].Experts
		}
	}
	c.Error = r.Error
}

// add makes room for a weight.
func (s *store) add(w *quantize.Weight) *quantize.Found {
	scales := w.Outer * w.Blocks() * w.Inner
	f := new(quantize.Found)
	if e := w.Encoding; e != nil {
		f.Blocks = s.part(scales * int64(e.Bytes))
		f.Values = s.part(4 * w.Elements())
		return f
	}
	f.Codes = s.part(w.Elements())
	f.Scales = s.part(4 * scales)
	f.Zeros = s.part(scales)
	return f
}

func (s *store) part(n int64) *part {
	p := &part{s.file, s.size, n}
	s.size += n
	return p
}

// part is a part of a file.
type part struct {
	file  *os.File
	at, n int64
}

func (p *part) ReadAt(b []byte, off int64) (int, error)  { return p.file.ReadAt(b, p.at+off) }
func (p *part) WriteAt(b []byte, off int64) (int, error) { return p.file.WriteAt(b, p.at+off) }
