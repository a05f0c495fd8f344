package media_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/media"
)

// picture has a red left half and a green right half, each 2 pixels wide and 2 high.
func picture(t *testing.T) string {
	x := image.NewRGBA(image.Rect(0, 0, 4, 2))
	for i := range 8 {
		c := color.RGBA{255, 0, 0, 255}
		if i%4 >= 2 {
			c = color.RGBA{0, 255, 0, 255}
		}
		x.Set(i%4, i/4, c)
	}
	path := filepath.Join(t.TempDir(), "x.PNG")
	var b bytes.Buffer
	if err := png.Encode(&b, x); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func config(t *testing.T, text string) *media.Config {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, media.ConfigName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := media.FindConfig(t.TempDir(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestImages(t *testing.T) {
	path := picture(t)
	for _, c := range []struct {
		name, config string
		typ          dtype.DType
		shape        media.Shape
		dims         []int64
		want         []float64 // the first values
	}{
		{"as it is", "", dtype.Uint8, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 4}, []float64{255, 255, 0, 0, 255, 255, 0, 0, 0, 0, 255, 255}},
		{"channels last", "", dtype.Uint8, media.Shape{1, 2, 4, 3}, []int64{1, 2, 4, 3}, []float64{255, 0, 0, 255, 0, 0, 0, 255, 0}},
		{"without a batch", "", dtype.Uint8, media.Shape{3, 2, 4}, []int64{3, 2, 4}, []float64{255, 255, 0, 0}},
		{"grey", "", dtype.Uint8, media.Shape{0, 1, 0, 0}, []int64{1, 1, 2, 4}, []float64{76, 76, 150, 150}},
		{"0 to 1", "{}", dtype.Float32, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 4}, []float64{1, 1, 0, 0}},
		{"normalized", `{"image_mean": [0.5, 0.25, 0], "image_std": 0.5}`, dtype.Float32, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 4},
			[]float64{1, 1, -1, -1, 1, 1, -1, -1, -0.5, -0.5, 1.5, 1.5}},
		{"a deviation without a mean", `{"image_std": [0.5, 0.25, 0.5]}`, dtype.Float32, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 4}, []float64{2, 2, 0, 0, 2, 2, 0, 0, 0, 0, 4, 4}},
		{"blue first", `{"do_flip_channel_order": true, "do_rescale": false}`, dtype.Float32, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 4},
			[]float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255}},
		{"middle", `{"do_center_crop": true, "do_resize": false, "crop_size": {"height": 2, "width": 2}}`, dtype.Float32, media.Shape{0, 3, 0, 0}, []int64{1, 3, 2, 2},
			[]float64{1, 0, 1, 0, 0, 1, 0, 1}},
		{"resized by the model", "{}", dtype.Float32, media.Shape{1, 3, 4, 8}, []int64{1, 3, 4, 8}, []float64{1, 1, 1}},
		{"a height by the model, a width in proportion", "{}", dtype.Float32, media.Shape{1, 3, 4, 0}, []int64{1, 3, 4, 8}, []float64{1, 1, 1}},
		{"resized by the configuration", `{"size": {"height": 6, "width": 5}, "resample": 0}`, dtype.Float32, media.Shape{1, 3, 0, 0}, []int64{1, 3, 6, 5}, []float64{1, 1}},
		{"the shortest edge", `{"size": {"shortest_edge": 6}, "resample": 3}`, dtype.Float32, media.Shape{1, 3, 0, 0}, []int64{1, 3, 6, 12}, []float64{1, 1}},
		{"the shortest edge, then a crop to the model's size", `{"size": 4, "do_center_crop": true}`, dtype.Float32, media.Shape{1, 3, 4, 4}, []int64{1, 3, 4, 4}, []float64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			how := &media.Config{}
			if c.config != "" {
				how = config(t, c.config)
			}
			m, err := media.NewImages(media.Input{Name: "x", DType: c.typ, Shape: c.shape}, how)
			if err != nil {
				t.Fatal(err)
			}
			x, err := m.Decode(path)
			if err != nil {
				t.Fatal(err)
			}
			got := x.Float64s()[:len(c.want)]
			if !slices.Equal(x.Dims, c.dims) || !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
				t.Errorf("%v %v, want %v %v", x.Dims, got, c.dims, c.want)
			}
		})
	}
}

// Configurations that no image processor takes are refused.
func TestRefusedConfigs(t *testing.T) {
	for text, want := range map[string]string{
		`{"resample": 77}`:                   "resample 77: want 0 to 5",
		`{"resample": -1}`:                   "resample -1: want 0 to 5",
		`{"image_std": [0, 0, 0]}`:           "image_std [0 0 0]: want numbers above 0",
		`{"image_mean": 0, "image_std": -1}`: "image_std [-1]: want numbers above 0",
		`{"image_mean": [0.5, 0.5]}`:         "image_mean has 2 numbers: want one, or 3",
		`{"image_std": [1, 1, 1, 1]}`:        "image_std has 4 numbers: want one, or 3",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, media.ConfigName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := media.FindConfig(folder)
		if err == nil {
			_, err = media.NewImages(media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 3, 0, 0}}, c)
		}
		if err == nil || !strings.Contains(err.Error(), media.ConfigName+": "+want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	unused := config(t, `{"do_normalize": false, "image_mean": [0.5, 0.5]}`)
	if _, err := media.NewImages(media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 3, 0, 0}}, unused); err != nil {
		t.Error(err)
	}
}

