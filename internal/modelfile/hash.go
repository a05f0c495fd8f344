package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// SHA256 returns the hash of the model's file, without its external data, in hexadecimal.
func (m *Model) SHA256() (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(m.file, 0, m.file.Size)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
