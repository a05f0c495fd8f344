package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"slices"
)

// fewContents is the total size up to which Fingerprint hashes contents: of tensors in the model file,
// and of external data.
const fewContents = 4 << 20

// Fingerprint identifies a model by hashes, SHA-256 in hexadecimal. Many contents are not hashed,
// because that would cost as much as quantizing them.
type Fingerprint struct {
	Model    string   // of the model file
	Whole    bool     // the contents of tensors in the model file are hashed too
	Data     []string // of the external data files, by their names; none if they are not hashed
	Unhashed int64    // bytes that no hash covers
}

// Fingerprint reads and hashes the model file, and external data if it is small.
func (m *Model) Fingerprint() (f Fingerprint, err error) {
	contents := int64(0)
	for _, p := range m.pieces {
		contents += p.n
	}
	h, pos := sha256.New(), int64(0)
	hash := func(from *File, end int64) error {
		_, err := io.Copy(h, io.NewSectionReader(from, pos, end-pos))
		return err
	}
	if f.Whole = contents <= fewContents; !f.Whole {
		f.Unhashed = contents
		for _, p := range m.pieces { // in the order of the file
			if err := hash(m.file, p.off); err != nil {
				return f, err
			}
			pos = p.off + p.n
		}
	}
	if err := hash(m.file, m.file.Size); err != nil {
		return f, err
	}
	f.Model = hex.EncodeToString(h.Sum(nil))

	external := int64(0)
	for _, data := range m.externals {
		external += data.Size
	}
	if external > fewContents {
		f.Unhashed += external
		return f, nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.externals)) {
		h.Reset()
		pos = 0
		if err := hash(m.externals[name], m.externals[name].Size); err != nil {
			return f, err
		}
		f.Data = append(f.Data, hex.EncodeToString(h.Sum(nil)))
	}
	return f, nil
}
