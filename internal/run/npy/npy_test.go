package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file makes an .npy file of version 1 or 2.
func file(version byte, header string, elements ...byte) []byte {
	b := append(bytes.Clone(magic), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), elements...)
}

func floats(t *testing.T, a *Array) []float32 {
	t.Helper()
	var all []float32
	buf := make([]float32, 3)
	for {
		n, err := a.ReadFloats(buf)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buf[:n]...)
	}
}

func TestTypes(t *testing.T) {
	for _, test := range []struct {
		descr string
		raw   []byte
		want  []float32
	}{
		{"<f2", []byte{0, 0x3c, 0, 0xc0}, []float32{1, -2}},
		{"<f4", binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), []float32{1.5}},
		{">f4", binary.BigEndian.AppendUint32(nil, math.Float32bits(1.5)), []float32{1.5}},
		{"<f8", binary.LittleEndian.AppendUint64(nil, math.Float64bits(-0.1)), []float32{-0.1}},
		{">f8", binary.BigEndian.AppendUint64(nil, math.Float64bits(-0.1)), []float32{-0.1}},
		{"|i1", []byte{0xff, 0x80, 1}, []float32{-1, -128, 1}},
		{"|u1", []byte{0xff, 0x80, 1, 0, 7}, []float32{255, 128, 1, 0, 7}},
		{">i2", []byte{0xff, 0xfe}, []float32{-2}},
		{"<i8", []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []float32{-2}},
		{"<u4", []byte{0, 0, 0, 0x80}, []float32{1 << 31}},
		{"|b1", []byte{1, 0}, []float32{1, 0}},
	} {
		header := "{'descr': '" + test.descr + "', 'fortran_order': False, 'shape': (" + string(rune('0'+len(test.want))) + ",), }\n"
		for _, version := range []byte{1, 2} {
			a, err := NewArray(bytes.NewReader(file(version, header, test.raw...)), "a")
			if err != nil {
				t.Fatalf("%s: %v", test.descr, err)
			}
			if got := floats(t, a); !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", test.descr, got, test.want)
			}
		}
	}
}

