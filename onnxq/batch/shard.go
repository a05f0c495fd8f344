package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"onnxquant/spec"
)

// hasJob reports whether a share has the job whose output has this name. Each job is in one share of N. It does not depend on
// the other jobs.
func hasJob(s spec.Share, out string) bool {
	if s.N < 2 {
		return true
	}
	h := sha256.Sum256([]byte(out))
	return binary.BigEndian.Uint64(h[:])%uint64(s.N) == uint64(s.I)
}

// manifestOf is the name of the manifest of a share.
func manifestOf(s spec.Share) string {
	if s.N < 2 {
		return "manifest.jsonl"
	}
	return fmt.Sprintf("manifest.%d-of-%d.jsonl", s.I, s.N)
}
