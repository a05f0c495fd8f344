package main

import (
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Usage texts of flags that several commands have.
const (
	quietUsage   = "print only errors, warnings and the requested output"
	dryRunUsage  = "write nothing; print the plan for each tensor"
	ortLibUsage  = "shared library of ONNX Runtime, a `FILE` (default: search\nthe usual places)"
	imatrixUsage = "importance matrix, a `FILE` written by llama-imatrix"
)

// reportFlags are the flags for the output of a command about the file it writes.
type reportFlags struct {
	json, quiet, verbose, help bool
	force                      bool // only in commands that call defineForce
}

func (f *reportFlags) define(fs *pflag.FlagSet, jsonUsage, verboseUsage string) {
	fs.BoolVar(&f.json, "json", false, jsonUsage)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, verboseUsage)
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
}

func (f *reportFlags) check() error {
	if f.quiet && f.verbose {
		return cli.Usagef("--quiet and --verbose cannot be combined")
	}
	return nil
}

func defineExternalData(fs *pflag.FlagSet, when *spec.ExternalData, name *string, shard *int64) {
	fs.Var(cli.Choice[spec.ExternalData]{Value: when, Allowed: []spec.ExternalData{spec.ExternalAuto, spec.ExternalAlways, spec.ExternalNever}, Kind: "WHEN"}, "external-data",
		"write tensors to OUT.data: always, never, or auto: only if\nOUT would exceed 2 GiB (default auto)")
	fs.StringVar(name, "external-data-name", "",
		"`NAME` of the file of external data (default OUT.data)")
	fs.Var(cli.ByteCount{Value: shard}, "shard-size",
		"write external data to files of at most this size, called\nNAME, NAME_1, NAME_2 and so on; a larger tensor has a file of\nits own (default: one file; with --target ort-web files below\n2 GiB)")
}

func definePage(fs *pflag.FlagSet, page *string) {
	fs.StringVar(page, "report", "", "write a page about the result to `FILE`, as onnxquant report\ndoes; this also tries other formats for comparison")
}

// leastMemory is the least that --memory takes: less would be a number without its unit.
const leastMemory = 1 << 10

func defineResources(fs *pflag.FlagSet, threads *int, memory *int64) {
	fs.VarP(cli.NotNegative(threads), "threads", "j",
		"number of threads (default: one per CPU)")
	fs.Var(cli.ByteCount{Value: memory, Least: leastMemory}, "memory",
		"total memory for buffers of tensors, such as 32MiB\n(default 64MiB; --calib takes more for a layer that needs it,\nup to half of the machine's); ONNX Runtime takes its own")
}

func defineNoFoldBias(fs *pflag.FlagSet, noFold *bool) {
	fs.BoolVar(noFold, "no-fold-bias", false,
		"MatMulNBits gets no bias, an Add behind it adds it: for runtimes\nwhose MatMulNBits takes none, such as the older WebGPU kernels\nof ONNX Runtime Web (JSEP)")
}

func defineNoVerify(fs *pflag.FlagSet, noVerify *bool) {
	fs.BoolVar(noVerify, "no-verify", false, "do not read OUT back to check it")
}

// defineForce is for commands that write OUT.
func (f *reportFlags) defineForce(fs *pflag.FlagSet) {
	fs.BoolVar(&f.force, "force", false, "replace OUT also if it is read-only, a file of another kind, or\na folder in which all is of an earlier conversion or written again")
}

// checkForce refuses to replace what only --force replaces, see cli.CheckForce.
func (f *reportFlags) checkForce(out, kind string, inputs ...string) error {
	if f.force {
		return nil
	}
	return cli.CheckForce(out, kind, inputs...)
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
