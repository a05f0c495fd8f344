package calibrate_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"onnxquant/calib"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/calibrate"
	"onnxquant/testmodels"
)

// Each method has a range within the minimum and maximum, of all values that are finite.
func TestClippings(t *testing.T) {
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, "x:float[1,2000]", "h = Sqrt(x)\ny = Add(x, x)", "y")})
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2000), }\n"
	raw := []byte("\x93NUMPY\x01\x00" + string(rune(len(header))) + "\x00" + header)
	for i := range 4 * 2000 {
		v := math.Sin(float64(i * i))
		if i == 3 {
			v = 400 // in one sample
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v)))
	}
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(data, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := calibrate.Options{Data: []string{data}, Engine: "go", Scheme: calib.Scheme{Bits: 8}}
	found, err := calibrate.Clippings(t.Context(), path, opts, []string{"x", "h", "y"})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found["x"] == nil || found["y"] == nil {
		t.Fatalf("%v", found) // h has roots of negative numbers
	}
	var names []string
	most := map[string]float64{}
	for _, c := range found["x"] {
		names, most[c.Method] = append(names, c.Method), c.Range.Max
	}
	if !slices.Equal(names, calibrate.ClippingMethods()) {
		t.Errorf("%q", names)
	}
	if most["minmax"] != 400 || most["percentile:99.9"] > 1.01 || math.Abs(most["mean of samples"]-403.0/4) > 0.1 {
		t.Errorf("%v", most)
	}
	ranges, clipper, err := calibrate.RangesToClip(t.Context(), path, opts, func(name string) bool { return name != "y" })
	if err != nil {
		t.Fatal(err)
	}
	delete(found, "y")
	if again := clipper.Ranges(opts.Scheme, []string{"x", "h", "y"}); !reflect.DeepEqual(again, found) || len(ranges.Tensors) != 1 || ranges.Tensors["x"].Max != 400 {
		t.Errorf("in one pass: %v, %v\nwant %v", again, ranges.Tensors, found)
	}
}
