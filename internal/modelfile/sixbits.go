package modelfile

// sixBits packs elements of 6 bits, which typed fields hold one in a byte, as raw_data holds them: a stream from the lowest
// bit on, four elements in three bytes.
type sixBits struct{ from *Payload }

// ReadAt implements io.ReaderAt.
func (s sixBits) ReadAt(dst []byte, off int64) (int, error) {
	first := 8 * off / 6
	last := min((8*(off+int64(len(dst)))+5)/6, s.from.Size())
	codes := make([]byte, max(last-first, 0))
	if err := readFull(s.from, codes, first); err != nil {
		return 0, err
	}
	clear(dst)
	for i, c := range codes {
		bit := 6*(first+int64(i)) - 8*off // of dst; negative for a code that begins before it
		v := uint32(c&63) << ((bit + 8) % 8)
		for at := (bit+8)/8 - 1; v > 0; at, v = at+1, v>>8 {
			if at >= 0 && at < int64(len(dst)) {
				dst[at] |= byte(v)
			}
		}
	}
	return len(dst), nil
}
