package layerfit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"onnxquant/internal/regularfile"
)

// shared is a folder with the codes that several processes found. The codes of layers with the same input are in one
// file, named after the hash of its contents. A record tells which file it is; its name is the hash of all that the
// codes depend on. Files appear whole, so a process that dies leaves none that others could read.
type shared struct{ folder, key string }

// sharedRecord tells of the codes of layers with the same input.
type sharedRecord struct {
	Codes  string // hash of the file with the codes
	Layers []sharedLayer
}

// sharedLayer is the result for a layer, without its codes.
type sharedLayer struct {
	Name string
	layerRecord
	Error Errors
}

// recordOf is the path of the record of some inputs.
func (s shared) recordOf(in *inputs) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%v", s.key, in.key, in.layers))
	return filepath.Join(s.folder, hex.EncodeToString(hash[:])+".json")
}

func (s shared) codes(hash string) string { return filepath.Join(s.folder, hash+".codes") }

// read returns the record of some inputs, or nil if there is none.
func (s shared) read(in *inputs) *sharedRecord {
	text, err := os.ReadFile(s.recordOf(in))
	r := new(sharedRecord)
	if err != nil || json.Unmarshal(text, r) != nil || len(r.Layers) != len(in.layers) || len(r.Codes) != hex.EncodedLen(sha256.Size) {
		return nil
	}
	return r
}

// has reports whether the codes of some inputs are there.
func (s shared) has(in *inputs) bool {
	r := s.read(in)
	if r == nil {
		return false
	}
	info, err := os.Stat(s.codes(r.Codes))
	return err == nil && info.Mode().IsRegular()
}

// check returns an error if codes are not there.
func (s shared) check(all []*inputs) error {
	lacking := 0
	for _, in := range all {
		if !s.has(in) {
			lacking++
		}
	}
	if lacking == 0 {
		return nil
	}
	return fmt.Errorf("%s lacks the codes of %d of %d inputs of layers: find the shares that are left, with the same model, data, flags and memory", s.folder, lacking, len(all))
}

// put writes the codes of some inputs.
func (s shared) put(c *calibration, in *fit) error {
	r := new(sharedRecord)
	for _, i := range in.layers {
		r.Layers = append(r.Layers, sharedLayer{c.layers[i].Weight.Name, c.recordOf(i), c.each[i]})
	}
	hash := sha256.New()
	content := io.TeeReader(io.NewSectionReader(c.store.file, in.at, in.end-in.at), hash)
	name := func() string {
		r.Codes = hex.EncodeToString(hash.Sum(nil))
		return s.codes(r.Codes)
	}
	if err := s.write(content, name); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.write(bytes.NewReader(text), func() string { return s.recordOf(in.inputs) })
}

// write writes a file under another name first. name is called when the content was read.
func (s shared) write(content io.Reader, name func() string) error {
	f, err := os.CreateTemp(s.folder, "*.new")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(0o644) // processes of other users may read it
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name())
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// take takes over the codes of some inputs.
func (s shared) take(c *calibration, in *inputs) error {
	r := s.read(in)
	if r == nil {
		return s.check([]*inputs{in})
	}
	from := c.store.size
	for j, i := range in.layers {
		found := c.store.add(c.layers[i].Weight)
		if r.Layers[j].Found {
			c.Found[i] = found
		}
		c.Notes[i], c.Experts[i], c.each[i] = r.Layers[j].Note, r.Layers[j].Experts, r.Layers[j].Error
		c.Error.add(c.each[i])
	}
	return s.copyCodes(c, r.Codes, from)
}

// copyCodes copies a file of codes to the end of the calibration's store, from a place on.
func (s shared) copyCodes(c *calibration, hash string, from int64) error {
	f, size, err := regularfile.Open(s.codes(hash))
	if err != nil {
		return err
	}
	defer f.Close()
	if sum := sha256.New(); size == c.store.size-from {
		if _, err := io.Copy(io.NewOffsetWriter(c.store.file, from), io.TeeReader(f, sum)); err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) == hash {
			return nil
		}
	}
	return fmt.Errorf("%s is damaged: remove it, and find its share again", f.Name())
}
