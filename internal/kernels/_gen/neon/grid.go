package main

import (
	"fmt"
	"math"
)

// gridRow is the size of what the 16 blocks of a search have one of.
const gridRow = 64

// The fields of the parent's GridSearch, each with a number for each block.
const (
	perUnit = iota
	firstInverse
	distance
	middle
	slope
	bestInverse
	bestZero
	sumXX
	sumXQ
	sumQQ
	mostXQ
	tryInverse0
	tryZero0
	tryInverse1
	tryZero1
)

// table writes numbers to memory.
func table(name string, numbers ...float32) {
	fmt.Fprintln(&code)
	for i, v := range numbers {
		fmt.Fprintf(&code, "DATA %s<>+%d(SB)/4, $%#08x\n", name, 4*i, math.Float32bits(v))
	}
	fmt.Fprintf(&code, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(numbers))
}

// eachOf writes a loop over the first n numbers of a table, step at a time. The body gets the place of a number.
func eachOf(table string, n register, step int, body func(number register)) {
	p, left := general(), general()
	line("MOVD $%s<>(SB), %v", table, p)
	line("MOVD %v, %v", n, left)
	loop(table, left, step, func() {
		body(p)
		line("ADD $%d, %v", 4*step, p)
	})
}

// number loads a number into all lanes.
func number(p register, offset int) vector {
	v := vectors(1)[0]
	line("FMOVS %d(%v), F%d", offset, p, v)
	dup(v, v, 0)
	return v
}

// eachGridRow writes a loop over eight elements side by side of each row.
func eachGridRow(name string, x, rows register, body func(v []vector)) {
	v := vectors(2)
	scratch(func() {
		p, left := general(), general()
		line("MOVD %v, %v", x, p)
		line("MOVD %v, %v", rows, left)
		loop(name, left, 1, func() {
			loadAt(p, 0, v...)
			line("ADD $%d, %v", gridRow, p)
			body(v)
		})
	})
}

// fields are vectors in memory, two for each field.
type fields struct {
	at  register
	row int // bytes of a field
}

func (f fields) load(field int, v []vector)  { loadAt(f.at, f.row*field, v...) }
func (f fields) store(field int, v []vector) { storeAt(f.at, f.row*field, v...) }

func (f fields) loaded(field int) []vector {
	v := vectors(2)
	f.load(field, v)
	return v
}

// keep replaces a field by v where a mask is set.
func (f fields) keep(v []vector, field int, mask []vector) {
	scratch(func() {
		old := f.loaded(field)
		for i, old := range old {
			insert(old, v[i], mask[i])
		}
		f.store(field, old)
	})
}

// grid writes the parent's GridSearch.findGo, for eight blocks.
type grid struct {
	fields
	x, rows              register
	steps, least, toZero vector
}

func gridSearch() {
	table("gridInverses", 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5)
	table("gridMoves", 0, -1, 1)
	table("gridRounds", 1, 0.25)
	table("gridAround", 0.25, 0.5, 0.75)
	function("gridSearch", "searches for eight blocks.",
		"fields, x *float32, rows, moves, tries, rounds int, steps, leastZero, toZero float32")
	g := &grid{fields{param("fields"), gridRow}, param("x"), param("rows"), floatParam("steps"), floatParam("leastZero"), floatParam("toZero")}
	for _, part := range []func(){g.squares, g.first, g.beside, g.around} {
		scratch(part)
	}
	end()
}

func (g *grid) squares() {
	sum, unit := vectors(2), g.loaded(perUnit)
	for _, s := range sum {
		clear(s)
	}
	eachGridRow("squares", g.x, g.rows, func(v []vector) {
		for i, v := range v {
			fmul(v, v, unit[i])
			fmul(v, v, v)
			fadd(sum[i], sum[i], v)
		}
	})
	g.store(sumXX, sum)
}

func (g *grid) first() {
	tries := param("tries")
	eachOf("gridMoves", param("moves"), 1, func(move register) {
		eachOf("gridInverses", tries, 2, func(inverse register) {
			for i, field := range []int{tryInverse0, tryInverse1} {
				scratch(func() {
					nth, by := number(inverse, 4*i), number(move, 0)
					t, from, z, slope := g.loaded(distance), g.loaded(firstInverse), g.loaded(middle), g.loaded(slope)
					for j, t := range t {
						fmul(t, t, nth)
						fadd(t, t, from[j])
						fmul(slope[j], slope[j], t)
						fsub(z[j], z[j], slope[j])
						frintn(z[j], z[j])
						fadd(z[j], z[j], by)
					}
					g.store(field, t)
					g.setZero(z, field+1)
				})
			}
			g.try("first")
		})
	})
}

// clamp limits v. A NaN becomes the least number.
func clamp(v, least, most vector) {
	fmaxnm(v, v, least)
	fminnm(v, v, most)
}

// setZero sets a field to zero points within their limits.
func (g *grid) setZero(z []vector, field int) {
	for _, z := range z {
		clamp(z, g.least, g.toZero)
	}
	g.store(field, z)
}

