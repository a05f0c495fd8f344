package samples

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
)

// numbers makes an .npy file of float64, float32 or int64 elements.
func numbers[T float64 | float32 | int64](descr string, x ...T) []byte {
	raw := npyFile(descr, false, int64(len(x)), 1)
	raw = raw[:len(raw)-binary.Size(x)]
	raw, _ = binary.Append(raw, binary.LittleEndian, x)
	return raw
}

func TestConverted(t *testing.T) {
	for _, c := range []struct {
		to    dtype.DType
		given []byte
		want  string // the elements, or the error
	}{
		{dtype.Float32, numbers("<f8", 0.1, math.Inf(1)), "[0.10000000149011612 +Inf]"},
		{dtype.Float32, numbers("<f8", 1, 1e200), "x.npy: x: 1e+200 does not fit FLOAT, the type of input"},
		{dtype.Float16, numbers[float32]("<f4", 1, -7e4), "-70000 does not fit FLOAT16"},
		{dtype.Float64, numbers("<f8", 1e200), "[1e+200]"},
		{dtype.Float16, numbers[float32]("<f4", 0.1, -2), "[0.0999755859375 -2]"},
		{dtype.Float64, numbers[float32]("<f4", 0.5, -2), "[0.5 -2]"},
		{dtype.Int32, numbers[int64]("<i8", -5, math.MaxInt32), "[-5 2.147483647e+09]"},
		{dtype.Int32, numbers[int64]("<i8", 1, math.MaxInt32+1), "2147483648 does not fit INT32"},
		{dtype.Uint8, numbers[int64]("<i8", 255, -1), "-1 does not fit UINT8"},
		{dtype.Int64, numbers[int64]("<u8", 1, -1), "18446744073709551615 does not fit INT64"},
		{dtype.Uint64, numbers[int64]("<u8", 1, -1), "[1 1.8446744073709552e+19]"},
		{dtype.Float32, numbers[int64]("<i8", 1, 2), "the array has elements of type INT64"},
		{dtype.Bool, numbers[int64]("<i8", 1, 0), "the array has elements of type INT64"},
	} {
		m := withInputs(t, input("x", c.to, "n", 1))
		path := write(t, t.TempDir(), "x.npy", c.given)
		got, err := elements(m, path)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%v: %s, want %s", c.to, got, c.want)
		}
	}
}

// elements returns the elements of the first sample, each input as the model takes it.
func elements(m *modelfile.Model, path string) (string, error) {
	s, err := OpenWhole(m, []string{path}, 0)
	if err != nil {
		return "", err
	}
	for inputs, err := range s.All() {
		if err != nil {
			return "", err
		}
		if typ := typeOf(m.Proto.Graph.Input[0]); inputs[0].DType != typ || inputs[0].Name != "x" {
			return "", fmt.Errorf("%s has the type %v", inputs[0].Name, inputs[0].DType)
		}
		return fmt.Sprint(inputs[0].Float64s()), nil
	}
	return "", errors.New("no sample")
}
