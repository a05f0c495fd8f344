package main

import (
	"os"
	"strings"

	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// completions returns values of a flag that depend on the other words of the command line; nil for
// other flags.
func completions(flag string, words []string) []string {
	list := []string{}
	switch flag {
	case "include", "exclude":
		for _, name := range weightNames(words) {
			list = append(list, rules.PatternOf(name))
		}
	case "candidates":
		for _, f := range spec.Formats() {
			list = append(list, string(f))
		}
	default:
		return nil
	}
	return list
}

// weightNames lists the float tensors of the first model on the command line.
func weightNames(words []string) (names []string) {
	for _, word := range words {
		if strings.HasPrefix(word, "-") {
			continue
		}
		if info, err := os.Stat(word); err != nil || !info.Mode().IsRegular() {
			continue
		}
		m, err := onnxq.Open(word)
		if err != nil {
			continue
		}
		defer m.Close()
		tensors, err := m.Tensors()
		if err != nil {
			return nil
		}
		for _, t := range tensors {
			if len(t.Shape) > 1 {
				names = append(names, t.Name)
			}
		}
		return names
	}
	return nil
}
