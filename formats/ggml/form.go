package ggml

// Form describes the blocks of an encoding as codes and scales. Element i of a block is
//
//	scale*codes[i] - min    or    scale*Values[codes[i]]
//
// with the scale and min of its part. In a nested form, scale and min are products, rounded to float32,
// of a float of the block and a code of the part.
type Form struct {
	Bits   int       // of an element's code, 1 … 8
	Signed bool      // codes of elements, and of scales, are two's complement
	Values []float32 // of the 16 codes, if they differ from the codes themselves; then there are no parts and no mins
	Part   int       // elements that share a scale; all of a block if the form is not nested
	Nested bool      // scales and mins of parts are codes, of 8 bits at most
	Mins   bool      // there are mins, whose codes are unsigned

	// Split splits blocks into their parts. Join is the inverse; it may be nil.
	Split func(p Parts, src []byte)
	Join  func(dst []byte, p Parts)
}

// fits reports whether blocks with this number of elements can have the form.
func (f *Form) fits(elements int) bool {
	switch {
	case f.Split == nil, f.Part < 1, elements%f.Part != 0, !f.Nested && f.Part != elements:
		return false
	case f.Values != nil:
		return f.Bits == 4 && len(f.Values) == 16 && !f.Signed && !f.Nested && !f.Mins
	}
	return 1 <= f.Bits && f.Bits <= 8
}

// Parts are the parts of blocks. Slices must be long enough for the blocks that are split;
// those for parts that the form does not have are ignored.
type Parts struct {
	Codes                []byte    // of elements
	Scales, Mins         []float32 // of blocks, each a number that float16 has
	PartScales, PartMins []byte    // of parts
}

func (f simple) form() *Form {
	return &Form{Bits: f.bits, Signed: !f.affine, Part: small, Mins: f.affine, Split: f.split, Join: f.join}
}

func (f simple) split(p Parts, src []byte) {
	var b simpleBlock
	for i := range p.Scales {
		src = f.unpack(&b, src)
		zero := byte(f.zero())
		if f.affine {
			zero = 0
			p.Mins[i] = -b.low
		}
		p.Scales[i] = b.scale
		for j, q := range b.codes {
			p.Codes[i*small+j] = q - zero
		}
	}
}

func (f simple) join(dst []byte, p Parts) {
	for i, scale := range p.Scales {
		zero, low := byte(f.zero()), float32(0)
		if f.affine {
			zero, low = 0, -p.Mins[i]
		}
		var codes [small]byte
		for j, q := range p.Codes[i*small:][:small] {
			codes[j] = q + zero
		}
		dst = f.pack(dst, &codes, scale, low)
	}
}

func splitQ8_0(p Parts, src []byte) {
	for i := range p.Scales {
		p.Scales[i] = half(src)
		copy(p.Codes[i*small:], src[2:2+small])
		src = src[2+small:]
	}
}

func joinQ8_0(dst []byte, p Parts) {
	for i, scale := range p.Scales {
		putHalf(dst, scale)
		copy(dst[2:2+small], p.Codes[i*small:])
		dst = dst[2+small:]
	}
}

func splitIQ4_NL(p Parts, src []byte) {
	var q [small]byte
	for i := range p.Scales {
		p.Scales[i] = half(src)
		splitNibbles(&q, src[2:])
		copy(p.Codes[i*small:], q[:])
		src = src[2+small/2:]
	}
}

func joinIQ4_NL(dst []byte, p Parts) {
	for i, scale := range p.Scales {
		putHalf(dst, scale)
		pairNibbles(dst[2:], (*[small]byte)(p.Codes[i*small:]))
		dst = dst[2+small/2:]
	}
}

func (f *affine) form() *Form {
	bits := map[float32]int{3: 2, 15: 4, 31: 5}[f.search.Last]
	return &Form{Bits: bits, Part: f.search.Block, Nested: true, Mins: true, Split: f.split, Join: f.join}
}

func (f *affine) split(p Parts, src []byte) {
	var s affineBlock
	n := super / f.search.Block
	for i := range p.Scales {
		f.unpack(&s, src)
		p.Scales[i], p.Mins[i] = s.scale, s.min
		copy(p.Codes[i*super:], s.codes[:])
		copy(p.PartScales[i*n:], s.scales[:n])
		copy(p.PartMins[i*n:], s.mins[:n])
		src = src[f.size:]
	}
}

func (f *affine) join(dst []byte, p Parts) {
	var s affineBlock
	n := super / f.search.Block
	for i := range p.Scales {
		s.scale, s.min = p.Scales[i], p.Mins[i]
		copy(s.codes[:], p.Codes[i*super:])
		copy(s.scales[:n], p.PartScales[i*n:])
		copy(s.mins[:n], p.PartMins[i*n:])
		f.pack(dst, &s)
		dst = dst[f.size:]
	}
}

// splitSymmetric splits blocks and subtracts zero from their codes.
func splitSymmetric(p Parts, src []byte, size, zero int, unpack func(s *symmetricBlock, src []byte)) {
	var s symmetricBlock
	for i := range p.Scales {
		unpack(&s, src[i*size:])
		p.Scales[i] = s.scale
		for j, q := range s.codes {
			p.Codes[i*super+j] = q - byte(zero)
		}
		for j, c := range s.scales {
			p.PartScales[i*parts+j] = byte(c)
		}
	}
}

// joinSymmetric adds zero to the codes of blocks and packs these.
func joinSymmetric(dst []byte, p Parts, size, zero int, pack func(dst []byte, s *symmetricBlock)) {
	var s symmetricBlock
	for i, scale := range p.Scales {
		s.scale = scale
		for j, q := range p.Codes[i*super:][:super] {
			s.codes[j] = q + byte(zero)
		}
		for j, c := range p.PartScales[i*parts:][:parts] {
			s.scales[j] = int8(c)
		}
		pack(dst[i*size:], &s)
	}
}

func splitQ3_K(p Parts, src []byte) { splitSymmetric(p, src, bytesQ3_K, 4, unpackQ3_K) }
func splitQ6_K(p Parts, src []byte) { splitSymmetric(p, src, bytesQ6_K, 32, unpackQ6_K) }

func joinQ3_K(dst []byte, p Parts) { joinSymmetric(dst, p, bytesQ3_K, 4, packQ3_K) }
func joinQ6_K(dst []byte, p Parts) { joinSymmetric(dst, p, bytesQ6_K, 32, packQ6_K) }
