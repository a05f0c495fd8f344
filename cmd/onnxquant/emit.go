package main

import (
	"encoding/json"

	"onnxquant/internal/cli"
	"onnxquant/rules"
)

// checkEmit returns an error if a precision_info cannot or must not be written to path. "" stands for none.
func checkEmit(path string) error {
	return cli.CheckReplace(path, "is not a precision_info; choose another file for --emit", func() bool {
		_, err := rules.LoadPrecision(path)
		return err == nil
	})
}

// emit writes a precision_info to path, completely or not at all.
func emit(path string, p *rules.Precision) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return cli.WriteFile(path, append(raw, '\n'))
}
