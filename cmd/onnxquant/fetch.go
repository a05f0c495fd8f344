package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// stage returns a path for an output that becomes objects, once the store has answered. remove removes its folder, unless err is that
// the output could not be sent.
func (f *convertFlags) stage(ctx context.Context, c *cli.Console, in, out string) (path string, remove func(err error), err error) {
	switch {
	case f.resume:
		return "", nil, cli.Usagef("%s: --resume is for an OUT that is a file: no progress is kept for an object", cli.Printable(out))
	case remote.Same(in, out):
		return "", nil, cli.Usagef("%s: IN and OUT are the same object", cli.Printable(remote.Plain(out)))
	}
	if !f.dryRun {
		if f.target, err = remote.New().Target(ctx, out, f.opts.ExternalDataName); err != nil {
			return "", nil, err
		}
		c.WarnAll(f.target.Notes)
		f.target.Notes = nil
		if f.opts.ExternalData != spec.ExternalNever {
			f.opts.ExternalDataName = f.target.Data
		}
	}
	folder, err := os.MkdirTemp("", "onnxquant-out-*")
	if err != nil {
		return "", nil, err
	}
	f.object = out
	return filepath.Join(folder, remote.Base(out)), func(err error) {
		if !errors.Is(err, errUnsent) {
			os.RemoveAll(folder)
		}
	}, nil
}

// errUnsent is wrapped by the error about an output that could not be sent, and is kept.
var errUnsent = errors.New("it was made, but not sent")

// published writes the output to objects if it has to become some, and returns the report that names them.
func (f *convertFlags) published(ctx context.Context, c *cli.Console, made *onnxq.Report) (*onnxq.Report, error) {
	if f.object == "" {
		return made, nil
	}
	written, err := f.target.Publish(ctx, made.Files())
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (%w: it is kept as %s)", err, errUnsent, made.Output)
	}
	c.WarnAll(f.target.Notes)
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

// unkept is an error of a conversion to an object without the words that progress is kept: that is beside a file alone.
func unkept(err error) error {
	if cause, ok := onnxq.Interruption(err); ok {
		return fmt.Errorf("%w; OUT is an object, for which no progress is kept", cause)
	}
	return err
}

// structureOnly reports whether a plan needs no contents of tensors.
func (f *convertFlags) structureOnly() bool {
	return !f.opts.Fold && !f.float16 && !f.bfloat16 && f.opts.Activations != spec.Static && f.auto == 0 && len(f.paths)+len(f.weightsFrom) == 0
}
