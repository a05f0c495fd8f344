// Package gguf reads and writes GGUF files, version 3: the format in which llama.cpp and
// other programs of ggml store a model's weights and metadata.
//
// [Open] and [Read] return a [File], which is immutable and may be used by several
// goroutines; the caller closes it. [NewLayout] returns a [Layout] for a new file, into which
// the caller writes the contents.
//
// # The file
//
// All numbers are little-endian and nothing is aligned but the data of tensors.
//
//	magic       4 bytes   "GGUF"
//	version     uint32    3
//	tensors     uint64    number of tensors
//	keys        uint64    number of key-values
//	key-values            one after the other
//	tensor infos          one after the other
//	padding               zeros up to a multiple of the alignment
//	data                  the tensors' contents
//
// A string is a uint64, its length in bytes, and that many bytes of UTF-8, with
// no zero at the end.
//
// A key-value is a string, the key; a uint32, the type of the value; and the
// value. A key has at most 65535 bytes, by custom words of lower case ASCII
// letters, digits and underscores with dots between, and occurs once. The types
// are
//
//	0 uint8     4 uint32    8 string   12 float64
//	1 int8      5 int32     9 array
//	2 uint16    6 float32  10 uint64
//	3 int16     7 bool     11 int64
//
// A bool is a byte, 0 or 1. An array is a uint32, the type of all its elements; a
// uint64, their number; and the elements as they would stand alone. Arrays of
// arrays exist in the format, though ggml itself refuses them.
//
// A tensor info is a string, the name; a uint32, the number of dimensions, at most
// 4; for each of them a uint64; a uint32, the type of the elements; and a uint64,
// the offset of the content from the beginning of the data. The first dimension is
// the contiguous one: the reverse of the order in numpy and ONNX. A [Tensor] of this
// package has its shape in the order of ONNX. ggml's reader requires unique names of
// less than [MaxName] bytes.
//
// # Contents
//
// The key general.alignment, a uint32 and a power of two, is the alignment; where
// it is missing, it is 32. Every content begins at a multiple of it, counted from
// the beginning of the data, which is itself at one in the file, and zeros fill
// the gap behind each content, the last one included. ggml wants the contents in
// the order of the infos without other gaps, and [NewLayout] places them so; when
// reading, any place inside of the file is good.
//
// A content is rows of the last dimension of the shape, one after the other, each
// made of whole blocks. A [Type] tells how many elements a block has and how many
// bytes it takes; the types F32, F16, BF16, F64 and I8 to I64 have blocks of one
// element. What the bytes of the other blocks mean is told in package ggml.
//
// # Keys
//
// general.architecture, a string, names the kind of model and must be there.
// general.quantization_version, a uint32, is 2 for the blocks as they are today,
// and general.file_type, a uint32, tells which mix of types most of the weights
// have (package onnxq has the numbers). Further keys begin with the architecture's
// name.
//
// # Bounds
//
// Files may be broken or hostile. Every length is compared with the rest of the file before
// memory is allocated, and everything before the data must fit in [MaxHead] bytes, so
// reading takes at most a few times that memory.
//
// The definition is docs/gguf.md of the ggml project; where it leaves something
// open, this package follows what ggml's reader accepts.
package gguf
