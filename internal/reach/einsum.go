package reach

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// einsum: each axis has a letter in the equation; letters missing in the result are summed
// over. It is a matrix product if another operand has the letter too.
func einsum(n *onnxpb.NodeProto, input, rank int) (axes []int, why string) {
	if len(n.Input) > maxOperands {
		return nil, fmt.Sprintf("no matrix product: it has %d operands", len(n.Input))
	}
	equation := string(graph.Attribute(n, "equation").GetS())
	no := fmt.Sprintf("no matrix product: %s", msg.Quote(equation))
	terms, result, ok := parseEinsum(equation)
	if !ok || input >= len(terms) {
		return nil, no
	}
	term, others := terms[input], slices.Concat(terms[:input], terms[input+1:])
	letters := strings.Replace(term, ellipsis, "", 1)
	before, _, dots := strings.Cut(term, ellipsis)
	hidden := rank - len(letters) // axes of the ellipsis
	if hidden < 0 || !dots && hidden > 0 || dots && !strings.Contains(result, ellipsis) {
		return nil, no
	}
	for i, letter := range letters {
		inside := func(t string) bool { return strings.ContainsRune(t, letter) }
		switch {
		case strings.Count(letters, string(letter)) > 1: // a diagonal
			return nil, no
		case inside(result):
		case !slices.ContainsFunc(others, inside): // summed up by itself
			return nil, no
		case i >= len(before):
			axes = append(axes, i+hidden)
		default:
			axes = append(axes, i)
		}
	}
	if len(axes) == 0 {
		return nil, no
	}
	return axes, ""
}

const ellipsis = "..."

// maxOperands is more operands than a matrix product has.
const maxOperands = 16

// parseEinsum splits an equation into the letters of each operand and of the result.
// Without an arrow the result has the letters that occur once, sorted.
func parseEinsum(equation string) (terms []string, result string, ok bool) {
	equation = strings.ReplaceAll(equation, " ", "")
	left, result, arrow := strings.Cut(equation, "->")
	terms = strings.Split(left, ",")
	if !arrow {
		letters := []rune(strings.ReplaceAll(strings.Join(terms, ""), ".", ""))
		slices.Sort(letters)
		var once []rune
		for i, l := range letters {
			if (i == 0 || letters[i-1] != l) && (i+1 == len(letters) || letters[i+1] != l) {
				once = append(once, l)
			}
		}
		result = string(once)
		if strings.Contains(left, ellipsis) {
			result = ellipsis + result
		}
	}
	for _, t := range append(slices.Clone(terms), result) {
		for _, l := range strings.Replace(t, ellipsis, "", 1) {
			if (l|0x20) < 'a' || (l|0x20) > 'z' {
				return nil, "", false
			}
		}
	}
	return terms, result, true
}
