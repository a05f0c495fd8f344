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
}

type tileCache struct {
	mu   sync.Mutex
	list []*keptTile // least recently used first
	size int64       // of all
}

// get returns the bytes of a tile from the cache, or reads them. Nobody may change them.
func (c *tileCache) get(key tileKey, size int64, read func() ([]byte, error)) ([]byte, error) {
	t := c.use(key, size)
	t.once.Do(func() { t.bytes, t.err = read() })
	if t.err != nil {
		c.drop(t)
	}
	return t.bytes, t.err
}

// use returns the entry of a tile and makes it the most recently used.
func (c *tileCache) use(key tileKey, size int64) *keptTile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range slices.Backward(c.list) {
		if t.key == key {
			copy(c.list[i:], c.list[i+1:])
			c.list[len(c.list)-1] = t
			return t
		}
	}
	n := 0 // tiles to let go
	for ; n < len(c.list) && (c.size+size > keptBytes || len(c.list)-n >= keptTiles); n++ {
		c.size -= c.list[n].size
	}
	t := &keptTile{key: key, size: size}
	c.list, c.size = append(slices.Delete(c.list, 0, n), t), c.size+size
	return t
}

// drop forgets a tile that could not be read: the next one who wants it tries again.
func (c *tileCache) drop(t *keptTile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.list, t); i >= 0 {
		c.list, c.size = slices.Delete(c.list, i, i+1), c.size-t.size
	}
}
