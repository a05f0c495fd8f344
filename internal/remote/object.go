package remote

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
)

// blockSize is the size of the parts in which a file is read.
const blockSize = 256 << 10

// partsSuffix ends the name of the file that says which parts of another one are there.
const partsSuffix = ".~parts"

// object is a local file that gets the content of a remote one part by part. What it lacks is a hole.
type object struct {
	ctx   context.Context
	c     *Client
	info  *Info
	f     *os.File
	parts *os.File // a line with the version, and the numbers of blocks that are on the disk
	have  []bool   // by block

	failed error // of the server or the disk
}

// openObject opens the local file at path, with the parts that an earlier attempt has got of the same version.
func (c *Client) openObject(ctx context.Context, info *Info, path string) (o *object, err error) {
	o = &object{ctx: ctx, c: c, info: info, have: make([]bool, (info.Size+blockSize-1)/blockSize)}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if o.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	if o.parts, err = os.OpenFile(path+partsSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, err
	}
	if err := o.readParts(); err != nil {
		return nil, err
	}
	return o, o.f.Truncate(info.Size)
}

// readParts reads which blocks are there.
func (o *object) readParts() error {
	header := fmt.Appendf(nil, "%s %d %s\n", o.info.Name, o.info.Size, o.info.ETag)
	before, err := io.ReadAll(o.parts)
	if err != nil {
		return err
	}
	rest, same := bytes.CutPrefix(before, header)
	if !same || o.info.ETag == "" { // without a version, nothing says that the parts belong together
		if err := errors.Join(o.parts.Truncate(0), o.f.Truncate(0)); err != nil {
			return err
		}
		_, err := o.parts.WriteAt(header, 0)
		_, err2 := o.parts.Seek(0, io.SeekEnd)
		return errors.Join(err, err2)
	}
	for ; len(rest) >= 4; rest = rest[4:] {
		if i := int64(binary.LittleEndian.Uint32(rest)); i < int64(len(o.have)) {
			o.have[i] = true
		}
	}
	whole := int64(len(before) - len(rest)) // a crash may have cut the last number short
	_, err = o.parts.Seek(whole, io.SeekStart)
	return errors.Join(err, o.parts.Truncate(whole))
}

// Close closes the local files.
func (o *object) Close() {
	if o.parts != nil {
		o.parts.Close()
	}
	if o.f != nil {
		o.f.Close()
	}
}

// ReadAt reads, and gets the blocks that are not there.
func (o *object) ReadAt(b []byte, off int64) (int, error) {
	if end := min(off+int64(len(b)), o.info.Size); off < end {
		if err := o.get(off/blockSize, (end-1)/blockSize+1); err != nil {
			return 0, err
		}
	}
	return o.f.ReadAt(b, off)
}

// get gets the blocks from first to end that are not there.
func (o *object) get(first, end int64) error {
	for {
		for first < end && o.have[first] {
			first++
		}
		last := first
		for last < end && !o.have[last] {
			last++
		}
		if first == last {
			return nil
		}
		err := o.c.retry(o.ctx, func() (bool, error) {
			before := first
			var err error
			first, err = o.stream(first, last)
			return first > before, err
		})
		if err != nil {
			o.failed = fmt.Errorf("%s: %w", o.info.Name, err)
			return o.failed
		}
	}
}

// stream gets blocks by one request, and returns the first one that it did not get.
func (o *object) stream(first, last int64) (int64, error) {
	start, end := first*blockSize, min(last*blockSize, o.info.Size)
	if first >= last {
		return first, nil
	}
	r, err := o.c.do(o.ctx, http.MethodGet, o.info.url, o.info.hub, fmt.Sprintf("bytes=%d-%d", start, end-1), nil)
	if err != nil {
		return first, err
	}
	defer r.Body.Close()
	at, total, err := contentRange(r)
	switch {
	case err != nil:
		return first, err
	case total != o.info.Size, !o.info.hub && o.info.ETag != "" && version(r.Header) != o.info.ETag:
		return first, errors.New("the file was changed while it was read; try again")
	case r.StatusCode == http.StatusOK: // it sends all, whatever is asked for
		first, last = 0, int64(len(o.have))
	case at != start:
		return first, errors.New("the server sends another range than the one asked for")
	}
	return o.write(r.Body, first, last)
}

// atOnce is how many blocks are written before they are synced.
const atOnce = 32

// write writes blocks from a stream, and returns the first one that it did not get.
func (o *object) write(from io.Reader, first, last int64) (int64, error) {
	block := make([]byte, blockSize)
	for begin := first; ; begin = first {
		var ended error
		for first < last && first-begin < atOnce {
			b := block[:min(blockSize, o.info.Size-first*blockSize)]
			if _, ended = io.ReadFull(from, b); ended != nil {
				break
			}
			if _, err := o.f.WriteAt(b, first*blockSize); err != nil {
				return begin, err
			}
			first++
		}
		if err := o.note(begin, first); err != nil {
			return begin, err
		}
		if ended != nil || first >= last {
			return first, ended
		}
	}
}

// note says that blocks are there, once they are on the disk.
func (o *object) note(first, end int64) error {
	if first == end {
		return nil
	}
	if err := o.f.Sync(); err != nil {
		return err
	}
	var numbers []byte
	for i := first; i < end; i++ {
		o.have[i] = true
		numbers = binary.LittleEndian.AppendUint32(numbers, uint32(i))
	}
	_, err := o.parts.Write(numbers)
	return err
}

// finish gets what is not there, and checks all.
func (o *object) finish() error {
	if err := o.get(0, int64(len(o.have))); err != nil {
		return err
	}
	var h hash.Hash
	want := o.info.SHA256
	switch {
	case want != "":
		h = sha256.New()
	case o.info.blob != "":
		h, want = sha1.New(), o.info.blob
		fmt.Fprintf(h, "blob %d\x00", o.info.Size)
	default:
		return nil
	}
	if _, err := io.Copy(h, io.NewSectionReader(o.f, 0, o.info.Size)); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return errors.Join(fmt.Errorf("%s: the content has the hash %s, and the hub says %s", o.info.Name, got, want), o.parts.Truncate(0)) // the next attempt begins anew
	}
	return nil
}
