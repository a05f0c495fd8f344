package kernels

import "encoding/binary"

// Pack4 puts the low nibbles of q into dst, two per byte, the first in the low half. An
// odd last code leaves the high half of its byte 0. dst has (len(q)+1)/2 bytes.
func Pack4(dst, q []byte) { pack4(dst[:(len(q)+1)/2], q) }

func pack4Go(dst, q []byte) {
	for ; len(q) >= 8; q, dst = q[8:], dst[4:] {
		v := binary.LittleEndian.Uint64(q) & 0x0f0f0f0f0f0f0f0f
		v = (v | v>>4) & 0x00ff00ff00ff00ff
		v = (v | v>>8) & 0x0000ffff0000ffff
		binary.LittleEndian.PutUint32(dst, uint32(v|v>>16))
	}
	for ; len(q) >= 2; q, dst = q[2:], dst[1:] {
		dst[0] = q[0]&15 | q[1]<<4
	}
	if len(q) > 0 {
		dst[0] = q[0] & 15
	}
}

// Pack2 packs the low two bits of each of q into dst, four per byte, the first lowest. Unused bits of
// the last byte are 0. dst has (len(q)+3)/4 bytes.
func Pack2(dst, q []byte) { pack2(dst[:(len(q)+3)/4], q) }

func pack2Go(dst, q []byte) {
	for ; len(q) >= 8; q, dst = q[8:], dst[2:] {
		v := binary.LittleEndian.Uint64(q) & 0x0303030303030303
		v = (v | v>>6) & 0x000f000f000f000f
		v = (v | v>>12) & 0x000000ff000000ff
		binary.LittleEndian.PutUint16(dst, uint16(v|v>>24))
	}
	for ; len(q) > 0; dst = dst[1:] {
		n := min(4, len(q))
		var b byte
		for i, c := range q[:n] {
			b |= c & 3 << (2 * i)
		}
		dst[0], q = b, q[n:]
	}
}

// Unpack4 undoes Pack4: it sets q to the first len(q) nibbles of src, with
// their sign extended if signed.
func Unpack4(q, src []byte, signed bool) {
	sign := byte(0) // the sign bit of a code
	if signed {
		sign = 8
	}
	unpack4(q, src[:(len(q)+1)/2], sign)
}

func unpack4Go(q, src []byte, sign byte) {
	signs := uint64(sign) * 0x0101010101010101
	for ; len(q) >= 8; q, src = q[8:], src[4:] {
		v := uint64(binary.LittleEndian.Uint32(src))
		v = (v | v<<16) & 0x0000ffff0000ffff
		v = (v | v<<8) & 0x00ff00ff00ff00ff
		v = (v | v<<4) & 0x0f0f0f0f0f0f0f0f
		binary.LittleEndian.PutUint64(q, v|v&signs*0x1e)
	}
	for i := range q {
		c := src[i/2] >> (i % 2 * 4) & 15
		q[i] = c | c&sign*0x1e
	}
}

// Unpack2 undoes Pack2: it sets q to the first len(q) pairs of bits of src,
// with their sign extended if signed.
func Unpack2(q, src []byte, signed bool) {
	sign := byte(0)
	if signed {
		sign = 2
	}
	unpack2(q, src[:(len(q)+3)/4], sign)
}

func unpack2Go(q, src []byte, sign byte) {
	signs := uint64(sign) * 0x0101010101010101
	for ; len(q) >= 8; q, src = q[8:], src[2:] {
		v := uint64(binary.LittleEndian.Uint16(src))
		v = (v | v<<24) & 0x000000ff000000ff
		v = (v | v<<12) & 0x000f000f000f000f
		v = (v | v<<6) & 0x0303030303030303
		binary.LittleEndian.PutUint64(q, v|v&signs*0x7e)
	}
	for i := range q {
		c := src[i/4] >> (i % 4 * 2) & 3
		q[i] = c | c&sign*0x7e
	}
}

// PackedLen returns the number of bytes of n packed codes.
func PackedLen(n, bits int) int { return (n*bits + 7) / 8 }

// Pack packs codes of 2, 4 or 8 bits into the first PackedLen(len(q), bits) bytes of dst.
func Pack(dst, q []byte, bits int) {
	switch bits {
	case 2:
		Pack2(dst, q)
	case 4:
		Pack4(dst, q)
	case 8:
		copy(dst[:len(q)], q)
	default:
		panic("kernels: Pack: bits are not 2, 4 or 8")
	}
}

// Unpack sets q to the first len(q) codes packed in src.
func Unpack(q, src []byte, bits int, signed bool) {
	switch bits {
	case 2:
		Unpack2(q, src, signed)
	case 4:
		Unpack4(q, src, signed)
	case 8:
		copy(q, src[:len(q)])
	default:
		panic("kernels: Unpack: bits are not 2, 4 or 8")
	}
}
