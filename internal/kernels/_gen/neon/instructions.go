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

// two is an instruction with another arrangement of lanes for each operand.
func two(name, to, from string, bits uint32) unary {
	return func(d, n vector) {
		word(bits|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s", name, d, to, n, from)
	}
}

var (
	fadd = three("fadd", "4s", 0x4e20d400)
	fsub = three("fsub", "4s", 0x4ea0d400)
	fmul = three("fmul", "4s", 0x6e20dc00)
	fdiv = three("fdiv", "4s", 0x6e20fc00)

	xor = three("eor", "16b", 0x6e201c00)
)

// clear makes all lanes zero.
func clear(d vector) { xor(d, d, d) }

// dup copies a lane to all.
func dup(d, n vector, lane int) {
	word(0x4e040400|uint32(lane)<<19|uint32(n)<<5|uint32(d), "dup v%d.4s, v%d.s[%d]", d, n, lane)
}

// broadcast copies the low half of a register to all lanes.
func broadcast(d vector, r register) {
	word(0x4e040c00|uint32(r)<<5|uint32(d), "dup v%d.4s, w%d", d, int(r))
}

// fmulLane multiplies by one lane of m.
func fmulLane(d, n, m vector, lane int) {
	word(0x4f809000|uint32(lane&1)<<21|uint32(lane>>1)<<11|uint32(m)<<16|uint32(n)<<5|uint32(d),
		"%s", fmt.Sprintf("fmul v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane))
}
