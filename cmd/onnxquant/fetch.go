package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"onnxquant/internal/cli"
	"onnxquant/internal/remote"
	"onnxquant/onnxq"
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

// stage returns a path for an output that becomes objects. remove removes its folder.
func (f *convertFlags) stage(out string) (path string, remove func(), err error) {
	if err := remote.CheckObject(out); err != nil {
		return "", nil, cli.Usagef("%v", err)
	}
	folder, err := os.MkdirTemp("", "onnxquant-out-*")
	if err != nil {
		return "", nil, err
	}
	f.object = out
	return filepath.Join(folder, remote.Base(out)), func() { os.RemoveAll(folder) }, nil
}

// published writes the output to objects if it has to become some, and returns the report that names them.
func (f *convertFlags) published(ctx context.Context, made *onnxq.Report) (*onnxq.Report, error) {
	if f.object == "" {
		return made, nil
	}
	written, err := remote.New().Publish(ctx, f.object, filesOf(made))
	if err != nil {
		return nil, err
	}
	told := *made
	told.Output, told.MoreData = written[0].Name, nil
	for i, data := range written[1:] {
		if i == 0 {
			told.Data = data.Name
		} else {
			told.MoreData = append(told.MoreData, data.Name)
		}
	}
	return &told, nil
}

// fetched returns paths of models on this machine. Remote ones are put into a folder, which remove removes.
func fetched(ctx context.Context, names []string, structure bool) (paths []string, remove func(), err error) {
	paths, remove = slices.Clone(names), func() {}
	if !slices.ContainsFunc(names, remote.Is) {
		return paths, remove, nil
	}
	folder, err := os.MkdirTemp("", "onnxquant-fetch-*")
	if err != nil {
		return nil, remove, err
	}
	remove = func() { os.RemoveAll(folder) }
	client := remote.New()
	for i, name := range names {
		if !remote.Is(name) {
			continue
		}
		made, err := client.Fetch(ctx, name, filepath.Join(folder, strconv.Itoa(i)), structure)
		if err != nil {
			remove()
			return nil, remove, err
		}
		paths[i] = made.Path
	}
	return paths, remove, nil
}

// structureOnly reports whether a plan needs no contents of tensors.
func (f *convertFlags) structureOnly() bool {
	return !f.opts.Fold && !f.float16 && !f.bfloat16 && f.opts.Activations != spec.Static && f.auto == 0 && len(f.paths)+len(f.weightsFrom) == 0
}