func TestRefusedImages(t *testing.T) {
	for want, in := range map[string]media.Input{
		"must say how pixels become floats": {Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 3, 0, 0}},
		"no axis has 1 or 3 channels":       {Name: "x", DType: dtype.Uint8, Shape: media.Shape{1, 4, 8, 8}},
		"takes no images":                   {Name: "x", DType: dtype.Int64, Shape: media.Shape{1, 8}},
	} {
		if _, err := media.NewImages(in, &media.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", in, err)
		}
	}
	m, err := media.NewImages(media.Input{Name: "x", DType: dtype.Uint8, Shape: media.Shape{1, 3, 0, 0}}, &media.Config{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.png")
	if err := os.WriteFile(path, []byte("\x89PNG\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Decode(path); err == nil || !strings.Contains(err.Error(), "x.png: no image of a known format") {
		t.Errorf("half of a header: %v", err)
	}
}

// wave is a WAV file of integer samples.
func wave(rate, channels, bits int, samples ...int) []byte {
	var data []byte
	for _, s := range samples {
		data = append(data, binary.LittleEndian.AppendUint32(nil, uint32(s))[:bits/8]...)
	}
	b := []byte("RIFF")
	b = binary.LittleEndian.AppendUint32(b, uint32(36+len(data)))
	b = append(b, "WAVEfmt \x10\x00\x00\x00\x01\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(bits))
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// floats says that samples are floats.
func floats(file []byte) []byte {
	file[20] = 3
	return file
}

// pieces decodes a file.
func pieces(t *testing.T, file []byte, in media.Input, c *media.Config) (all [][]float64, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.wav")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := media.NewSounds(in, c)
	if err != nil {
		return nil, err
	}
	err = s.Each(path, func(piece *execute.Tensor, rate int) error {
		all = append(all, piece.Float64s())
		return nil
	})
	return all, err
}

func TestSounds(t *testing.T) {
	free := media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 0}}
	threes := media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{1, 1, 3}}
	for _, c := range []struct {
		name string
		file []byte
		in   media.Input
		want [][]float64
	}{
		{"16 bits", wave(8000, 1, 16, 16384, -32768, 0), free, [][]float64{{0.5, -1, 0}}},
		{"8 bits, without a sign", wave(8000, 1, 8, 128, 0, 192), free, [][]float64{{0, -1, 0.5}}},
		{"two channels", wave(8000, 2, 16, 16384, 0, -16384, -16384), free, [][]float64{{0.25, -0.5}}},
		{"pieces; the rest is left out", wave(8000, 1, 16, 16384, 0, 0, 0, 16384, 0, 8192), threes, [][]float64{{0.5, 0, 0}, {0, 0.5, 0}}},
		{"24 bits", wave(8000, 1, 24, 1<<22, -1<<23), free, [][]float64{{0.5, -1}}},
		{"32 bits", wave(8000, 1, 32, 1<<30), free, [][]float64{{0.5}}},
		{"floats", floats(wave(8000, 1, 32, int(math.Float32bits(0.25)))), free, [][]float64{{0.25}}},
		{"cut off", wave(8000, 1, 16, 16384, 1)[:46], free, [][]float64{{0.5}}},
		{"zeros follow a short file", wave(8000, 1, 16, 16384), threes, [][]float64{{0.5, 0, 0}}},
	} {
		got, err := pieces(t, c.file, c.in, &media.Config{})
		if err != nil || !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	normal, err := pieces(t, wave(8000, 1, 16, 100, -100, 100, -100), free, config(t, `{"do_normalize": true, "sampling_rate": 8000}`))
	if err != nil || math.Abs(normal[0][0]-1) > 0.01 || math.Abs(normal[0][1]+1) > 0.01 {
		t.Errorf("normalized: %v, %v", normal, err)
	}
}

func TestRefusedSounds(t *testing.T) {
	free := media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 0}}
	for want, file := range map[string][]byte{
		"8000 Hz, but the model takes 16000": wave(8000, 1, 16, 0, 1), "neither integers of 8": floats(wave(8000, 1, 16, 0, 0)), "not a WAV file": []byte("RIFFxxxxWAVE"),
	} {
		if _, err := pieces(t, file, free, &media.Config{SamplingRate: 16000}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := pieces(t, nil, media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{1, 80, 0}}, &media.Config{}); err == nil {
		t.Error("spectra")
	}
}

// No file makes the decoders panic or take much memory.
func FuzzSounds(f *testing.F) {
	f.Add(wave(8000, 1, 16, 1, 2, 3))
	f.Add(wave(8000, 2, 24, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, file []byte) {
		pieces(t, file, media.Input{Name: "x", DType: dtype.Float32, Shape: media.Shape{0, 0}}, &media.Config{})
	})
}
