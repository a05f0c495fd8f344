package onnxq

import (
	"context"
	"errors"
)

type conversion struct{}

// Model is an opened ONNX model: its structure in memory, its tensors on disk.
type Model struct{}

// Open reads the structure of the model at path.
func Open(path string) (*Model, error) { return nil, errors.ErrUnsupported }

// Close releases the files that Open opened.
func (m *Model) Close() error { return nil }

// Plan decides what becomes of every float tensor.
func (m *Model) Plan(opts Options) (*Plan, error) { return nil, errors.ErrUnsupported }

// Convert quantizes the model at in and writes it to out.
func Convert(ctx context.Context, in, out string, opts Options) (*Report, error) {
	return nil, errors.ErrUnsupported
}
