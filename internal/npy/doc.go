// Package npy reads arrays from numpy's files .npy and .npz, a stretch at a time.
//
// # Format
//
// An .npy file is the six bytes "\x93NUMPY", a byte each of the major (1 … 3) and the
// minor version, the length of the header as a little-endian uint16, from version 2
// on uint32, and the header, the text of a Python dictionary:
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// The elements follow without gaps. descr is the byte order (< little, > big, | none),
// a kind (f float, i and u integers, b bool, c complex) and the bytes of an element;
// in Fortran order the first axis is the fastest, else the last one. An .npz file is a
// zip of such files, stored or deflated, each named like its array with .npy behind.
// Structured types and Python objects are refused. Source: numpy.lib.format.
package npy
