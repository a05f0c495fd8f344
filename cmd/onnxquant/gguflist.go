package main

import (
	"onnxquant/formats/gguf"
	"onnxquant/internal/cli"
	"onnxquant/internal/summary"
	"onnxquant/onnxq/ggufmodel"
)

// listGGUF prints the contents of a GGUF file.
func listGGUF(c *cli.Console, path string, asJSON bool) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if asJSON {
		return c.JSON(ggufmodel.NewListing(f))
	}
	summary.GGUF(c.Stdout, f)
	return nil
}
