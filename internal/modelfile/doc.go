// Package modelfile reads ONNX model files of any size in little memory, and computes the layout of
// model files to be written.
//
// # Reading
//
// A model file is one protobuf message, and most of its bytes are the contents of tensors. [Open]
// walks the wire format once and cuts the contents out. It decodes the rest, the structure, into
// ordinary protobuf structs, a piece at a time. The contents stay in the file, except for raw_data of
// a few bytes. In the structure, the field payload of a TensorProto lists the numbers of the pieces
// cut out of that tensor; the ONNX standard does not have this field. The protobuf library decodes the
// rest of the wire format. So repeated, merged and unknown fields are handled as in the whole file.
//
// The memory of the structure is counted during the cut and limited before it is allocated: to 192 MiB
// or 20 bytes per byte of structure, whichever is more.
//
// A [Payload] reads the content of a tensor as the little-endian bytes of raw_data, however it is
// stored: in raw_data, in a typed field (packed or not), or in an external file. A [Model] keeps its
// files open; the caller closes it.
//
// # Writing
//
// [Layout] encodes a structure whose payload numbers stand for contents of known sizes, and computes
// the file offset of each content. The contents can then be written in any order, by several workers.
package modelfile
