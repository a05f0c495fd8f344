package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/modelfile"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// Usage texts of flags that several commands have.
const (
	quietUsage   = "print only errors, warnings and the requested output"
	helpUsage    = "print this help"
	dryRunUsage  = "write nothing; print the plan for each tensor"
	imatrixUsage = "importance matrix, a `FILE` written by llama-imatrix"
)

// reportFlags are the flags for what a command prints about the file it writes.
type reportFlags struct {
	json, quiet, verbose, help bool
	force                      bool // only in commands that call defineForce
}

func (f *reportFlags) define(fs *pflag.FlagSet, jsonUsage, verboseUsage string) {
	fs.BoolVar(&f.json, "json", false, jsonUsage)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, verboseUsage)
	fs.BoolVarP(&f.help, "help", "h", false, helpUsage)
}

func (f *reportFlags) check() error {
	if f.quiet && f.verbose {
		return usagef("--quiet and --verbose cannot be combined")
	}
	return nil
}

func defineExternalData(fs *pflag.FlagSet, when *spec.ExternalData, name *string, shard *int64) {
	fs.Var(choice[spec.ExternalData]{when, []spec.ExternalData{spec.ExternalAuto, spec.ExternalAlways, spec.ExternalNever}, "WHEN"}, "external-data",
		"write tensors to OUT.data: always, never, or auto: only if\nOUT would exceed 2 GiB (default auto)")
	fs.StringVar(name, "external-data-name", "",
		"`NAME` of the file of external data (default OUT.data)")
	fs.Var(byteCount{value: shard}, "shard-size",
		"write external data to files of at most this size, called\nNAME, NAME_1, NAME_2 and so on; a larger tensor has a file of\nits own (default: one file; with --target ort-web files below\n2 GiB)")
}

func definePage(fs *pflag.FlagSet, page *string) {
	fs.StringVar(page, "report", "", "write a page about the result to `FILE`, as onnxquant report\ndoes; this also tries other formats for comparison")
}

// leastMemory is the least that --memory takes: less would be a number without its unit.
const leastMemory = 1 << 10

func defineResources(fs *pflag.FlagSet, threads *int, memory *int64) {
	fs.VarP(notNegative(threads), "threads", "j",
		"number of threads (default: one per CPU)")
	fs.Var(byteCount{memory, leastMemory}, "memory",
		"total memory for buffers of tensors, such as 32MiB\n(default 64MiB); ONNX Runtime, for --calib, takes its own")
}

func defineNoFoldBias(fs *pflag.FlagSet, noFold *bool) {
	fs.BoolVar(noFold, "no-fold-bias", false,
		"MatMulNBits gets no bias, an Add behind it adds it: for runtimes\nwhose MatMulNBits takes none (--target ort-web implies it)")
}

func defineNoVerify(fs *pflag.FlagSet, noVerify *bool) {
	fs.BoolVar(noVerify, "no-verify", false, "do not read OUT back to check it")
}

// defineForce is for commands that write OUT.
func (f *reportFlags) defineForce(fs *pflag.FlagSet) {
	fs.BoolVar(&f.force, "force", false, "replace OUT also if it is read-only, a file of another kind, or\na folder in which all is of an earlier conversion or written again")
}

// checkForce refuses to replace a read-only file, or its external data, and a file of another kind than
// what is written, without --force. Renaming would replace a read-only one: that takes no permission to
// write to the file itself. An input is refused later, by a message that does not advise --force.
func (f *reportFlags) checkForce(out, kind string, inputs ...string) error {
	if f.force {
		return nil
	}
	for _, path := range []string{out, out + ".data"} {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || isOneOf(info, inputs) {
			continue
		}
		if info.Mode()&0o200 == 0 {
			return fmt.Errorf("%s is read-only; --force replaces it", path)
		}
		if is := modelfile.Kind(path); path == out && is != "" && is != kind {
			return fmt.Errorf("%s is %s, which %s would replace; choose another name, or --force", printable(path), is, kind)
		}
	}
	return nil
}

// isOneOf reports whether a file is one of those at paths.
func isOneOf(file os.FileInfo, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && os.SameFile(file, info)
	})
}

// inOut returns the input and output file of a command. With dryRun the output may be
// absent.
func inOut(fs *pflag.FlagSet, dryRun bool) (in, out string, err error) {
	args := fs.Args()
	for _, name := range args {
		switch name {
		case "":
			return "", "", usagef("a file name is empty")
		case "-":
			return "", "", usagef("- for standard input or output is not supported; for a file named -, write ./-")
		}
	}
	switch {
	case len(args) == 0:
		return "", "", usagef("no input file given")
	case len(args) == 1 && dryRun:
		return args[0], "", nil
	case len(args) == 1:
		text := cmp.Or(taken(fs), "; onnxquant inspect "+shellQuoted(args[0])+" shows what it holds")
		return "", "", usagef("no output file given after %s%s", args[0], text)
	case len(args) > 2:
		return "", "", usagef("want one input and one output file, got %d files; what is %s?", len(args), unexpected(args))
	}
	return args[0], args[1], nil
}

// wantFile refuses a folder as the output of one model, and says what name is meant. ext is that of
// the output.
func wantFile(in, out, ext string) error {
	folder, err := os.Stat(out)
	if err != nil || !folder.IsDir() {
		return nil
	}
	base := filepath.Base(in)
	name := filepath.Join(out, strings.TrimSuffix(base, filepath.Ext(base))+ext)
	if _, err := os.Stat(name); err == nil {
		return fmt.Errorf("%s: it is a folder; name a new file in it", out)
	}
	return fmt.Errorf("%s: it is a folder; name a file in it, such as %s", out, name)
}

// unexpected returns the argument that is hardly a file, or the third.
func unexpected(args []string) string {
	for _, arg := range args {
		if _, err := os.Stat(arg); err != nil && filepath.Ext(arg) == "" {
			return arg
		}
	}
	return args[2]
}

// wrongCount says that a command takes another number of files.
func wrongCount(takes string, fs *pflag.FlagSet) error {
	return usagef("%s, got %s%s", takes, english.Plural(fs.NArg(), "file", ""), taken(fs))
}

// taken names a flag that took a model as its value: its own is missing.
func taken(fs *pflag.FlagSet) (text string) {
	fs.Visit(func(f *pflag.Flag) {
		for _, value := range f.Annotations[given] {
			if strings.EqualFold(filepath.Ext(value), ".onnx") && f.NoOptDefVal == "" {
				text = fmt.Sprintf("; %s is the value of --%s", value, f.Name)
			}
		}
	})
	return text
}

// loadNames reads the files of --names and --imatrix; "" stands for none.
func loadNames(names, imatrix string) (n *rules.Names, i *rules.Importance, err error) {
	if names != "" {
		if n, err = rules.LoadNames(names); err != nil {
			return nil, nil, err
		}
	}
	if imatrix != "" {
		i, err = rules.LoadImportance(imatrix)
	}
	return n, i, err
}
