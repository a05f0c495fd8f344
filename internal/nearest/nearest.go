// Package nearest finds what was likely meant by a name that is not there.
package nearest

// Name returns the name that takes the fewest edits to be matched by
// pattern; ok is false where none has anything in common with it.
func Name(pattern string, names []string) (nearest string, ok bool) {
	const longest = 1 << 10 // time is the product of the lengths
	p := []rune(pattern)
	if len(p) > longest {
		return "", false
	}
	best := len(p)
	for _, name := range names {
		if len(name) > longest {
			continue
		}
		if d := editDistance(p, []rune(name)); d < best {
			nearest, best, ok = name, d, true
		}
	}
	return nearest, ok
}

// editDistance is the least number of characters to insert, delete or replace
// until the glob pattern matches name. Its * and ? are free; a class counts as
// the characters it is written with.
func editDistance(pattern, name []rune) int {
	row := make([]int, len(name)+1) // row[j]: distance of the pattern so far from name[:j]
	for j := range row {
		row[j] = j
	}
	for _, c := range pattern {
		diagonal := row[0]
		if c != '*' {
			row[0]++
		}
		for j, n := range name {
			above := row[j+1]
			switch {
			case c == '*':
				row[j+1] = min(above, row[j])
			case c == '?' || c == n:
				row[j+1] = min(diagonal, above+1, row[j]+1)
			default:
				row[j+1] = min(diagonal, above, row[j]) + 1
			}
			diagonal = above
		}
	}
	return row[len(name)]
}
