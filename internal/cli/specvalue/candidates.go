package specvalue

import (
	"slices"
	"strings"

	"onnxquant/internal/cli"
	"onnxquant/spec"
)

// Candidates parses the list of --candidates.
func Candidates(texts []string) (list []spec.Candidate, err error) {
	for _, text := range texts {
		c, err := spec.ParseCandidate(strings.ToLower(strings.TrimSpace(text)))
		if err != nil {
			return nil, cli.Usagef("--candidates: %v", err)
		}
		list = append(list, c)
	}
	if len(list) > 0 && !slices.ContainsFunc(list, func(c spec.Candidate) bool { return c.Format != spec.Float }) {
		return nil, cli.Usagef("--candidates float: every weight may stay in float anyway; name formats to compare it with")
	}
	return list, nil
}
