package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// fewContents is the size of the contents of tensors in a model file up to which Fingerprint
// hashes them, too.
const fewContents = 4 << 20

// Fingerprint returns the SHA-256 of the model file, in hexadecimal. If the contents of
// tensors make up much of it, they are left out, because hashing them would cost as much as
// quantizing them: then whole is false.
func (m *Model) Fingerprint() (sum string, whole bool, err error) {
	contents := int64(0)
	for _, p := range m.pieces {
		contents += p.n
	}
	h, pos := sha256.New(), int64(0)
	hash := func(end int64) error {
		_, err := io.Copy(h, io.NewSectionReader(m.file, pos, end-pos))
		return err
	}
	if whole = contents <= fewContents; !whole {
		for _, p := range m.pieces { // in the order of the file
			if err := hash(p.off); err != nil {
				return "", false, err
			}
			pos = p.off + p.n
		}
	}
	if err := hash(m.file.size); err != nil {
		return "", false, err
	}
	return hex.EncodeToString(h.Sum(nil)), whole, nil
}
