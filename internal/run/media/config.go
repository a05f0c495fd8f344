package media

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Config says how a model wants its inputs. It has the fields of preprocessor_config.json that this package obeys. The zero
// Config is that of a model without one.
type Config struct {
	Path string `json:"-"` // of the file; "" without one

	// Images: they are resized, then cropped, then multiplied by RescaleFactor, then mean is subtracted and the rest
	// divided by std.
	DoResize      *bool    `json:"do_resize"`
	Size          *Size    `json:"size"`
	Resample      *int     `json:"resample"` // as Pillow numbers filters, to 5: 0 nearest, 3 bicubic, else bilinear
	DoCenterCrop  *bool    `json:"do_center_crop"`
	CropSize      *Size    `json:"crop_size"`
	DoRescale     *bool    `json:"do_rescale"`
	RescaleFactor *float64 `json:"rescale_factor"` // default 1/255
	DoNormalize   *bool    `json:"do_normalize"`   // of sound: mean 0 and deviation 1
	Mean          Channels `json:"image_mean"`
	Std           Channels `json:"image_std"`
	FlipChannels  bool     `json:"do_flip_channel_order"` // blue, green, red

	SamplingRate int `json:"sampling_rate"` // of sound, in Hz
}

// Size is a number, which is the shortest edge or both edges, or an object.
type Size struct {
	Height       int `json:"height"`
	Width        int `json:"width"`
	ShortestEdge int `json:"shortest_edge"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &s.ShortestEdge) == nil {
		return s.check()
	}
	type plain Size
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return errors.New("a size is a number, or an object with height and width or shortest_edge")
	}
	return s.check()
}

func (s *Size) check() error {
	for _, n := range []int{s.Height, s.Width, s.ShortestEdge} {
		if n < 0 || n > mostEdge {
			return fmt.Errorf("size %d: want at most %d", n, mostEdge)
		}
	}
	return nil
}

// mostEdge bounds the edges of images in pixels.
const mostEdge = 1 << 14

// Channels has a number for each channel, or one for all.
type Channels []float64

// UnmarshalJSON implements json.Unmarshaler.
func (c *Channels) UnmarshalJSON(data []byte) error {
	var one float64
	if json.Unmarshal(data, &one) == nil {
		*c = Channels{one}
		return nil
	}
	return json.Unmarshal(data, (*[]float64)(c))
}

// of returns the number for a channel, or the default.
func (c Channels) of(channel int, usual float64) float64 {
	switch {
	case len(c) == 0:
		return usual
	case channel < len(c):
		return c[channel]
	}
	return c[0]
}

// ConfigName is the name of the file that FindConfig looks for.
const ConfigName = "preprocessor_config.json"

// mostConfig bounds the bytes of a configuration.
const mostConfig = 1 << 20

// FindConfig reads the configuration in the first of the folders that has one. Without one, it returns the zero Config.
func FindConfig(folders ...string) (*Config, error) {
	for _, folder := range folders {
		path := filepath.Join(folder, ConfigName)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular() || info.Size() > mostConfig:
			return nil, fmt.Errorf("%s: want a file of at most %d KiB", path, mostConfig>>10)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c := &Config{Path: path}
		if err := json.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return c, nil
	}
	return &Config{}, nil
}

// check refuses numbers that no image processor takes.
func (c *Config) check() error {
	const filters = 6 // of Pillow
	if r := c.Resample; r != nil && (*r < 0 || *r >= filters) {
		return fmt.Errorf("resample %d: want 0 to %d", *r, filters-1)
	}
	for _, std := range c.Std {
		if std <= 0 {
			return fmt.Errorf("image_std %v: want numbers above 0", []float64(c.Std))
		}
	}
	return nil
}

// normalizes reports whether mean is subtracted and std divides.
func (c *Config) normalizes() bool { return is(c.DoNormalize, len(c.Mean)+len(c.Std) > 0) }

// checkChannels refuses a mean or std of another number of channels than the input has.
func (c *Config) checkChannels(n int) error {
	if !c.normalizes() {
		return nil
	}
	for name, list := range map[string]Channels{"image_mean": c.Mean, "image_std": c.Std} {
		if len(list) > 1 && len(list) != n {
			return fmt.Errorf("%s: %s has %d numbers: want one, or %d as the input has channels", c.Path, name, len(list), n)
		}
	}
	return nil
}

// is returns a switch of the configuration, or its default.
func is(s *bool, usual bool) bool {
	if s == nil {
		return usual
	}
	return *s
}
