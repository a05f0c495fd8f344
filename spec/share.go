package spec

import (
	"errors"
	"strconv"
	"strings"
)

// Share is one of N shares of work, I of 0 to N-1. The zero value is all of it.
type Share struct{ I, N int }

// ParseShare reads I/N, such as 0/4.
func ParseShare(text string) (Share, error) {
	first, second, _ := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	s := Share{i, n}
	if errors.Join(err1, err2) != nil || n < 1 || !s.IsValid() {
		return Share{}, errors.New("want I/N, such as 0/4, 1/4, 2/4 and 3/4 for four parts")
	}
	return s, nil
}

// IsValid reports whether there is such a share. The zero value is valid.
func (s Share) IsValid() bool { return s == Share{} || s.I >= 0 && s.I < s.N }

// String is the text that ParseShare reads.
func (s Share) String() string { return strconv.Itoa(s.I) + "/" + strconv.Itoa(s.N) }
