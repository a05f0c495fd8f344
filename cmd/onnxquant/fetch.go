package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"onnxquant/internal/cli"
	"onnxquant/internal/remote"
	"onnxquant/spec"
)

// fetch puts a remote model into a folder beside out, and returns its path. remove removes the folder. After an error the folder
// stays: the next attempt goes on from there.
func (f *convertFlags) fetch(ctx context.Context, c *cli.Console, in, out string) (path string, remove func(), err error) {
	remove = func() {}
	if out != "" {
		if _, err := os.Stat(filepath.Dir(out)); err != nil {
			return "", remove, err
		}
	}
	folder := remote.FolderFor(out)
	if f.dryRun {
		if folder, err = os.MkdirTemp("", "onnxquant-fetch-*"); err != nil {
			return "", remove, err
		}
		defer func() {
			if err != nil {
				os.RemoveAll(folder)
			}
		}()
	}
	made, err := remote.New().Fetch(ctx, in, folder, f.dryRun && f.structureOnly())
	if err != nil {
		return "", remove, err
	}
	if f.origin = made.Files[0].Name; !f.quiet {
		cli.PrintFacts(c.Stderr, []cli.Fact{{Label: "fetched", Text: fmt.Sprintf("%s, %s", cli.Printable(f.origin), cli.ByteSize(made.Size()))}})
	}
	return made.Path, func() { os.RemoveAll(folder) }, nil
}

// structureOnly reports whether a plan needs no contents of tensors.
func (f *convertFlags) structureOnly() bool {
	return !f.opts.Fold && !f.float16 && !f.bfloat16 && f.opts.Activations != spec.Static && f.auto == 0 && len(f.paths)+len(f.weightsFrom) == 0
}
