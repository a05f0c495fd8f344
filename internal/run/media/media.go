// Package media decodes images and sound into inputs of a model: the files of photos and recordings that users have.
//
// How pixels become numbers is not in an ONNX model. [FindConfig] reads it from preprocessor_config.json, the file of
// Hugging Face's transformers, beside the data or the model. The package knows images of PNG, JPEG, GIF (the first
// picture), BMP, TIFF and WebP, and sound of WAV files, without compression.
//
//	image      [N,C,H,W], [N,H,W,C], [C,H,W] or [H,W,C], with C of 1 (grey) or 3 (red, green, blue)
//	sound      [T], [N,T] or [N,1,T], with values from -1 to 1
//
// N is 1. Sizes that the model fixes hold; free ones follow from the configuration, or are those of the file.
package media

import (
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
)

// Shape is the shape of an input; 0 is a free size.
type Shape []int64

// Input is the input of a model that files are decoded for.
type Input struct {
	Name  string
	DType dtype.DType
	Shape Shape
}

var (
	imageFiles = []string{".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"}
	soundFiles = []string{".wav"}
)

// IsImage reports whether a file is an image, by its name.
func IsImage(path string) bool { return slices.Contains(imageFiles, extension(path)) }

// IsSound reports whether a file is sound, by its name.
func IsSound(path string) bool { return slices.Contains(soundFiles, extension(path)) }

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// batchOfOne reports whether the first axis is a batch that can be one.
func (s Shape) batchOfOne() bool { return len(s) > 0 && s[0] <= 1 }
