package main

// nearestOf is the parent's Nearest: numbers found by a search tree of four levels.
type nearestOf struct {
	tree, values            []vector // 16 words each
	codes                   vector   // 16 bytes
	two, sixteen            vector
	fours, bytes            vector // what makes the places of four bytes of the number of a word
	node, limit, comparison vector
}

// newNearestOf uses what the sums use for themselves, too.
func newNearestOf(s *sums) valuer {
	n := &nearestOf{tree: vectors(4), values: vectors(4), codes: vectors(1)[0], node: s.half[0], limit: s.half[1], comparison: vectors(1)[0]}
	scratch(func() {
		words := vectors(4)
		for i, v := range [][]vector{n.tree, n.values, words} {
			p := param([]string{"tree", "values", "codes"}[i])
			loadAt(p, 0, v[:2]...)
			loadAt(p, 32, v[2:]...)
		}
		evenHalves(words[0], words[0], words[1])
		evenHalves(words[2], words[2], words[3])
		evenBytes(n.codes, words[0], words[2])
	})
	n.two, n.sixteen, n.fours, n.bytes = all(2), all(16), all(0x04040404), all(0x03020100)
	return n
}

func (n *nearestOf) scaled(vector) {}

// look sets d to words of a table, by their numbers.
func (n *nearestOf) look(d vector, table []vector, i vector) {
	mul(d, i, n.fours)
	add(d, d, n.bytes)
	lookUp(d, table, d)
}

func (n *nearestOf) value(v, s vector, codes *vector) {
	fdiv(v, v, s)
	isZero(n.comparison, s) // of an element 0
	without(v, v, n.comparison)
	dup(n.limit, n.tree[0], 1) // the root
	fcgt(n.comparison, v, n.limit)
	sub(n.node, n.two, n.comparison)
	for range 3 {
		n.look(n.limit, n.tree, n.node)
		fcgt(n.comparison, v, n.limit)
		add(n.node, n.node, n.node)
		sub(n.node, n.node, n.comparison)
	}
	sub(n.node, n.node, n.sixteen)
	n.look(v, n.values, n.node)
	if codes != nil {
		lookUp(n.node, []vector{n.codes}, n.node)
		*codes = n.node
	}
}
