package onnxq

// codec turns elements into codes and back. Package int4 tells what its methods
// do; those of the other number packages do the same for theirs. A symmetric
// format makes no use of lo and zero.
type codec interface {
	Validate() error
	HasZeroPoints() bool

	// A range pass over all elements of a block …
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)

	// … gives its scale, as a float32 of the value that is stored …
	Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool)

	// … and that the codes, one a byte.
	EncodeColumns(q []byte, x, scale []float32, zero []byte)
	EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int)
	DecodeColumns(x []float32, q []byte, scale []float32, zero []byte)
	DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int)
}
