package samples

import (
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/media"
)

// pictures writes images of 4 x 2 pixels.
func pictures(t *testing.T, folder string, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, image.NewGray(image.Rect(0, 0, 4, 2))); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// Each image of a folder is a sample.
func TestImageFolder(t *testing.T) {
	folder := t.TempDir()
	pictures(t, folder, "a.png", "b.png")
	write(t, folder, "notes.txt", nil)
	m := withInputs(t, input("x", dtype.Float32, "n", 3, "h", "w"))
	if _, err := Open(m, []string{folder}, 0); err == nil || !strings.Contains(err.Error(), media.ConfigName) {
		t.Fatalf("without a configuration: %v", err)
	}
	write(t, folder, media.ConfigName, []byte(`{"image_mean": [1, 1, 1]}`))
	s, err := Open(m, []string{folder}, 0)
	if err != nil || s.Len() != 2 {
		t.Fatalf("%v, %v", s, err)
	}
	for inputs, err := range s.All() {
		if err != nil || inputs[0].Name != "x" || inputs[0].Float64s()[0] != -1 {
			t.Errorf("%v, %v", inputs, err)
		}
	}

	write(t, folder, "x.npy", npyFile("<f4", false, 1, 3, 2, 2))
	if s, err = Open(m, []string{folder}, 0); err != nil || s.Len() != 1 {
		t.Errorf("pictures beside an array: %v, %v", s, err)
	}
}

// Sound goes with its rate and with a state of zeros.
func TestSoundFile(t *testing.T) {
	header := "RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x08\x00\x00\x00"
	path := write(t, t.TempDir(), "a.wav", []byte(header+"\x00\x40\x00\x00\x00\xc0\x00\x00"))
	m := withInputs(t, input("input", dtype.Float32, "n", 2), input("state", dtype.Float32, 2, "n", 3), input("sr", dtype.Int64))
	s, err := Open(m, []string{path}, 0)
	if err != nil || s.Len() != 2 {
		t.Fatalf("%v, %v", s, err)
	}
	want := 0.5
	for inputs, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		if inputs[0].Float64s()[0] != want || inputs[1].Len() != 6 || inputs[2].Int64s()[0] != 8000 {
			t.Errorf("%v", inputs)
		}
		want = -0.5
	}
}
