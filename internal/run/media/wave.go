package media

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// wave reads a WAV file: RIFF chunks, of which "fmt " describes the samples in "data". (github.com/go-audio/wav did not end on
// damaged files.)
type wave struct {
	data     *bufio.Reader
	left     int64 // bytes of data
	rate     int
	channels int
	bits     int
	float    bool
}

// Formats of samples. The header of an extensible file has the format at the end.
const (
	formatInteger    = 1
	formatFloat      = 3
	formatExtensible = 0xfffe
)

var errNotWave = errors.New("not a WAV file")

// newWave reads the header up to the samples.
func newWave(f io.ReadSeeker) (*wave, error) {
	var riff [12]byte
	if _, err := io.ReadFull(f, riff[:]); err != nil || string(riff[:4]) != "RIFF" || string(riff[8:]) != "WAVE" {
		return nil, errNotWave
	}
	var w wave
	for {
		var head [8]byte
		if _, err := io.ReadFull(f, head[:]); err != nil {
			return nil, fmt.Errorf("%w: it has no samples", errNotWave)
		}
		size := int64(binary.LittleEndian.Uint32(head[4:]))
		switch kind := string(head[:4]); {
		case kind == "fmt ":
			if err := w.describe(f, size); err != nil {
				return nil, err
			}
			continue
		case kind == "data" && w.rate == 0:
			return nil, fmt.Errorf("%w: nothing describes its samples", errNotWave)
		case kind == "data":
			w.data, w.left = bufio.NewReaderSize(f, 1<<16), size
			return &w, nil
		}
		if _, err := f.Seek(size+size%2, io.SeekCurrent); err != nil {
			return nil, err
		}
	}
}

// describe reads the chunk that describes the samples.
func (w *wave) describe(f io.ReadSeeker, size int64) error {
	const least, most = 16, 40
	if size < least {
		return errNotWave
	}
	var b [most]byte
	n := min(size, most)
	if _, err := io.ReadFull(f, b[:n]); err != nil {
		return errNotWave
	}
	format := binary.LittleEndian.Uint16(b[0:])
	if format == formatExtensible && n == most {
		format = binary.LittleEndian.Uint16(b[24:])
	}
	w.channels, w.rate, w.bits = int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint32(b[4:])), int(binary.LittleEndian.Uint16(b[14:]))
	w.float = format == formatFloat && w.bits == 32
	switch {
	case w.rate < 1 || w.rate > 1<<20 || w.channels < 1 || w.channels > 64:
		return fmt.Errorf("%d channels at %d Hz", w.channels, w.rate)
	case !w.float && (format != formatInteger || w.bits != 8 && w.bits != 16 && w.bits != 24 && w.bits != 32):
		return errors.New("the samples are neither integers of 8, 16, 24 or 32 bits nor floats of 32: ffmpeg -c:a pcm_s16le makes them")
	}
	_, err := f.Seek(size-n+size%2, io.SeekCurrent)
	return err
}

// read reads at most n samples, the mean of the channels, from -1 to 1.
func (w *wave) read(n int) ([]float64, error) {
	frame := make([]byte, w.channels*w.bits/8)
	x := make([]float64, 0, min(n, 1<<16))
	for len(x) < n && w.left >= int64(len(frame)) {
		if _, err := io.ReadFull(w.data, frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			w.left = 0 // a recorder that was cut off: what is there counts
			break
		} else if err != nil {
			return nil, err
		}
		w.left -= int64(len(frame))
		sum := 0.
		for c := range w.channels {
			sum += w.sample(frame[c*w.bits/8:])
		}
		x = append(x, sum/float64(w.channels))
	}
	return x, nil
}

// sample decodes a sample.
func (w *wave) sample(b []byte) float64 {
	switch {
	case w.float:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case w.bits == 8: // without a sign
		return (float64(b[0]) - 128) / 128
	case w.bits == 16:
		return float64(int16(binary.LittleEndian.Uint16(b))) / (1 << 15)
	case w.bits == 24:
		return float64(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31)
	}
	return float64(int32(binary.LittleEndian.Uint32(b))) / (1 << 31)
}
