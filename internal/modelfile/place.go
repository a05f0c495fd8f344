package modelfile

import (
	"cmp"
	"io"
	"strings"
)

// Place is the position of bytes in a file. The zero Place is in no file.
type Place struct {
	File   string
	Offset int64
}

// Compare orders places as they are read fastest: file by file, from the beginning to the end.
func (p Place) Compare(q Place) int {
	return cmp.Or(strings.Compare(p.File, q.File), cmp.Compare(p.Offset, q.Offset))
}

// A Placed reader knows where the bytes lie that it makes its own of.
type Placed interface {
	io.ReaderAt
	Place(off int64) Place
}

// Place returns where the byte at off is read from.
func (p *Payload) Place(off int64) Place {
	for _, s := range p.parts {
		if off >= s.size {
			off -= s.size
			continue
		}
		if r, ok := s.r.(Placed); ok {
			return r.Place(s.base + off)
		}
		break
	}
	return Place{}
}

// Place implements Placed, for the mark in front of the element.
func (d *decoder) Place(off int64) Place {
	if r, ok := d.r.(Placed); ok && len(d.marks) > 0 {
		return r.Place(d.marks[min(off/d.elem/markEvery, int64(len(d.marks))-1)])
	}
	return Place{}
}