func (g *grid) beside() {
	for i, field := range []int{tryInverse0, tryInverse1} {
		scratch(func() {
			g.store(field, g.loaded(bestInverse))
			z, move := g.loaded(bestZero), all(math.Float32bits(float32(2*i-1)))
			for _, z := range z {
				fadd(z, z, move)
			}
			g.setZero(z, field+1)
		})
	}
	g.try("beside")
}

func (g *grid) around() {
	center, three := vectors(2), general()
	line("MOVD $3, %v", three)
	eachOf("gridRounds", param("rounds"), 1, func(part register) {
		g.load(bestInverse, center)
		eachOf("gridAround", three, 1, func(off register) {
			scratch(func() {
				by, rest, d, z, t := number(off, 0), number(part, 0), g.loaded(distance), g.loaded(bestZero), vectors(2)
				fmul(by, by, rest)
				for i, d := range d {
					fmul(d, d, by)
					fsub(t[i], center[i], d)
					fadd(d, center[i], d)
				}
				g.store(tryInverse0, t)
				g.store(tryInverse1, d)
				g.store(tryZero0, z)
				g.store(tryZero1, z)
			})
			g.try("around")
		})
	})
}

// try keeps what of two tries is better than all before.
func (g *grid) try(name string) {
	scratch(func() {
		fields := []int{tryInverse0, tryInverse1}
		var inverse, from, to, xq, qq [2][]vector
		for i, field := range fields {
			inverse[i], from[i], to[i], xq[i], qq[i] = g.loaded(field), vectors(2), vectors(2), vectors(2), vectors(2)
			scratch(func() {
				unit, z := g.loaded(perUnit), g.loaded(field+1)
				for j := range unit {
					fmul(inverse[i][j], inverse[i][j], unit[j])
					clear(from[i][j])
					fsub(from[i][j], from[i][j], z[j])
					fsub(to[i][j], g.steps, z[j])
					clear(xq[i][j])
					clear(qq[i][j])
				}
			})
		}
		scratch(func() {
			q := vectors(2)
			eachGridRow(name+"Row", g.x, g.rows, func(v []vector) {
				for j, v := range v {
					for i, q := range q {
						fmul(q, v, inverse[i][j])
						frintn(q, q)
						clamp(q, from[i][j], to[i][j])
						fmla(qq[i][j], q, q) // exact: fusing changes nothing
						fmul(q, q, v)
						fadd(xq[i][j], xq[i][j], q)
					}
				}
			})
		})
		for i, field := range fields {
			scratch(func() {
				c, better := from[i], to[i]
				unit, most := g.loaded(perUnit), g.loaded(mostXQ)
				for j := range unit {
					fmul(xq[i][j], xq[i][j], unit[j])
					fmul(c[j], xq[i][j], xq[i][j])
					fdiv(c[j], c[j], qq[i][j])
					fcgt(better[j], c[j], most[j])
				}
				keep := func(v []vector, field int) { g.keep(v, field, better) }
				keep(c, mostXQ)
				keep(xq[i], sumXQ)
				keep(qq[i], sumQQ)
				g.load(field, unit)
				keep(unit, bestInverse)
				g.load(field+1, unit)
				keep(unit, bestZero)
			})
		}
	})
}

// addGridErrors adds up the errors of eight blocks side by side. least and greatest limit the magic sums.
func addGridErrors() {
	function("addGridErrors", "takes eight blocks; least and greatest limit the magic sums.",
		"e *float64, x *float32, rows int, grid, scale *float32, least, greatest *int32, typ int")
	e, x, rows := param("e"), param("x"), param("rows")
	operands := map[string][]vector{}
	for _, name := range []string{"grid", "scale", "least", "greatest"} {
		v := vectors(2)
		scratch(func() { loadAt(param(name), 0, v...) })
		operands[name] = v
	}
	magic, sums := all(magicBits), vectors(4)
	for i := 0; i < 4; i += 2 {
		loadAt(e, 16*i, sums[i:i+2]...)
	}
	eachType("", func(name string, t numberType) {
		constants := forRound[t]
		if t == float16Type {
			constants = append(constants, forHalfQuotient...)
		}
		r, y, d, w := newRounder(t, constants...), vectors(1)[0], vectors(2), vectors(2)
		eachGridRow(name+"Row", x, rows, func(v []vector) {
			for i, v := range v {
				fdiv(y, v, operands["grid"][i])
				if t == float16Type {
					r.halfQuotient(y)
				}
				fadd(y, y, magic)
				smax(y, y, operands["least"][i])
				smin(y, y, operands["greatest"][i])
				fsub(y, y, magic)
				fmul(y, y, operands["scale"][i])
				r.round(y)
				for half, widened := range []unary{lower64, upper64} {
					widened(d[half], v)
					widened(w[half], y)
					fsub64(d[half], d[half], w[half])
					fmul64(d[half], d[half], d[half])
					fadd64(sums[2*i+half], sums[2*i+half], d[half])
				}
			}
		})
		for i := 0; i < 4; i += 2 {
			storeAt(e, 16*i, sums[i:i+2]...)
		}
		end()
	})
}
