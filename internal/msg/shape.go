package msg

import (
	"strconv"
	"strings"
)

// Shape writes the dims of a tensor, with a sign between them.
func Shape(dims []int64, times string) string {
	if len(dims) == 0 {
		return "scalar"
	}
	var text []string
	for _, d := range dims {
		text = append(text, strconv.FormatInt(d, 10))
	}
	return strings.Join(text, times)
}
