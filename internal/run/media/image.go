package media

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif"  // decoders
	_ "image/jpeg" // decoders
	_ "image/png"  // decoders
	"math"

	_ "golang.org/x/image/bmp" // decoders
	"golang.org/x/image/draw"
	_ "golang.org/x/image/tiff" // decoders
	_ "golang.org/x/image/webp" // decoders

	"onnxquant/internal/regularfile"
	"onnxquant/internal/run/execute"
)

// Images decodes images for an input.
type Images struct {
	input    Input
	config   *Config
	channels int
	height   int  // fixed by the model, or 0
	width    int  // fixed by the model, or 0
	last     bool // channels are the last axis
}

// mostPixels bounds an image file: it is decoded as a whole.
const mostPixels = 100 << 20

// NewImages returns a decoder, or an error that tells why the input takes no images, or what is missing.
func NewImages(in Input, c *Config) (*Images, error) {
	m := &Images{input: in, config: c}
	sizes := in.Shape
	if len(sizes) == 4 && sizes.batchOfOne() {
		sizes = sizes[1:]
	}
	channels := func(n int64) bool { return n == 1 || n == 3 }
	switch {
	case len(sizes) != 3 || !in.DType.Float() && !in.DType.Integer():
		return nil, fmt.Errorf("input %q takes no images: want [N,C,H,W] or [N,H,W,C]", in.Name)
	case channels(sizes[0]):
		m.channels, m.height, m.width = int(sizes[0]), int(sizes[1]), int(sizes[2])
	case channels(sizes[2]):
		m.channels, m.height, m.width, m.last = int(sizes[2]), int(sizes[0]), int(sizes[1]), true
	case sizes[0] == 0:
		m.channels, m.height, m.width = 3, int(sizes[1]), int(sizes[2])
	default:
		return nil, fmt.Errorf("input %q takes no images: no axis has 1 or 3 channels", in.Name)
	}
	if in.DType.Float() && c.Path == "" {
		return nil, fmt.Errorf("input %q takes floats: a file %s beside the data or the model must say how pixels become floats, "+
			`such as {"rescale_factor": 0.00392156862745098, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`, in.Name, ConfigName)
	}
	if in.DType.Float() {
		return m, c.checkChannels(m.channels)
	}
	return m, nil
}

