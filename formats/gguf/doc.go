// Package gguf reads and writes GGUF files, version 3: the format in which llama.cpp and
// other programs of ggml store a model's weights and metadata.
//
// [Open] and [Read] return a [File], which is immutable and may be used by several
// goroutines; the caller closes it. [NewLayout] returns a [Layout] for a new file, into which
// the caller writes the contents.
//
// # The file
//
// All numbers are little-endian. Only the data of tensors are aligned.
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
// A key-value is a string, the key; a uint32, the type of the value; and the value. A key has at most
// 65535 bytes and occurs once. By custom it is words of lower case ASCII letters, digits and
// underscores, separated by dots. The types are
//
//	0 uint8     4 uint32    8 string   12 float64
//	1 int8      5 int32     9 array
//	2 uint16    6 float32  10 uint64
//	3 int16     7 bool     11 int64
//
// A bool is a byte, 0 or 1. An array is a uint32, the type of all its elements; a uint64, their number;
// and the elements, encoded like single values. The format has arrays of arrays, but ggml refuses them.
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
// The key general.alignment, a uint32 and a power of two, is the alignment; the default is 32. The data
// begin at a multiple of the alignment in the file. Every content begins at a multiple of it, counted
// from the beginning of the data. Zeros fill the gap behind each content, including the last. ggml
// requires the contents in the order of the infos without other gaps; [NewLayout] places them that way.
// [Open] and [Read] accept any place inside the file.
//
// A content is rows of the last dimension of the shape, one after another, each made of whole blocks. A
// [Type] has the number of elements and of bytes of a block. The types F32, F16, BF16, F64 and I8 to I64
// have blocks of one element. Package ggml defines the bytes of the other blocks.
//
// # Keys
//
// general.architecture, a string, names the kind of model and must be there.
// general.quantization_version, a uint32, is 2 for today's blocks. general.file_type, a uint32, is the
// mix of types of most weights (package onnxq has the numbers). Further keys begin with the
// architecture's name.
//
// # Bounds
//
// Files may be broken or hostile. Every length is compared with the rest of the file before memory is
// allocated. Everything before the data must fit in [MaxHead] bytes, so reading takes at most a few
// times that memory.
//
// The definition is docs/gguf.md of the ggml project. Where it leaves something open, this package
// accepts what ggml's reader accepts.
package gguf
