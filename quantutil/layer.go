package quantutil

import "fmt"

// Layer is what a LayerInfo says of one layer. A nil field says nothing.
type Layer struct {
	Precision *int // bits
	BlockSize *int // elements of a block, -1 for one block per channel
	Axis      *int // the axis that is cut into blocks
}

// LayerInfo gives layers, by the name of their weight, settings of their own.
type LayerInfo map[string]Layer

// defaultBits are those of a layer without a precision of its own.
const defaultBits = 4

// GetNumBits returns the bits of a layer's codes: its precision, or 4 if the
// layer is not in info. A layer that is there but has no precision is an error.
func GetNumBits(info LayerInfo, name string) (int, error) {
	l, ok := info[name]
	switch {
	case !ok:
		return defaultBits, nil
	case l.Precision == nil:
		return 0, missing(name, "precision")
	}
	return *l.Precision, nil
}

// GetNumBitsFromPrecision is GetNumBits as older documentation has it: info holds
// the bits of layers, and nothing else.
func GetNumBitsFromPrecision(info map[string]int, name string) int {
	if bits, ok := info[name]; ok {
		return bits
	}
	return defaultBits
}

// GetLayerBlockSize returns the block size of a layer, or the default.
func GetLayerBlockSize(info LayerInfo, name string, defaultBlockSize int) int {
	if b := info[name].BlockSize; b != nil {
		return *b
	}
	return defaultBlockSize
}

// GetLayerAxis returns the axis of a layer, or the default.
func GetLayerAxis(info LayerInfo, name string, defaultAxis int) int {
	if a := info[name].Axis; a != nil {
		return *a
	}
	return defaultAxis
}

// UpdateBlockSize returns the block size of a layer whose weight has the given
// shape. A layer in info has its own block size and axis in place of the given
// ones, and must name both. A block size of -1 becomes the length of the axis,
// which counts from the end if negative.
func UpdateBlockSize(blockSize int, info LayerInfo, name string, quantizeAxis int, shape []int) (int, error) {
	if l, ok := info[name]; ok {
		if l.BlockSize == nil {
			return 0, missing(name, "block_size")
		}
		if l.Axis == nil {
			return 0, missing(name, "axis")
		}
		blockSize, quantizeAxis = *l.BlockSize, *l.Axis
	}
	if blockSize != -1 {
		return blockSize, nil
	}
	return dimension(shape, quantizeAxis)
}

// UpdateBlockSizeForBits is UpdateBlockSize as older documentation has it: the
// block is the whole axis if blockSize is -1, and for all codes of 8 bits.
func UpdateBlockSizeForBits(numBits, blockSize, quantizeAxis int, shape []int) (int, error) {
	if blockSize != -1 && numBits != 8 {
		return blockSize, nil
	}
	return dimension(shape, quantizeAxis)
}

// ReshapeScalesForPerChannelNodes returns the scales with those of layers that
// have one block per channel, where blockSize or the layer's own is -1, reshaped
// to one axis. Values are shared with the argument.
func ReshapeScalesForPerChannelNodes(scales map[string]*Tensor, blockSize int, info LayerInfo) (map[string]*Tensor, error) {
	out := make(map[string]*Tensor, len(scales))
	for name, s := range scales {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("scale of %q: %w", name, err)
		}
		out[name] = s
		if GetLayerBlockSize(info, name, blockSize) == -1 {
			out[name] = &Tensor{DType: s.DType, Shape: []int{len(s.Data)}, Data: s.Data}
		}
	}
	return out, nil
}

// dimension returns the length of an axis, counted from the end if negative.
func dimension(shape []int, axis int) (int, error) {
	i := axis
	if i < 0 {
		i += len(shape)
	}
	if i < 0 || i >= len(shape) {
		return 0, fmt.Errorf("axis %d of a tensor of shape %v", axis, shape)
	}
	return shape[i], nil
}

func missing(layer, field string) error {
	return fmt.Errorf("layer %q has no %s", layer, field)
}