// Decode reads an image.
func (m *Images) Decode(path string) (*execute.Tensor, error) {
	x, err := readImage(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	width, height := m.size(x.Bounds().Dx(), x.Bounds().Dy())
	if width < 1 || height < 1 || width > mostEdge || height > mostEdge {
		return nil, fmt.Errorf("%s: an image of %d x %d becomes %d x %d", path, x.Bounds().Dx(), x.Bounds().Dy(), width, height)
	}
	t, err := m.tensor(m.cropped(m.resized(x, width, height)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Name = m.input.Name
	return t, nil
}

func readImage(path string) (image.Image, error) {
	f, _, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, _, err := image.DecodeConfig(f)
	switch {
	case errors.Is(err, image.ErrFormat):
		return nil, errors.New("no image of a known format, whatever its name says: remove it, or save it as PNG")
	case err != nil:
		return nil, err
	case c.Width < 1 || c.Height < 1 || int64(c.Width)*int64(c.Height) > mostPixels:
		return nil, fmt.Errorf("an image of %d x %d pixels; want at most %d in all", c.Width, c.Height, mostPixels)
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	x, _, err := image.Decode(f)
	return x, err
}

// size returns the size to which an image is resized.
func (m *Images) size(width, height int) (w, h int) {
	s := m.config.Size
	switch crop := is(m.config.DoCenterCrop, false); {
	case crop && s != nil && s.ShortestEdge > 0: // the crop has the sizes that the model fixes
		return m.shortest(width, height, max(s.ShortestEdge, min(m.height, m.width)))
	case m.height > 0 && m.width > 0:
		return m.width, m.height
	case m.height > 0:
		return scaled(width, m.height, height), m.height
	case m.width > 0:
		return m.width, scaled(height, m.width, width)
	case s == nil || !is(m.config.DoResize, true):
		return width, height
	case s.Height > 0 && s.Width > 0:
		return s.Width, s.Height
	case s.ShortestEdge > 0:
		return m.shortest(width, height, s.ShortestEdge)
	}
	return width, height
}

func (m *Images) shortest(width, height, edge int) (w, h int) {
	if width < height {
		return edge, scaled(height, edge, width)
	}
	return scaled(width, edge, height), edge
}

// scaled returns n × to / from, rounded, at least 1.
func scaled(n, to, from int) int {
	return max(1, int(math.Round(float64(n)*float64(to)/float64(from))))
}

func (m *Images) resized(x image.Image, width, height int) *image.RGBA64 {
	made := image.NewRGBA64(image.Rect(0, 0, width, height))
	var filter draw.Scaler = draw.BiLinear
	switch r := m.config.Resample; {
	case x.Bounds().Dx() == width && x.Bounds().Dy() == height, r != nil && *r == 0:
		filter = draw.NearestNeighbor
	case r != nil && *r == 3:
		filter = draw.CatmullRom
	}
	filter.Scale(made, made.Bounds(), x, x.Bounds(), draw.Src, nil)
	return made
}

// cropped returns the middle of an image, if the configuration or the model wants a smaller one.
func (m *Images) cropped(x *image.RGBA64) *image.RGBA64 {
	width, height := x.Bounds().Dx(), x.Bounds().Dy()
	if c := m.config.CropSize; c != nil && is(m.config.DoCenterCrop, false) {
		w, h := c.Width, c.Height
		if c.ShortestEdge > 0 {
			w, h = c.ShortestEdge, c.ShortestEdge
		}
		if w > 0 && h > 0 {
			width, height = min(width, w), min(height, h)
		}
	}
	if m.width > 0 {
		width = m.width
	}
	if m.height > 0 {
		height = m.height
	}
	left, top := (x.Bounds().Dx()-width)/2, (x.Bounds().Dy()-height)/2
	return x.SubImage(image.Rect(left, top, left+width, top+height)).(*image.RGBA64)
}

// tensor makes the input of the pixels.
func (m *Images) tensor(x *image.RGBA64) (*execute.Tensor, error) {
	b := x.Bounds()
	width, height := b.Dx(), b.Dy()
	if m.width > 0 && width != m.width || m.height > 0 && height != m.height {
		return nil, fmt.Errorf("the crop has %d x %d pixels, the model takes %d x %d", width, height, m.width, m.height)
	}
	dims := []int64{int64(m.channels), int64(height), int64(width)}
	if m.last {
		dims = []int64{int64(height), int64(width), int64(m.channels)}
	}
	if len(m.input.Shape) == 4 {
		dims = append([]int64{1}, dims...)
	}
	if _, err := execute.Elements(m.input.DType, dims); err != nil {
		return nil, err
	}
	values := make([]float64, m.channels*height*width)
	for row := range height {
		for column := range width {
			pixel := m.pixel(x.RGBA64At(b.Min.X+column, b.Min.Y+row))
			for c := range m.channels {
				at := (c*height+row)*width + column
				if m.last {
					at = (row*width+column)*m.channels + c
				}
				values[at] = m.value(pixel[c], c)
			}
		}
	}
	if m.input.DType.Float() {
		return execute.FromFloat64s(m.input.DType, dims, values)
	}
	whole := make([]int64, len(values))
	for i, v := range values {
		whole[i] = int64(math.Round(v))
	}
	return execute.FromInt64s(m.input.DType, dims, whole)
}

// pixel returns the channels of a pixel, from 0 to 255.
func (m *Images) pixel(p color.RGBA64) [3]float64 {
	const unit = 257
	red, green, blue := float64(p.R)/unit, float64(p.G)/unit, float64(p.B)/unit
	switch {
	case m.channels == 1:
		return [3]float64{0.299*red + 0.587*green + 0.114*blue}
	case m.config.FlipChannels:
		return [3]float64{blue, green, red}
	}
	return [3]float64{red, green, blue}
}

// value is what the model gets for a pixel. Integers stay as they are.
func (m *Images) value(pixel float64, channel int) float64 {
	if !m.input.DType.Float() {
		return pixel
	}
	if is(m.config.DoRescale, true) {
		factor := 1. / 255
		if m.config.RescaleFactor != nil {
			factor = *m.config.RescaleFactor
		}
		pixel *= factor
	}
	if m.config.normalizes() {
		pixel = (pixel - m.config.Mean.of(channel, 0)) / m.config.Std.of(channel, 1)
	}
	return pixel
}
