package rules

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"onnxquant/formats/gguf"
	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
)

// Importance is an importance matrix, as llama-imatrix measures it: the mean square of the
// activations of each column of a weight. It weights the errors of that column.
type Importance struct {
	Source  string               // file name, for messages
	Columns map[string][]float32 // name of the weight → values; those of several matrices follow one another
}

// LoadImportance reads an importance matrix from a file in one of two formats.
//
// A GGUF file has two tensors for each weight W: W.in_sum2 (sums of squares) and W.counts (number
// of summands), for one or several matrices.
//
// A file of the older format has the number of entries and then the entries. An entry has the
// length of its name, the name, the number of batches, the number of values, and the values: sums
// of squares as float32. Integers have 32 bits.
func LoadImportance(path string) (*Importance, error) {
	im := &Importance{Source: path, Columns: map[string][]float32{}}
	f, size, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("importance matrix %s: %w", path, msg.Cause(err))
	}
	defer f.Close()
	start := make([]byte, 4)
	if _, err := io.ReadFull(f, start); err == nil && string(start) == "GGUF" {
		err = im.loadGGUF(path)
		return im, err
	}
	if err := im.loadOld(io.NewSectionReader(f, 0, size)); err != nil {
		return nil, fmt.Errorf("importance matrix %s: %w", path, err)
	}
	return im, nil
}

// maxImportance is the largest number of values in memory: a hundred times the values of a model
// with 100 layers.
const maxImportance = 64 << 20

// maxName is the greatest length of a name in the older format.
const maxName = 1 << 16

func (im *Importance) loadGGUF(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	total := int64(0)
	for i := range f.Tensors {
		sums := &f.Tensors[i]
		name, ok := strings.CutSuffix(sums.Name, ".in_sum2")
		counts := f.Tensor(name + ".counts")
		if !ok || counts == nil {
			continue
		}
		if total += sums.Elements(); total > maxImportance {
			return fmt.Errorf("importance matrix %s: more than %d values", path, maxImportance)
		}
		s, err := float32s(f, sums)
		if err != nil {
			return fmt.Errorf("importance matrix %s: %w", path, err)
		}
		n, err := float32s(f, counts)
		if err != nil {
			return fmt.Errorf("importance matrix %s: %w", path, err)
		}
		if len(s)%len(n) != 0 {
			return fmt.Errorf("importance matrix %s: tensor %s: %d values for %d counts", path, msg.Quote(sums.Name), len(s), len(n))
		}
		for i := range s {
			if count := n[i/(len(s)/len(n))]; count > 0 {
				s[i] /= count
			} else {
				s[i] = 1 // not measured
			}
		}
		if err := im.set(name, s); err != nil {
			return err
		}
	}
	if len(im.Columns) == 0 {
		return fmt.Errorf("importance matrix %s: it has no tensors called WEIGHT.in_sum2 and WEIGHT.counts", path)
	}
	return nil
}

// float32s reads a tensor of type F32.
func float32s(f *gguf.File, t *gguf.Tensor) ([]float32, error) {
	if t.Type != gguf.F32 {
		return nil, fmt.Errorf("tensor %s is %v, want F32", msg.Quote(t.Name), t.Type)
	}
	if t.Elements() > maxImportance {
		return nil, fmt.Errorf("tensor %s has %d values", msg.Quote(t.Name), t.Elements())
	}
	x := make([]float32, t.Elements())
	return x, binary.Read(f.Content(t), binary.LittleEndian, x)
}

// loadOld reads a file of the older format.
func (im *Importance) loadOld(r *io.SectionReader) error {
	d := &oldImportance{r: bufio.NewReader(r), left: r.Size()}
	entries := d.count(1)
	total := int64(0)
	for range entries {
		name := string(d.bytes(min(d.count(1), maxName+1)))
		if len(name) > maxName {
			return fmt.Errorf("a name of more than %d bytes; is it an importance matrix?", maxName)
		}
		batches := d.count(0)
		n := d.count(4)
		if total += n; total > maxImportance {
			return fmt.Errorf("more than %d values", maxImportance)
		}
		values := make([]float32, n)
		raw := d.bytes(int64(4 * len(values)))
		if d.err != nil {
			return d.err
		}
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			if batches > 0 {
				values[i] /= float32(batches)
			}
		}
		if err := im.set(name, values); err != nil {
			return err
		}
	}
	if d.err == nil && entries == 0 {
		d.err = errors.New("it has no entries")
	}
	return d.err
}

// oldImportance reads the older format. After an error it returns zeros.
type oldImportance struct {
	r    io.Reader
	left int64 // bytes not read yet
	err  error
}

// count reads a number of items of at least size bytes each. It fails if fewer bytes are left.
func (d *oldImportance) count(size int64) int64 {
	b := d.bytes(4)
	if b == nil {
		return 0
	}
	n := int64(int32(binary.LittleEndian.Uint32(b)))
	if n < 0 || n*size > d.left {
		d.err = fmt.Errorf("a count of %d, but %d bytes follow; is it an importance matrix?", n, d.left)
		return 0
	}
	return n
}

func (d *oldImportance) bytes(n int64) []byte {
	if d.err == nil && n > d.left {
		d.err = errors.New("it ends too early; is it an importance matrix?")
	}
	if d.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, d.err = io.ReadFull(d.r, b)
	d.left -= n
	return b
}

// set adds the values of a weight. Values must be finite and not negative.
func (im *Importance) set(name string, values []float32) error {
	for _, v := range values {
		if !(v >= 0) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("importance matrix %s: %s has the value %v", im.Source, msg.Quote(name), v)
		}
	}
	im.Columns[name] = values
	return nil
}

// Of returns the importance of the k columns of a weight, or nil if there is none. Several matrices
// have k values in common, or k values each. The weight is looked up by each of its names.
func (im *Importance) Of(k, matrices int64, names ...string) ([]float32, error) {
	if im == nil {
		return nil, nil
	}
	for _, name := range names {
		values, ok := im.Columns[name]
		if !ok {
			continue
		}
		if n := int64(len(values)); n != k && n != matrices*k {
			return nil, fmt.Errorf("importance matrix %s: %s has %d values, but its rows have %d elements", im.Source, msg.Quote(name), n, k)
		}
		return values, nil
	}
	return nil, nil
}

// Covers checks how many of the wanted weights are in the matrix. If some are missing, it returns a
// warning. If all are missing, it returns an error.
func (im *Importance) Covers(known, wanted int) (warning string, err error) {
	switch {
	case im == nil || known == wanted:
		return "", nil
	case known == 0:
		return "", fmt.Errorf("importance matrix %s: none of its %d names is the name of a quantized weight; a file of names can map them", im.Source, len(im.Columns))
	}
	return fmt.Sprintf("the importance matrix does not have %d of %d quantized weights", wanted-known, wanted), nil
}
