package checkpoint

import (
	"encoding/binary"
	"io"
	"slices"

	"onnxquant/internal/buffer"
)

// packed reads codes of a few bits out of words of 32 bits, one byte for each code, row by row. The codes follow each other
// from the lowest bit of the first word on, and may span two words.
type packed struct {
	r          io.ReaderAt
	bits       int64
	rows, cols int64   // of codes
	pitch      int64   // bytes of a stored row
	down       bool    // words hold codes of one column, else of one row
	order      []int64 // position of each code of a row among as many, or nil; not with down
	add        int     // to each code
}

// ReadAt implements io.ReaderAt.
func (p *packed) ReadAt(dst []byte, off int64) (done int, err error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for done < len(dst) {
		at := off + int64(done)
		row, col := at/p.cols, at%p.cols
		if row >= p.rows {
			return done, io.EOF
		}
		run := dst[done:min(int64(len(dst)), int64(done)+p.cols-col)]
		if p.down {
			err = p.column(s, run, row, col)
		} else {
			err = p.row(s, run, row, col)
		}
		if err != nil {
			return done, err
		}
		done += len(run)
	}
	if p.add != 0 {
		for i := range dst {
			dst[i] += byte(p.add)
		}
	}
	return done, nil
}

// row reads codes that follow each other in one stored row.
func (p *packed) row(s *scratch, dst []byte, row, col int64) error {
	first, last := col, col+int64(len(dst)) // in the order of the file
	if n := int64(len(p.order)); n > 0 {
		first, last = col-col%n, (last+n-1)/n*n
	}
	begin := first * p.bits / 8
	end := min((last*p.bits+7)/8, p.pitch)
	raw := buffer.Grow(&s.raw, end-begin+1) // a code may reach into the next byte
	raw[end-begin] = 0
	if err := buffer.ReadFull(p.r, raw[:end-begin], row*p.pitch+begin); err != nil {
		return err
	}
	if n := int64(len(p.order)); p.bits == 4 && (n == 0 || n == 8) {
		p.nibbles(dst, raw, col-2*begin)
		return nil
	}
	mask := uint16(1)<<p.bits - 1
	for i := range dst {
		at := col + int64(i)
		if n := int64(len(p.order)); n > 0 {
			at += p.order[at%n] - at%n
		}
		bit := at*p.bits - 8*begin
		dst[i] = byte((uint16(raw[bit/8]) | uint16(raw[bit/8+1])<<8) >> (bit % 8) & mask)
	}
	return nil
}

// nibbles is row for codes of 4 bits, from code at of raw on.
func (p *packed) nibbles(dst, raw []byte, at int64) {
	var shifts [8]uint32
	for i := range shifts {
		shifts[i] = uint32(4 * i)
		if p.order != nil {
			shifts[i] = uint32(4 * p.order[i])
		}
	}
	code := func(at int64) byte { return raw[(at&^7+int64(shifts[at&7]/4))/2] >> (shifts[at&7] % 8) & 15 }
	i := 0
	for ; i < len(dst) && (at+int64(i))%8 != 0; i++ {
		dst[i] = code(at + int64(i))
	}
	for ; i+8 <= len(dst) && (at+int64(i))/2+4 <= int64(len(raw)); i += 8 {
		word, to := binary.LittleEndian.Uint32(raw[(at+int64(i))/2:]), dst[i:i+8]
		for j := range to {
			to[j] = byte(word>>(shifts[j]&31)) & 15
		}
	}
	for ; i < len(dst); i++ {
		dst[i] = code(at + int64(i))
	}
}

// column reads codes of neighbouring columns, each in words of its own.
func (p *packed) column(s *scratch, dst []byte, row, col int64) error {
	word, shift := row*p.bits/32, row*p.bits%32
	mask := byte(1<<p.bits - 1)
	raw := buffer.Grow(&s.raw, 4*int64(len(dst)))
	if err := buffer.ReadFull(p.r, raw, word*p.pitch+4*col); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = byte(binary.LittleEndian.Uint32(raw[4*i:])>>shift) & mask
	}
	had := 32 - shift // bits of the code in this word
	if had >= p.bits {
		return nil
	}
	if err := buffer.ReadFull(p.r, raw, (word+1)*p.pitch+4*col); err != nil {
		return err
	}
	for i := range dst {
		dst[i] |= byte(binary.LittleEndian.Uint32(raw[4*i:])<<had) & mask
	}
	return nil
}

// bytesIn is the size of n codes in whole words.
func bytesIn(n, bits int64) int64 { return (n*bits + 31) / 32 * 4 }

// inverse returns where each element of a permutation is.
func inverse(order []int64) []int64 {
	list := slices.Clone(order)
	for i, v := range order {
		list[v] = int64(i)
	}
	return list
}

// noBytes reads zeros.
type noBytes struct{}

func (noBytes) ReadAt(dst []byte, _ int64) (int, error) {
	clear(dst)
	return len(dst), nil
}

// shifted adds a number to each byte.
type shifted struct {
	io.ReaderAt
	by int
}

func (s *shifted) ReadAt(dst []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(dst, off)
	for i := range dst[:n] {
		dst[i] += byte(s.by)
	}
	return n, err
}
