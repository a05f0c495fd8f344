// Package wire is the protocol between onnxquant and onnxquant-ort, the program that runs
// models in ONNX Runtime.
//
// onnxquant writes a [Request] to the program's standard input and reads a [Response] from its standard
// output, any number of times: it loads a model once and runs it many times. The program ends at the end
// of its standard input. Both sides use a [Conn]. The tensors that [Conn.Receive] returns belong to the
// caller.
//
// A message is a header in encoding/gob with the types and shapes of its tensors, followed by the
// elements of these tensors without gaps. Both sides check lengths against [MaxBytes] before they
// allocate.
package wire

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// Version changes with the protocol. Both programs must have the same.
const Version = 5

// MaxBytes bounds the tensors of a message, all together.
const MaxBytes = 2 << 30

// firstChunk limits the memory allocated for a tensor before its elements arrive.
const firstChunk = 16 << 20

// maxHeader bounds a message without its elements.
const maxHeader = 16 << 20

// Request has exactly one field set.
type Request struct {
	Load    *Load
	Run     *Run
	Bind    *Bind
	Time    *Time
	Profile *Profile
}

// Load loads a model, which replaces the previous one.
type Load struct {
	Version int    // of the protocol
	Library string // the shared library of ONNX Runtime, the same for all models
	Model   string // the model file
	More    []byte // a ModelProto to merge with the model, or empty
	Plain   bool   // run the nodes as they are, without optimizations of the graph
	Threads int    // that compute; 0: as many as there are CPUs
	AsUsers bool   // with ONNX Runtime's own options, as in the programs of users
	Profile string // ONNX Runtime profiles each run, and writes to a file with this prefix; "": no profile
}

// Run runs the model. The inputs are the tensors of the message.
type Run struct {
	Outputs []string // names; empty: all outputs of the model, without the outputs of More
}

// Bind keeps the tensors of the message as inputs of Time.
type Bind struct{}

// Time runs the model again and again on the bound inputs. The outputs are discarded.
type Time struct {
	Warm time.Duration // of runs that are not measured, before those that are
	For  time.Duration // of measured runs; one at least
	Most int           // measured runs
}

// MostRuns bounds Time.Most: it keeps the response small.
const MostRuns = 100_000

// Profile ends the profile.
type Profile struct{}

// Timing has the measured runs of a Time.
type Timing struct {
	Runs []time.Duration
	CPU  time.Duration // that the process used in these runs, on all threads
}

// Response answers a request. The outputs of a Run are the tensors of the message.
type Response struct {
	Error   string // empty after success
	Library string // after Load: the version of ONNX Runtime

	Loaded  time.Duration // after Load: the time that ONNX Runtime took
	Timing  Timing        // after Time
	Peak    int64         // after Time: the most memory that the process has had, in bytes; 0: unknown
	Profile string        // after Profile: the file
}

// Conn sends and receives messages.
type Conn struct {
	in  *source
	dec *gob.Decoder
	out *bufio.Writer
	enc *gob.Encoder
}

func NewConn(r io.Reader, w io.Writer) *Conn {
	in, out := &source{r: bufio.NewReader(r)}, bufio.NewWriter(w)
	return &Conn{in, gob.NewDecoder(in), out, gob.NewEncoder(out)}
}

// shape is a tensor without its elements.
type shape struct {
	Name  string
	DType dtype.DType
	Dims  []int64
}

// Send sends a message. The header is a *Request or a *Response.
func (c *Conn) Send(header any, tensors []*execute.Tensor) error {
	shapes := make([]shape, len(tensors))
	for i, t := range tensors {
		shapes[i] = shape{t.Name, t.DType, t.Dims}
	}
	if err := c.enc.Encode(header); err != nil {
		return err
	}
	if err := c.enc.Encode(shapes); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := c.out.Write(t.Data); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

// Receive receives a message. The error is io.EOF if the other side ended before the message.
func (c *Conn) Receive(header any) ([]*execute.Tensor, error) {
	c.in.left = maxHeader
	if err := c.dec.Decode(header); err != nil {
		return nil, err
	}
	var shapes []shape
	if err := c.dec.Decode(&shapes); err != nil {
		return nil, unexpected(err)
	}
	left := int64(MaxBytes)
	tensors := make([]*execute.Tensor, len(shapes))
	for i, s := range shapes {
		n, err := Bytes(s.DType, s.Dims)
		if err == nil && n > left {
			err = ErrSize
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", s.Name, err)
		}
		left -= n
		if s.Dims == nil { // gob makes no difference between nil and empty
			s.Dims = []int64{}
		}
		var data bytes.Buffer
		data.Grow(int(min(n, firstChunk)) + bytes.MinRead) // more only as it arrives
		if _, err := io.CopyN(&data, c.in.r, n); err != nil {
			return nil, unexpected(err)
		}
		tensors[i] = &execute.Tensor{Name: s.Name, DType: s.DType, Dims: s.Dims, Data: data.Bytes()}
	}
	return tensors, nil
}

// ErrSize is the error for tensors that are too large for a message.
var ErrSize = fmt.Errorf("the tensors are larger than %d MiB", MaxBytes>>20)

// Bytes returns the size of a tensor's elements. The error says why it cannot be sent.
func Bytes(typ dtype.DType, dims []int64) (int64, error) {
	n, err := dtype.Elements(dims)
	switch {
	case err != nil:
		return 0, err
	case typ.Bits() < 8:
		return 0, fmt.Errorf("elements of type %v are not supported", typ)
	case n > MaxBytes/(typ.Bits()/8):
		return 0, ErrSize
	}
	return typ.Bytes(n), nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// source reads headers, of a bounded size. It has ReadByte so that the decoder takes no byte
// that follows the header.
type source struct {
	r    *bufio.Reader
	left int
}

var errHeader = errors.New("the header of a message is too large")

func (s *source) Read(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		return 0, errHeader
	}
	return s.r.Read(p)
}

func (s *source) ReadByte() (byte, error) {
	if s.left--; s.left < 0 {
		return 0, errHeader
	}
	return s.r.ReadByte()
}
