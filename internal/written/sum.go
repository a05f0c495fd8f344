package written

import (
	"hash/crc32"
	"sync/atomic"
)

// Sum is the CRC-32 of a content that is written in pieces, in any order, by several goroutines. Each
// byte must be written once, and bytes that are not written are zero.
//
// A CRC without its usual inversions is linear: that of the whole is the sum of those of the pieces,
// each multiplied by x^(8·n), where n bytes follow. Sums are exclusive ors.
type Sum struct {
	size   int64
	pieces atomic.Uint32
}

// NewSum returns the sum of a content of size bytes.
func NewSum(size int64) *Sum { return &Sum{size: size} }

// Add adds the piece at off.
func (s *Sum) Add(piece []byte, off int64) {
	plain := ^crc32.Update(^uint32(0), crc32.IEEETable, piece)
	part := shift(plain, s.size-off-int64(len(piece)))
	for {
		old := s.pieces.Load()
		if s.pieces.CompareAndSwap(old, old^part) {
			return
		}
	}
}

// CRC32 returns the usual CRC-32 of the content.
func (s *Sum) CRC32() uint32 { return ^(s.pieces.Load() ^ shift(^uint32(0), s.size)) }

// The coefficients of a polynomial are bits, that of x^0 is the highest.
const one = 1 << 31

// powers has x^(8·2^k) for each k, modulo the polynomial of the CRC.
var powers = func() (p [63]uint32) {
	p[0] = one >> 8
	for k := 1; k < len(p); k++ {
		p[k] = times(p[k-1], p[k-1])
	}
	return p
}()

// shift multiplies a polynomial by x^(8·n).
func shift(v uint32, n int64) uint32 {
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			v = times(v, powers[k])
		}
	}
	return v
}

// times multiplies two polynomials.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ crc32.IEEE
		} else {
			b >>= 1
		}
	}
	return product
}
