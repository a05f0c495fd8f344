package onnxq

import (
	"io"
	"sync"

	"onnxquant/int4"
)

// packedWriter writes codes of a tensor at any element, from several workers.
// Where two pieces share a byte, the byte is written by whoever comes second.
type packedWriter struct {
	w    io.WriterAt
	base int64 // offset of the tensor
	bits int
	at   stored // where elements lie

	mu    sync.Mutex
	edges map[int64]edge
}

// edge is a byte of which only some codes are known yet.
type edge struct {
	value byte
	codes int
}

// write packs the codes q into buf and writes them as elements off, off+1, …
func (p *packedWriter) write(buf, q []byte, off int64) error {
	per := int64(8 / p.bits)
	if head := min((per-off%per)%per, int64(len(q))); head > 0 {
		if err := p.partial(q[:head], off); err != nil {
			return err
		}
		q, off = q[head:], off+head
	}
	tail := int64(len(q)) % per
	if end := off + int64(len(q)); end%p.at.pitch == p.at.k || end == p.at.size() {
		tail = 0 // nothing shares the last byte
	}
	body := q[:int64(len(q))-tail]
	if len(body) > 0 {
		buf = buf[:int4.PackedLen(len(body), p.bits)]
		int4.Pack(buf, body, p.bits)
		if _, err := p.w.WriteAt(buf, p.base+off/per); err != nil {
			return err
		}
	}
	if tail == 0 {
		return nil
	}
	return p.partial(q[len(body):], off+int64(len(body)))
}

// partial takes codes that do not fill a byte.
func (p *packedWriter) partial(q []byte, off int64) error {
	per := int64(8 / p.bits)
	at := off / per
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edges[at]
	for i, c := range q {
		shift := (off%per + int64(i)) * int64(p.bits)
		e.value |= c & (1<<p.bits - 1) << shift
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
	if p.at.pitch > p.at.k { // rows fill whole bytes
		return min(per, p.at.k-at*per%p.at.pitch)
	}
	return min(per, p.at.size()-at*per)
}
