package modeltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
)

// WriteSamples writes a .npy file of rows of random numbers whose neighbours are alike.
func WriteSamples(path string, rows, columns int) error {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", header)
	r := rand.New(rand.NewPCG(1, 2))
	for range rows {
		x := r.NormFloat64()
		for range columns {
			x = 0.9*x + 0.4*r.NormFloat64()
			b, _ = binary.Append(b, binary.LittleEndian, float32(x))
		}
	}
	return os.WriteFile(path, b, 0o666)
}