func TestShapes(t *testing.T) {
	for text, want := range map[string][]int64{"()": {}, "(3,)": {3}, "(2, 0, 5)": {2, 0, 5}, "(2L, 3L)": {2, 3}} {
		a, err := parseHeader("{'descr': '|u1', 'fortran_order': False, 'shape': " + text + "}")
		if err != nil || !slices.Equal(a.Shape, want) {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
}

func TestFortranOrder(t *testing.T) {
	// [[0 1 2] [3 4 5]] in Fortran order
	raw := file(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", 0, 3, 1, 4, 2, 5)
	a, err := NewArray(bytes.NewReader(raw), "a")
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.ReadAll(6)
	if err != nil || !bytes.Equal(got, []byte{0, 1, 2, 3, 4, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	for axis, want := range map[int][2]int64{0: {2, 1}, 1: {3, 2}, -1: {3, 2}} {
		if n, step, err := a.Channels(axis); err != nil || [2]int64{n, step} != want {
			t.Errorf("axis %d: %d channels, step %d, %v; want %v", axis, n, step, err, want)
		}
	}
	if _, _, err := a.Channels(2); err == nil {
		t.Error("axis 2 of two: no error")
	}
}

func TestReadAll(t *testing.T) {
	for text, shape := range map[string][]int64{"()": {}, "(4,)": {4}, "(2, 2)": {2, 2}, "(1, 4, 1)": {1, 4, 1}} {
		elements := make([]byte, 16)
		if len(shape) == 0 {
			elements = elements[:4]
		}
		elements[1] = 9
		raw := file(1, "{'descr': '<i4', 'fortran_order': False, 'shape': "+text+", }\n", elements...)
		a, err := NewArray(bytes.NewReader(raw), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := a.ReadAll(16); err != nil || !bytes.Equal(got, elements) || !slices.Equal(a.Shape, shape) || a.Type != "i4" {
			t.Errorf("%v: %v %v %s, %v", shape, got, a.Shape, a.Type, err)
		}
	}
}

func TestEach(t *testing.T) {
	folder := t.TempDir()
	single := filepath.Join(folder, "x.npy")
	one := file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n", 7)
	if err := os.WriteFile(single, one, 0o666); err != nil {
		t.Fatal(err)
	}
	several := filepath.Join(folder, "several.npz")
	f, err := os.Create(several)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for i, name := range []string{"a.npy", "b/c.npy"} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: []uint16{zip.Store, zip.Deflate}[i]})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(one)
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{single: {"x"}, several: {"a", "b/c"}} {
		var names []string
		err := Each(path, func(a *Array) error {
			names = append(names, a.Name)
			if got := floats(t, a); !slices.Equal(got, []float32{7}) {
				t.Errorf("%s: %v", a.Name, got)
			}
			return nil
		})
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: %v, %v", path, names, err)
		}
	}
	if err := Each(folder, nil); err == nil {
		t.Error("a folder: no error")
	}
}

// Members of an archive have a checksum, and nothing behind their elements.
func TestDamagedArchive(t *testing.T) {
	one := file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }\n", 1, 2, 3, 4)
	archive := func(member []byte) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		w, err := z.CreateHeader(&zip.FileHeader{Name: "a.npy", Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(member)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for what, raw := range map[string][]byte{
		"another element": bytes.Replace(archive(one), []byte{1, 2, 3, 4}, []byte{1, 2, 9, 4}, 1),
		"one too many":    archive(append(bytes.Clone(one), 5)),
	} {
		path := filepath.Join(t.TempDir(), "x.npz")
		if err := os.WriteFile(path, raw, 0o666); err != nil {
			t.Fatal(err)
		}
		err := Each(path, func(a *Array) error {
			_, err := a.ReadAll(1 << 10)
			return err
		})
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRefused(t *testing.T) {
	good := file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", make([]byte, 8)...)
	for n := range len(good) {
		a, err := NewArray(bytes.NewReader(good[:n]), "a")
		if err == nil {
			_, err = a.ReadFloats(make([]float32, 2))
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	for _, header := range []string{
		"{}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (x,)}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
		"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
		"{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}",
		"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}",
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
	} {
		if a, err := NewArray(bytes.NewReader(file(2, header)), "a"); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", header, a, err)
		}
	}
	long := append(bytes.Clone(magic), 2, 0, 255, 255, 255, 255)
	if _, err := NewArray(bytes.NewReader(long), "a"); !errors.Is(err, ErrFormat) {
		t.Errorf("a header of 4 GiB: %v", err)
	}
	// A size that is not there allocates nothing.
	huge, err := NewArray(bytes.NewReader(file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,)}")), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := huge.ReadAll(math.MaxInt64); !errors.Is(err, ErrFormat) {
		t.Errorf("a terabyte: %v", err)
	}
	if _, err := huge.ReadAll(1 << 20); err == nil {
		t.Error("more than the limit: no error")
	}
	complexes, err := NewArray(bytes.NewReader(file(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (0,)}")), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := complexes.ReadFloats(make([]float32, 1)); err == nil {
		t.Error("complex: no error")
	}
}

// An archive whose directory names one member many times would go on without end.
func TestOverlap(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range []string{"a.npy", "b.npy"} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", 7))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.npz")
	each := func(archive []byte) (n int, err error) {
		if err := os.WriteFile(path, archive, 0o666); err != nil {
			t.Fatal(err)
		}
		err = Each(path, func(a *Array) error { n++; _, err := a.ReadAll(1); return err })
		return n, err
	}
	if n, err := each(b.Bytes()); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	// The second entry of the directory, which holds at byte 42 where its member begins.
	archive := b.Bytes()
	copy(archive[bytes.LastIndex(archive, []byte("PK\x01\x02"))+42:], make([]byte, 4))
	if n, err := each(archive); n != 0 || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "overlap") {
		t.Error(n, err)
	}
}

func FuzzArray(f *testing.F) {
	f.Add(file(1, "{'descr': '>f4', 'fortran_order': True, 'shape': (1, 2), }\n", make([]byte, 8)...))
	f.Add(file(2, "{'descr': '|b1', 'fortran_order': False, 'shape': ()}", 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := NewArray(bytes.NewReader(data), "a")
		if err != nil {
			return
		}
		all, err := a.ReadAll(1 << 20)
		if err == nil && int64(len(all)) != a.Len()*int64(a.size) {
			t.Errorf("%d bytes for %d elements of %s", len(all), a.Len(), a.Type)
		}
	})
}
