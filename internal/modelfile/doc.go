// Package modelfile reads and writes ONNX model files of any size in little
// memory.
//
// A model file is one protobuf message, most of whose bytes are the contents
// of tensors. Open walks its wire format once and cuts those contents out:
// what remains, the structure, is decoded into ordinary protobuf structs,
// while the contents stay in the file. In the structure, the field payload of
// a TensorProto, which the ONNX standard does not know, lists the numbers of
// the pieces that were cut out of that tensor. Because the cut happens on the
// wire, the protobuf library decides everything else as it would have done on
// the whole file: repeated and merged fields, unknown fields, field order. What
// the structure takes in memory is counted during the cut and bounded before it
// is allocated: 192 MiB, or 9 bytes for each byte of it.
//
// A Payload gives a tensor's content back as the little-endian bytes that
// raw_data would hold, wherever and however it is stored: in raw_data, in one
// of the typed fields (packed or not), or in an external file.
//
// Writing is the inverse. Layout encodes a structure whose payload numbers
// stand for contents of known sizes, and tells at which offset of the file
// each content goes; the contents may then be written in any order, by several
// workers. A Target collects model file and external data file and puts both
// in place at once: it locks the place, and whatever happens, what is there is a
// whole model, old or new.
package modelfile
