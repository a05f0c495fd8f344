package lazy

import (
	"slices"
	"sync"
	"weak"
)

// The most that is kept.
const (
	keptBytes = 32 << 20
	keptTiles = 1 << 10
)

// kept caches the tiles used last, of all tensors. A read often takes a few rows of a tile, and the
// next read the next rows.
var kept tileCache

// tilePlace is the first unit of a tile: its outer index, its index among neighbours, and the inner one.
type tilePlace struct{ outer, j, r int64 }

// tileKey identifies a tile. It does not keep the model that the tile was read from in memory.
type tileKey struct {
	of weak.Pointer[transposition]
	at tilePlace
}

// keptTile is a tile that was read, or is being read.
type keptTile struct {
	key   tileKey
	size  int64
	once  sync.Once
	bytes []byte
	err   error

	readers int  // that have not released it
	dropped bool // from the list
}

type tileCache struct {
	mu   sync.Mutex
	list []*keptTile // least recently used first
	size int64       // of all
	free [][]byte    // of tiles that nobody reads any more, for the next ones
}

// mostFree bounds the buffers that wait for a tile.
const mostFree = 4

// get returns a tile from the cache, or reads its bytes into a buffer of the given size. Nobody may change them. release must be called
// when they have been used.
func (c *tileCache) get(key tileKey, size int64, read func(into []byte) error) (bytes []byte, release func(), err error) {
	t := c.use(key, size)
	t.once.Do(func() {
		t.bytes = c.buffer(size)
		t.err = read(t.bytes)
	})
	if t.err != nil {
		c.drop(t)
	}
	return t.bytes, func() { c.release(t) }, t.err
}

// buffer returns a buffer that is free, or a new one.
func (c *tileCache) buffer(size int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range c.free {
		if int64(cap(b)) >= size {
			c.free = slices.Delete(c.free, i, i+1)
			return b[:size]
		}
	}
	return make([]byte, size)
}

// release says that a reader has used a tile.
func (c *tileCache) release(t *keptTile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.readers--
	c.recycle(t)
}

// recycle keeps the buffer of a tile that is dropped and unread.
func (c *tileCache) recycle(t *keptTile) {
	if !t.dropped || t.readers > 0 || t.bytes == nil {
		return
	}
	if len(c.free) == mostFree {
		c.free = slices.Delete(c.free, 0, 1)
	}
	c.free, t.bytes = append(c.free, t.bytes), nil
}

// use returns the entry of a tile, with one more reader, and makes it the most recently used.
func (c *tileCache) use(key tileKey, size int64) *keptTile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range slices.Backward(c.list) {
		if t.key == key {
			copy(c.list[i:], c.list[i+1:])
			c.list[len(c.list)-1] = t
			t.readers++
			return t
		}
	}
	n := 0 // tiles to let go
	for ; n < len(c.list) && (c.size+size > keptBytes || len(c.list)-n >= keptTiles); n++ {
		c.size -= c.list[n].size
		c.list[n].dropped = true
		c.recycle(c.list[n])
	}
	t := &keptTile{key: key, size: size, readers: 1}
	c.list, c.size = append(slices.Delete(c.list, 0, n), t), c.size+size
	return t
}

// drop forgets a tile that could not be read: the next one who wants it tries again.
func (c *tileCache) drop(t *keptTile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.list, t); i >= 0 {
		c.list, c.size = slices.Delete(c.list, i, i+1), c.size-t.size
		t.dropped = true
	}
}
