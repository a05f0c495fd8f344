package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Shard is a share of the jobs: I of N, counted from 0. The zero value has all of them.
type Shard struct{ I, N int }

// Has reports whether the share has the job whose output has this name. Each job is in one share of N. It does not depend on
// the other jobs.
func (s Shard) Has(out string) bool {
	if s.N < 2 {
		return true
	}
	h := sha256.Sum256([]byte(out))
	return binary.BigEndian.Uint64(h[:])%uint64(s.N) == uint64(s.I)
}

// Manifest is the name of the share's manifest.
func (s Shard) Manifest() string {
	if s.N < 2 {
		return "manifest.jsonl"
	}
	return fmt.Sprintf("manifest.%d-of-%d.jsonl", s.I, s.N)
}
