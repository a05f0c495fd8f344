// Package nearest suggests a known name for a misspelt one.
package nearest

import (
	"cmp"
	"slices"
	"strings"
)

// Name returns the name that a pattern most likely means; ok is false if there is none. It takes the
// first of: a name that differs only in -, _, . and spaces; the shortest name that begins with the
// pattern; the name with the fewest edits to a match of the glob pattern; the shortest name that
// contains the pattern. More edits than a third of the pattern's length (but one for two or three
// characters) do not count as a misspelling.
func Name(pattern string, names []string) (nearest string, ok bool) {
	for _, name := range names {
		if l := letters(name); l != "" && l == letters(pattern) {
			return name, true
		}
	}
	if all := containing(pattern, names, strings.HasPrefix); len(all) > 0 {
		return shortest(all), true
	}
	n := len([]rune(pattern))
	if name, ok := Within(min(n-1, max(1, n/3)), pattern, names); ok {
		return name, true
	}
	if all := containing(pattern, names, strings.Contains); len(all) > 0 {
		return shortest(all), true
	}
	return "", false
}

// Names is like Name, but returns all names that begin with the pattern, if they are few.
func Names(pattern string, names []string) []string {
	const few = 4
	name, ok := Name(pattern, names)
	if !ok {
		return nil
	}
	if all := containing(pattern, names, strings.HasPrefix); slices.Contains(all, name) && len(all) <= few {
		return all
	}
	return []string{name}
}

// containing returns the names that have a word in it, of three letters at least.
func containing(word string, names []string, has func(name, word string) bool) (all []string) {
	const least = 3
	if len(letters(word)) < least {
		return nil
	}
	for _, name := range names {
		if has(name, word) {
			all = append(all, name)
		}
	}
	return all
}

func shortest(names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
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
