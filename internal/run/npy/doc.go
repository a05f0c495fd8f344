// Package npy reads arrays from numpy files, .npy and .npz, as streams.
//
// [Open] gets a path and returns a [File], which the caller closes. Each [Array] in it is read from
// front to back, into memory that the caller then owns. [Each] does that for all arrays of a file.
//
// # Format
//
// An .npy file has
//
//   - the six bytes "\x93NUMPY",
//   - the major version, 1 to 3, and the minor version, one byte each,
//   - the length of the header, a little-endian uint16 in version 1, uint32 later,
//   - the header, a Python dictionary as text,
//   - the elements without gaps.
//
// A header is
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// descr is the byte order (< little, > big, | none), the kind (f float, i and u integer, b bool,
// c complex) and the bytes of an element. In Fortran order the first axis varies fastest, otherwise the
// last. An .npz file is a zip archive of .npy files, stored or deflated, each named after its array.
// Structured types and Python objects are not supported. Source: numpy.lib.format.
package npy
