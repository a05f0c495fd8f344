// Package safetensors reads safetensors files, in which Hugging Face's hub has the weights of models.
//
// [Read] gets a file and returns a [File], which is immutable and may be used by several goroutines. It reads no contents.
//
// # The file
//
//	length      uint64    of the header in bytes, little-endian
//	header      JSON      one object, perhaps followed by spaces
//	data                  the contents of the tensors
//
// The header maps the name of each tensor to its type, its shape and the place of its content in the data:
//
//	{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"format": "pt"}}
//
// Elements are little-endian, the last axis runs fastest. Contents neither overlap nor leave gaps, and end with the
// file. The definition is https://github.com/huggingface/safetensors.
//
// # Hostile files
//
// The header may have at most [MaxHeader] bytes, as in the definition, and no more than the file. Memory is at most a small
// multiple of it.
package safetensors
