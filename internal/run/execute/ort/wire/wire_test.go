package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

func tensors() []*execute.Tensor {
	return []*execute.Tensor{
		{Name: "x\xff", DType: dtype.Float32, Dims: []int64{2, 1}, Data: []byte("12345678")},
		{Name: "empty", DType: dtype.Int64, Dims: []int64{0, 7}, Data: []byte{}},
		{Name: "scalar", DType: dtype.Bool, Dims: []int64{}, Data: []byte{1}},
	}
}

func TestMessages(t *testing.T) {
	var stream bytes.Buffer
	conn := NewConn(&stream, &stream)
	for _, want := range []Request{{Load: &Load{Version: Version, Model: "m", More: []byte("more")}}, {Run: &Run{Outputs: []string{"y"}}}, {Run: &Run{}}, {Bind: &Bind{}}, {Time: &Time{Most: 3}}, {Profile: &Profile{}}} {
		if err := conn.Send(&want, tensors()); err != nil {
			t.Fatal(err)
		}
		var got Request
		found, err := conn.Receive(&got)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(found, tensors()) {
			t.Errorf("sent %+v, received %+v", want, got)
		}
	}
	if _, err := conn.Receive(&Request{}); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// A message that ends early is an error, and not the one for a stream that ends between two.
func TestCut(t *testing.T) {
	var whole bytes.Buffer
	if err := NewConn(nil, &whole).Send(&Response{Library: "1.2"}, tensors()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < whole.Len(); n++ {
		_, err := NewConn(bytes.NewReader(whole.Bytes()[:n]), nil).Receive(&Response{})
		if err == nil || err == io.EOF {
			t.Errorf("the first %d of %d bytes: %v", n, whole.Len(), err)
		}
	}
}

// What announces more than the bounds is refused before any memory is taken.
func TestBounds(t *testing.T) {
	for name, s := range map[string]shape{
		"too many":  {DType: dtype.Float64, Dims: []int64{1 << 28, 2}},
		"overflow":  {DType: dtype.Float32, Dims: []int64{1 << 40, 1 << 40}},
		"negative":  {DType: dtype.Float32, Dims: []int64{-1}},
		"half byte": {DType: dtype.Int4, Dims: []int64{2}},
		"string":    {DType: dtype.String, Dims: []int64{2}},
	} {
		var stream bytes.Buffer
		conn := NewConn(&stream, &stream)
		conn.enc.Encode(&Response{})
		conn.enc.Encode([]shape{s})
		conn.out.Flush()
		if _, err := conn.Receive(&Response{}); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var stream bytes.Buffer
	conn := NewConn(&stream, &stream)
	if err := conn.Send(&Response{Error: string(make([]byte, maxHeader+1))}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Receive(&Response{}); !errors.Is(err, errHeader) {
		t.Errorf("a large header: %v", err)
	}
}

func FuzzReceive(f *testing.F) {
	var whole bytes.Buffer
	if err := NewConn(nil, &whole).Send(&Request{Run: &Run{Outputs: []string{"y"}}}, tensors()); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		conn := NewConn(bytes.NewReader(stream), nil)
		for {
			found, err := conn.Receive(&Request{})
			if err != nil {
				return
			}
			for _, tensor := range found {
				if n, err := Bytes(tensor.DType, tensor.Dims); err != nil || n != int64(len(tensor.Data)) {
					t.Errorf("%v: %d bytes", tensor.Dims, len(tensor.Data))
				}
			}
		}
	})
}
