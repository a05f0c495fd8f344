package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/onnxq"
	"onnxquant/onnxq/attest"
	"onnxquant/onnxq/checkpoint"
	"onnxquant/onnxq/verify"
)

// gateFlags say which outputs are written, and what is written about them for others to check.
type gateFlags struct {
	gate   verify.Verdict // "": not judged
	attest string
	judged *verify.Judged // what the gate found

	model, material []attest.Before // for the statement: the files of IN, and data
}

func (f *gateFlags) define(fs *pflag.FlagSet) {
	fs.Var(gateValue{&f.gate}, "gate",
		"compare OUT with IN, as onnxquant verify does, and fail,\nwithout OUT, if the verdict is worse than `VERDICT`, such as\nsound, also written 'verdict>=sound'; with --calib on its data")
	fs.StringVar(&f.attest, "attest", "",
		"write to `FILE` an in-toto statement with SLSA provenance:\nhashes of OUT, IN and data, the flags and the version; sign it\nwith your own tools")
}

// gateValue is the value of --gate.
type gateValue struct{ value *verify.Verdict }

func (g gateValue) Set(s string) (err error) { *g.value, err = verify.ParseGate(s); return err }
func (g gateValue) String() string           { return "" }
func (g gateValue) Type() string             { return "VERDICT" }
func (g gateValue) Values() (names []string) {
	for _, v := range verify.Gates {
		names = append(names, string(v))
	}
	return names
}

// check finds problems before the conversion.
func (f *gateFlags) check() error {
	return cli.CheckReplace(f.attest, "is no statement of provenance; choose another file for --attest", func() bool {
		b, err := os.ReadFile(f.attest)
		return err != nil || bytes.Contains(b, []byte(attest.StatementType))
	})
}

// try judges the output after another trial of it, which may be nil.
func (f *convertFlags) try(in string, other func(context.Context, string) error) func(context.Context, string) error {
	if f.gate == "" {
		return other
	}
	notRequired := false
	opts := verify.Options{ORTLibrary: f.library, RequireOutputs: &notRequired}
	if !slices.Contains(f.paths, "self") {
		opts.Inputs = f.paths
	}
	judge := verify.Gate(in, f.gate, opts, func(j *verify.Judged) { f.judged = j })
	return func(ctx context.Context, out string) error {
		if other != nil {
			if err := other(ctx, out); err != nil {
				return err
			}
		}
		return judge(ctx, out)
	}
}

// conversionReport is the JSON of a conversion.
type conversionReport struct {
	*onnxq.Report
	Judged *verify.Judged `json:"judged,omitempty"`              // with --gate
	Lacked []string       `json:"not_in_weights_from,omitempty"` // weights that keep the values of IN, with --weights-from
}

// refusedReport is the JSON of a conversion whose output the gate refused.
type refusedReport struct {
	Judged *verify.Judged `json:"judged"`
}

// refused prints what the gate found, and returns the error that stands for the exit status.
func (f *convertFlags) refused(c *cli.Console, err error) error {
	if !errors.Is(err, verify.ErrGate) {
		return err
	}
	if f.json {
		if err := c.JSON(refusedReport{f.judged}); err != nil {
			return err
		}
	}
	c.Fail(err)
	return cli.ErrPoor
}

// note notes what goes into a conversion, before anything of it is read.
func (f *convertFlags) note(in string) error {
	if f.attest == "" {
		return nil
	}
	data, err := attest.DataFiles(f.dataFiles())
	f.model, f.material = attest.AsBefore(attest.ModelFiles(in)), attest.AsBefore(data)
	return err
}

// statement writes the statement of provenance.
func (f *convertFlags) statement(ctx context.Context, fs *pflag.FlagSet, made *onnxq.Report) (err error) {
	if f.attest == "" {
		return nil
	}
	s := step("convert", fs, false)
	m := attest.Made{Version: s.Version, Command: s.Command, Options: s.Options, Origin: f.origin}
	if m.Outputs, err = attest.HashAll(ctx, made.Files()); err != nil {
		return err
	}
	if m.Model, err = attest.HashSame(ctx, f.model); err != nil {
		return err
	}
	if m.Data, err = attest.HashSame(ctx, f.material); err != nil {
		return err
	}
	text, err := m.Statement()
	if err != nil {
		return err
	}
	return cli.WriteFile(f.attest, text)
}

// dataFiles lists the files and folders besides the model that the flags name and the output depends on.
func (f *convertFlags) dataFiles() []string {
	var weights []string
	for _, path := range f.weightsFrom {
		files, err := checkpoint.Files(path)
		if err != nil {
			files = []string{path} // the conversion fails, by name
		}
		weights = append(weights, files...)
	}
	names := slices.Concat(f.paths, weights, []string{f.names, f.imatrix, f.precisionInfo, f.ranges})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || strings.EqualFold(name, "self") })
}
