// Package nearest suggests a known name for a misspelt one.
package nearest

import "strings"

// Name returns the name with the fewest edits to a match of the glob pattern; ok is false if
// all names need more edits than a third of the pattern's length, but one in two or three
// characters: it is no misspelling of them. A name that differs in -, _, . and spaces alone is the
// nearest, then one that the pattern begins. Without any, it is the shortest one that contains the pattern.
func Name(pattern string, names []string) (nearest string, ok bool) {
	word := letters(pattern)
	for _, name := range names {
		if word != "" && word == letters(name) {
			return name, true
		}
	}
	if name, ok := containing(pattern, names, strings.HasPrefix); ok {
		return name, true
	}
	n := len([]rune(pattern))
	if name, ok := Within(min(n-1, max(1, n/3)), pattern, names); ok {
		return name, true
	}
	return containing(pattern, names, strings.Contains)
}

// containing returns the shortest name that has a word in it, of three letters at least.
func containing(word string, names []string, has func(name, word string) bool) (shortest string, ok bool) {
	const least = 3
	for _, name := range names {
		if len(letters(word)) >= least && has(name, word) && (!ok || len(name) < len(shortest)) {
			shortest, ok = name, true
		}
	}
	return shortest, ok
}

// letters is a name without punctuation.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_. ", r) {
			return -1
		}
		return r
	}, name)
}

// Within is like Name, for at most the given number of edits.
func Within(edits int, pattern string, names []string) (nearest string, ok bool) {
	const maxLength = 1 << 10 // time is proportional to the product of the lengths
	p := []rune(pattern)
	if len(p) > maxLength {
		return "", false
	}
	best := edits + 1
	for _, name := range names {
		if len(name) > maxLength {
			continue
		}
		if d := editDistance(p, []rune(name)); d < best {
			nearest, best, ok = name, d, true
		}
	}
	return nearest, ok
}

// editDistance returns the least number of characters to insert, delete or replace
// until the glob pattern matches name. * and ? match for free; a class such as [a-z]
// counts as literal characters.
func editDistance(pattern, name []rune) int {
	row := make([]int, len(name)+1) // row[j]: distance from the pattern so far to name[:j]
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
