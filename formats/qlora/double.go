package qlora

import (
	"math"
	"slices"
)

// SuperBlock is the number of scales that double quantization takes together.
const SuperBlock = 256

// Linear8 stores scales in eight bits in the crate's format. For each super-block, in float32,
//
//	super = max(s), at least 1e-8
//	q = s/super·255 rounded, ties away from 0
//	s ≈ q/255·super
//
// Small scales lose most: below super/510 they become 0.
type Linear8 struct {
	Codes  []byte
	Supers []float32
}

const leastSuper = 1e-8

// DoubleLinear quantizes scales, which are finite and not negative.
func DoubleLinear(scales []float32) Linear8 {
	d := Linear8{Codes: make([]byte, 0, len(scales))}
	for block := range slices.Chunk(scales, SuperBlock) {
		super := max(slices.Max(block), leastSuper)
		d.Supers = append(d.Supers, super)
		for _, s := range block {
			d.Codes = append(d.Codes, byte(math.Round(float64(float32(s/super)*255))))
		}
	}
	return d
}

// Decode returns the scales that the codes represent.
func (d Linear8) Decode() []float32 {
	scales := make([]float32, len(d.Codes))
	for i, q := range d.Codes {
		scales[i] = float32(q) / 255 * d.Supers[i/SuperBlock]
	}
	return scales
}

// Bytes returns 1 for each scale and 4 for each super-block.
func (d Linear8) Bytes() int { return len(d.Codes) + 4*len(d.Supers) }

// Dynamic8 stores scales in eight bits in bitsandbytes' format. The mean of all scales is subtracted,
// and the rest is quantized in super-blocks to the values of [DynamicMap]:
//
//	offset = mean(s)
//	super = max|s - offset|
//	q = index of the value nearest to (s - offset)/super; the lower one of two
//	s ≈ value(q)·super + offset
//
// All is float32, except the mean, which is float64.
type Dynamic8 struct {
	Codes  []byte
	Supers []float32
	Offset float32
}

// dynamicMap holds the values of DynamicMap.
var dynamicMap = makeDynamicMap()

// DynamicMap returns the 256 values of bitsandbytes' signed dynamic type, from -0.993 to 1 in order.
// They are 0, 1 and, for i = 0 … 6 and either sign, 10^(i-6) times the midpoints between 2^i+1 evenly
// spaced numbers from 0.1 to 1 (Dettmers et al., 8-bit optimizers via block-wise quantization, 2021).
// They are computed in float64 and rounded to float32. The library computes in float32, so the last
// place may differ.
func DynamicMap() [256]float32 { return dynamicMap }

func makeDynamicMap() (m [256]float32) {
	values := []float32{0, 1}
	for i := range 7 {
		n := 1 << i
		scale := math.Pow(10, float64(i-6))
		for j := range n {
			v := float32(scale * (0.1 + 0.9*(float64(j)+0.5)/float64(n)))
			values = append(values, v, -v)
		}
	}
	slices.Sort(values)
	copy(m[:], values)
	return m
}

// DoubleDynamic quantizes scales, which are finite.
func DoubleDynamic(scales []float32) Dynamic8 {
	d := Dynamic8{Codes: make([]byte, 0, len(scales))}
	if len(scales) == 0 {
		return d
	}
	sum := 0.0
	for _, s := range scales {
		sum += float64(s)
	}
	d.Offset = float32(sum / float64(len(scales)))
	for block := range slices.Chunk(scales, SuperBlock) {
		super := float32(0)
		for _, s := range block {
			super = max(super, s-d.Offset, d.Offset-s)
		}
		d.Supers = append(d.Supers, super)
		for _, s := range block {
			v := float32(0)
			if super > 0 {
				v = (s - d.Offset) / super
			}
			d.Codes = append(d.Codes, nearestDynamic(v))
		}
	}
	return d
}

func nearestDynamic(v float32) byte {
	i, _ := slices.BinarySearch(dynamicMap[:], v)
	switch {
	case i == 0:
		return 0
	case i == len(dynamicMap):
		return byte(i - 1)
	case float64(v)-float64(dynamicMap[i-1]) <= float64(dynamicMap[i])-float64(v):
		return byte(i - 1)
	}
	return byte(i)
}

// Decode returns the scales that the codes represent.
func (d Dynamic8) Decode() []float32 {
	scales := make([]float32, len(d.Codes))
	for i, q := range d.Codes {
		scales[i] = float32(dynamicMap[q]*d.Supers[i/SuperBlock]) + d.Offset
	}
	return scales
}

// Bytes returns 1 for each scale, 4 for each super-block, and 4 for the offset.
func (d Dynamic8) Bytes() int { return len(d.Codes) + 4*len(d.Supers) + 4 }
