package onnxq

import (
	"hash/crc32"
	"io"
	"sync"

	"onnxquant/int4"
	"onnxquant/internal/buffer"
)

// packing says how codes of a tensor fill bytes, from the lowest bits up.
type packing struct {
	bits int
	stored
}

// cut tells how many of the codes off, …, off+n-1 come before the first byte that
// begins with one of them, and how many fill bytes. The others share the last one
// with codes that follow.
func (p packing) cut(off, n int64) (head, body int64) {
	per := int64(8 / p.bits)
	head = min((per-off%per)%per, n)
	end := off + n
	if end%p.pitch == p.k || end == p.size() { // nothing shares the last byte
		return head, n - head
	}
	return head, (n - head) / per * per
}

// packedWriter writes codes of a tensor at any element, from several workers.
// Where two pieces share a byte, the byte is written by whoever comes second.
type packedWriter struct {
	w    io.WriterAt
	base int64 // offset of the tensor
	packing

	mu    sync.Mutex
	edges map[int64]edge
}

// edge is a byte of which only some codes are known yet.
type edge struct {
	value byte
	codes int
}

// write packs the codes q into buf and writes them as elements off, off+1, …
// It adds to a checksum the bytes that they fill, and those that do not fill a
// byte.
func (p *packedWriter) write(buf, q []byte, off int64, sum *uint32) error {
	n, body := p.cut(off, int64(len(q)))
	if err := p.partial(q[:n], off, sum); err != nil {
		return err
	}
	q, off = q[n:], off+n
	if body > 0 {
		buf = buf[:int4.PackedLen(int(body), p.bits)]
		int4.Pack(buf, q[:body], p.bits)
		*sum = crc32.Update(*sum, castagnoli, buf)
		if _, err := p.w.WriteAt(buf, p.base+off*int64(p.bits)/8); err != nil {
			return err
		}
	}
	return p.partial(q[body:], off+body, sum)
}

// partial takes codes that do not fill a byte.
func (p *packedWriter) partial(q []byte, off int64, sum *uint32) error {
	if len(q) == 0 {
		return nil
	}
	per := int64(8 / p.bits)
	at := off / per
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edges[at]
	for i, c := range q {
		shift := (off%per + int64(i)) * int64(p.bits)
		c &= 1<<p.bits - 1
		*sum = crc32.Update(*sum, castagnoli, []byte{c})
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
	_, err := p.w.WriteAt([]byte{e.value}, p.base+at)
	return err
}

// codesIn is the number of codes that byte at holds, of at most per.
func (p *packedWriter) codesIn(at, per int64) int64 {
	if p.pitch > p.k { // rows fill whole bytes
		return min(per, p.k-at*per%p.pitch)
	}
	return min(per, p.size()-at*per)
}

// sumUp adds to a checksum what write adds for n codes from element off on. buf
// is for the bytes that they lie in.
func (p packing) sumUp(sum uint32, buf *[]byte, r io.ReaderAt, off, n int64) (uint32, error) {
	per := int64(8 / p.bits)
	first := off % per
	raw := buffer.Grow(buf, (first+n+per-1)/per)
	if err := buffer.ReadFull(r, raw, off/per); err != nil {
		return 0, err
	}
	single := func(i int64) { // code i of raw
		c := raw[i/per] >> (i % per * int64(p.bits)) & (1<<p.bits - 1)
		sum = crc32.Update(sum, castagnoli, []byte{c})
	}
	head, body := p.cut(off, n)
	for i := range head {
		single(first + i)
	}
	if body > 0 {
		from := (first + head) / per
		sum = crc32.Update(sum, castagnoli, raw[from:from+(body+per-1)/per])
	}
	for i := head + body; i < n; i++ {
		single(first + i)
	}
	return sum, nil
}
