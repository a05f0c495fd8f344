package main

import "fmt"

// word writes an instruction that Go's assembler may not know.
func word(bits uint32, format string, args ...any) {
	line("WORD $%#08x // "+format, append([]any{bits}, args...)...)
}

// Vector instructions. The first operand is the one that is set.

type binary func(d, n, m vector)

func three(name, lanes string, bits uint32) binary {
	return func(d, n, m vector) {
		word(bits|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, v%d.%s", name, d, lanes, n, lanes, m, lanes)
	}
}

type unary func(d, n vector)

// two is an instruction on lanes that may change their width.
func two(name, to, from string, bits uint32) unary {
	return func(d, n vector) {
		word(bits|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s", name, d, to, n, from)
	}
}

// two0 compares with 0.
func two0(name string, bits uint32) unary {
	return func(d, n vector) { word(bits|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, #0.0", name, d, n) }
}

// lookUp sets the bytes of d to those of a table of successive vectors, by their numbers.
func lookUp(d vector, table []vector, i vector) {
	bits, list := 0x4e000000|uint32(len(table)-1)<<13, ""
	for _, t := range table {
		list += fmt.Sprintf(", v%d.16b", t)
	}
	word(bits|uint32(i)<<16|uint32(table[0])<<5|uint32(d), "tbl v%d.16b, { %s }, v%d.16b", d, list[2:], i)
}

type shift func(d, n vector, by int)

// right and left shift lanes of as many bits.
func right(name, lanes string, bits uint32, width int) shift {
	return func(d, n vector, by int) {
		word(bits|uint32(2*width-by)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, #%d", name, d, lanes, n, lanes, by)
	}
}

func left(name, lanes string, bits uint32, width int) shift {
	return func(d, n vector, by int) {
		word(bits|uint32(width+by)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, #%d", name, d, lanes, n, lanes, by)
	}
}

var (
	fadd   = three("fadd", "4s", 0x4e20d400)
	fsub   = three("fsub", "4s", 0x4ea0d400)
	fmul   = three("fmul", "4s", 0x6e20dc00)
	fdiv   = three("fdiv", "4s", 0x6e20fc00)
	fmls   = three("fmls", "4s", 0x4ea0cc00) // d -= n·m
	fmla   = three("fmla", "4s", 0x4e20cc00) // d += n·m
	fcgt   = three("fcmgt", "4s", 0x6ea0e400)
	fceq   = three("fcmeq", "4s", 0x4e20e400)
	frintn = two("frintn", "4s", "4s", 0x4e218800) // to integers, ties to even
	fmaxnm = three("fmaxnm", "4s", 0x4e20c400)     // the other operand if one is a NaN
	fminnm = three("fminnm", "4s", 0x4ea0c400)
	fabs   = two("fabs", "4s", "4s", 0x4ea0f800)
	fneg   = two("fneg", "4s", "4s", 0x6ea0f800)

	// Halves of vectors from and to float64.
	fadd64    = three("fadd", "2d", 0x4e60d400)
	fsub64    = three("fsub", "2d", 0x4ee0d400)
	fmul64    = three("fmul", "2d", 0x6e60dc00)
	fmla64    = three("fmla", "2d", 0x4e60cc00) // d += n·m
	faddPairs = three("faddp", "2d", 0x6e60d400)
	lower64   = two("fcvtl", "2d", "2s", 0x0e617800)
	upper64   = two("fcvtl2", "2d", "4s", 0x4e617800)

	add    = three("add", "4s", 0x4ea08400)
	sub    = three("sub", "4s", 0x6ea08400)
	smax   = three("smax", "4s", 0x4ea06400)
	smin   = three("smin", "4s", 0x4ea06c00)
	above  = three("cmhi", "4s", 0x6ea03400) // of unsigned numbers
	umax   = three("umax", "4s", 0x6ea06400)
	umin   = three("umin", "4s", 0x6ea06c00)
	mul    = three("mul", "4s", 0x4ea09c00)
	isZero = two0("fcmeq", 0x4ea0d800)
	ceq    = three("cmeq", "4s", 0x6ea08c00)
	ushl   = three("ushl", "4s", 0x6ea04400) // by each lane of m; to the right if negative
	ushr   = right("ushr", "4s", 0x6f000400, 32)
	sshr   = right("sshr", "4s", 0x4f000400, 32)
	shl    = left("shl", "4s", 0x4f005400, 32)

	and     = three("and", "16b", 0x4e201c00)
	or      = three("orr", "16b", 0x4ea01c00)
	xor     = three("eor", "16b", 0x6e201c00)
	without = three("bic", "16b", 0x4e601c00) // n without the bits of m
	choose  = three("bsl", "16b", 0x6e601c00) // n where d is set, else m
	insert  = three("bit", "16b", 0x6ea01c00) // n where m is set, else d

	scvtf  = two("scvtf", "4s", "4s", 0x4e21d800)
	fcvtzs = two("fcvtzs", "4s", "4s", 0x4ea1b800)

	addBytes      = three("add", "16b", 0x4e208400)
	subBytes      = three("sub", "16b", 0x6e208400)
	fromHalf      = two("fcvtl", "4s", "4h", 0x0e217800)
	fromHalfUpper = two("fcvtl2", "4s", "8h", 0x4e217800)
	toHalf        = two("fcvtn", "4h", "4s", 0x0e216800)
	toHalfUpper   = two("fcvtn2", "8h", "4s", 0x4e216800)
	evenHalves    = three("uzp1", "8h", 0x4e401800)
	evenBytes     = three("uzp1", "16b", 0x4e001800)
	oddBytes      = three("uzp2", "16b", 0x4e005800)
	zipBytes      = three("zip1", "16b", 0x4e003800)
	zipBytes2     = three("zip2", "16b", 0x4e007800)
	zipHalves     = three("zip1", "8h", 0x4e403800)
	zipHalves2    = three("zip2", "8h", 0x4e407800)
	shlBytes      = left("shl", "16b", 0x4f005400, 8)
	ushrBytes     = right("ushr", "16b", 0x6f000400, 8)
	sshrBytes     = right("sshr", "16b", 0x4f000400, 8)
	sliBytes      = left("sli", "16b", 0x6f005400, 8) // puts n, shifted, above the lowest bits of d
	widenBytes    = two("uxtl", "8h", "8b", 0x2f08a400)
	widenHalves   = two("uxtl", "4s", "4h", 0x2f10a400)
	widenUpper    = two("uxtl2", "4s", "8h", 0x6f10a400)
)

// clear makes all lanes zero.
func clear(d vector) { xor(d, d, d) }

// dup copies a lane to all.
func dup(d, n vector, lane int) {
	word(0x4e040400|uint32(lane)<<19|uint32(n)<<5|uint32(d), "dup v%d.4s, v%d.s[%d]", d, n, lane)
}

// broadcast copies the low half of a register to all lanes, broadcastByte the low byte to all bytes.
func broadcast(d vector, r register) {
	word(0x4e040c00|uint32(r)<<5|uint32(d), "dup v%d.4s, w%d", d, int(r))
}

func broadcastByte(d vector, r register) {
	word(0x4e010c00|uint32(r)<<5|uint32(d), "dup v%d.16b, w%d", d, int(r))
}

// fmulLane multiplies by one lane of m.
func fmulLane(d, n, m vector, lane int) {
	word(0x4f809000|uint32(lane&1)<<21|uint32(lane>>1)<<11|uint32(m)<<16|uint32(n)<<5|uint32(d),
		"fmul v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane)
}

// sumAcross sets lane 0 of d to the sum of the lanes of n.
func sumAcross(d, n vector) { word(0x4eb1b800|uint32(n)<<5|uint32(d), "addv s%d, v%d.4s", d, n) }

// highHalves sets the upper halves of words of d to the first four of n, highHalvesUpper to the last four.
func highHalves(d, n vector) {
	word(0x2e613800|uint32(n)<<5|uint32(d), "shll v%d.4s, v%d.4h, #16", d, n)
}

func highHalvesUpper(d, n vector) {
	word(0x6e613800|uint32(n)<<5|uint32(d), "shll2 v%d.4s, v%d.8h, #16", d, n)
}

// upperHalves sets the first four halves of d to the upper halves of the words of n, upperHalvesUpper the last four.
func upperHalves(d, n vector) {
	word(0x0f108400|uint32(n)<<5|uint32(d), "shrn v%d.4h, v%d.4s, #16", d, n)
}

func upperHalvesUpper(d, n vector) {
	word(0x4f108400|uint32(n)<<5|uint32(d), "shrn2 v%d.8h, v%d.4s, #16", d, n)
}

// largest sets lane 0 of d to the largest of the lanes of n, which are signed; largestUnsigned the same of unsigned ones.
func largest(d, n vector) { word(0x4eb0a800|uint32(n)<<5|uint32(d), "smaxv s%d, v%d.4s", d, n) }

func largestUnsigned(d, n vector) {
	word(0x6eb0a800|uint32(n)<<5|uint32(d), "umaxv s%d, v%d.4s", d, n)
}
