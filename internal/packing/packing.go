// Package packing packs codes of 2, 4 or 8 bits into bytes and places elements in their
// tensor.
//
// A [Placement] says where elements are stored; it is a value and never changes. A [Writer]
// gets codes, one per byte, from several workers and writes them packed. It owns the bytes
// that two workers share; buffers belong to the caller.
package packing

import (
	"hash/crc32"
	"io"
	"iter"
	"sync"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

// Castagnoli is the polynomial of all checksums of contents.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Codes says how codes are packed: from the lowest bits of a byte up, or HighFirst from the highest
// down.
type Codes struct {
	Bits int // 2, 4 or 8
	Placement
}

// cut splits the codes off, …, off+n-1 by bytes. head codes share their first byte with codes before
// off, body codes fill whole bytes, and the rest share a byte with the codes behind.
func (p Codes) cut(off, n int64) (head, body int64) {
	per := int64(8 / p.Bits)
	head = min((per-off%per)%per, n)
	end := off + n
	if end%p.Pitch == p.K || end == p.Size() { // no code shares the last byte
		return head, n - head
	}
	return head, (n - head) / per * per
}

// shift is the place of code i of a byte, as the number of bits below it.
func (p Codes) shift(i int64) int64 {
	if p.HighFirst {
		i = int64(8/p.Bits) - 1 - i
	}
	return i * int64(p.Bits)
}

// swapHalves swaps the two codes in each byte.
func swapHalves(b []byte) {
	for i, v := range b {
		b[i] = v<<4 | v>>4
	}
}

// Writer writes runs of codes at any offset, from several workers. If two runs share a byte,
// the later call writes it.
type Writer struct {
	codes Codes
	w     io.WriterAt

	mu    sync.Mutex
	edges map[int64]edge // by byte
}

// NewWriter returns a Writer to w, where the tensor begins at offset 0.
func NewWriter(w io.WriterAt, c Codes) *Writer { return &Writer{codes: c, w: w} }

// edge is a byte of which some codes are still missing.
type edge struct {
	value byte
	codes int // number of codes known
}

// Write packs the codes q into buf and writes them as elements off, off+1, … It adds them to a
// checksum: whole bytes as they are, and each code of a shared byte as a separate byte.
func (p *Writer) Write(buf, q []byte, off int64, sum *uint32) error {
	n, body := p.codes.cut(off, int64(len(q)))
	if err := p.partial(q[:n], off, sum); err != nil {
		return err
	}
	q, off = q[n:], off+n
	if body > 0 {
		buf = buf[:kernels.PackedLen(int(body), p.codes.Bits)]
		kernels.Pack(buf, q[:body], p.codes.Bits)
		if p.codes.HighFirst {
			swapHalves(buf)
		}
		*sum = crc32.Update(*sum, Castagnoli, buf)
		if _, err := p.w.WriteAt(buf, off*int64(p.codes.Bits)/8); err != nil {
			return err
		}
	}
	return p.partial(q[body:], off+body, sum)
}

// partial takes codes that do not fill their byte.
func (p *Writer) partial(q []byte, off int64, sum *uint32) error {
	if len(q) == 0 {
		return nil
	}
	per := int64(8 / p.codes.Bits)
	at := off / per
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edges[at]
	for i, c := range q {
		shift := p.codes.shift(off%per + int64(i))
		c &= 1<<p.codes.Bits - 1
		*sum = crc32.Update(*sum, Castagnoli, []byte{c})
		e.value |= c << shift
	}
	e.codes += len(q)
	if int64(e.codes) < p.codesIn(at, per) {
		if p.edges == nil {
			p.edges = map[int64]edge{}
		}
		p.edges[at] = e
		return nil
	}
	delete(p.edges, at)
	_, err := p.w.WriteAt([]byte{e.value}, at)
	return err
}

// codesIn is the number of codes in byte at, at most per.
func (p *Writer) codesIn(at, per int64) int64 {
	if p.codes.Pitch > p.codes.K { // rows fill whole bytes
		return min(per, p.codes.K-at*per%p.codes.Pitch)
	}
	return min(per, p.codes.Size()-at*per)
}

// WriteRuns writes each run of codes to its place. *buf is a buffer for packed bytes.
func (p *Writer) WriteRuns(buf *[]byte, q []byte, runs iter.Seq[Run], sum *uint32) error {
	packed := buffer.Grow(buf, int64(len(q)))
	for r := range runs {
		if err := p.Write(packed, q[r.From:r.From+r.N], r.At, sum); err != nil {
			return err
		}
	}
	return nil
}

// SumRuns reads runs and adds them to a checksum, as WriteRuns did. *buf is a buffer for
// packed bytes.
func (p Codes) SumRuns(sum uint32, buf *[]byte, r io.ReaderAt, runs iter.Seq[Run]) (uint32, error) {
	for piece := range runs {
		var err error
		if sum, err = p.sum(sum, buf, r, piece.At, piece.N); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// sum reads n codes from element off on and adds them to a checksum, as Write did.
func (p Codes) sum(sum uint32, buf *[]byte, r io.ReaderAt, off, n int64) (uint32, error) {
	per := int64(8 / p.Bits)
	first := off % per
	raw := buffer.Grow(buf, (first+n+per-1)/per)
	if err := buffer.ReadFull(r, raw, off/per); err != nil {
		return 0, err
	}
	single := func(i int64) { // code i of raw
		c := raw[i/per] >> p.shift(i%per) & (1<<p.Bits - 1)
		sum = crc32.Update(sum, Castagnoli, []byte{c})
	}
	head, body := p.cut(off, n)
	for i := range head {
		single(first + i)
	}
	if body > 0 {
		from := (first + head) / per
		sum = crc32.Update(sum, Castagnoli, raw[from:from+(body+per-1)/per])
	}
	for i := head + body; i < n; i++ {
		single(first + i)
	}
	return sum, nil
}
