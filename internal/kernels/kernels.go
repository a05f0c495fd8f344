// Package kernels has the loops over every element of a weight.
//
// Each loop is written in plain Go, which defines its result. The assembly for some processors (see
// _gen) gives the same bits. The caller owns all slices and checks their lengths; a slice that is too
// short panics.
//
// A matrix argument x belongs to a vector argument of n columns: len(x) is a multiple of n, and
// x[r*n+i] meets element i of the vector.
//
// Codes are bytes, one per element: the code itself if unsigned, its two's complement if signed.
package kernels

import "math"

//go:generate sh -c "cd _gen && go run ./neon ../simd_arm64.s ../simd_stubs_arm64.go"

const signBit = 1 << 31

// abs returns the bits of |x|. Taken as integers they order as the magnitudes
// do, with infinity above all numbers and NaN above infinity.
func abs(x float32) uint32 { return math.Float32bits(x) &^ signBit }

// IsFinite reports whether x is neither infinite nor NaN.
func IsFinite(x float32) bool { return abs(x) < 0xff<<23 }
