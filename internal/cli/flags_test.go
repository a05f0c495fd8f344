package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestDoubleDashes(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"-bits", "4", "in", "out"}, []string{"--bits", "4", "in", "out"}},
		{[]string{"--bits", "4", "-block=-1"}, []string{"--bits", "4", "--block=-1"}},
		{[]string{"-block", "-1", "-strict"}, []string{"--block", "-1", "--strict"}},
		{[]string{"--block", "-1", "-strict"}, []string{"--block", "-1", "--strict"}},
		{[]string{"-include", "-bits", "-bits", "4"}, []string{"--include", "-bits", "--bits", "4"}},
		{[]string{"-include=-bits", "-bits"}, []string{"--include=-bits", "--bits"}},
		{[]string{"-strict", "-bits"}, []string{"--strict", "--bits"}},
		{[]string{"-strict=false", "-bits"}, []string{"--strict=false", "--bits"}},
		{[]string{"-bits", "4", "--", "-bits"}, []string{"--bits", "4", "--", "-bits"}},
		{[]string{"-include", "--", "-bits"}, []string{"--include", "--", "--bits"}},
		{[]string{"-h", "-help", "-bitz", "---bits", "-", ""}, []string{"-h", "--help", "--bitz", "---bits", "-", ""}},
		{[]string{"-b", "-bits", "-bits", "4"}, []string{"-b", "-bits", "--bits", "4"}},
		{[]string{"-b4", "-bits", "4"}, []string{"-b4", "--bits", "4"}},
		{[]string{"-zx", "-bits", "-bits", "4"}, []string{"-zx", "-bits", "--bits", "4"}},
		{[]string{"-zq", "-bits", "4"}, []string{"-zq", "--bits", "4"}},
		{[]string{"-g=-1", "-g-1", "-fq4_k"}, []string{"-g=-1", "-g-1", "-fq4_k"}},
		{[]string{"-fp16", "-symmetric", "-nf4"}, []string{"--fp16", "--symmetric", "--nf4"}},
	} {
		before := append([]string(nil), c.args...)
		got := sample().doubleDashes(sampleFlags(), c.args)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.args, diff)
		}
		if diff := cmp.Diff(before, c.args); diff != "" {
			t.Errorf("the arguments themselves changed: %s", diff)
		}
	}
}

// sampleFlags are flags of each kind.
func sampleFlags() *pflag.FlagSet {
	fs := NewFlagSet()
	fs.IntP("bits", "b", 4, "")
	fs.IntP("block", "g", 128, "")
	fs.StringP("format", "f", "", "")
	fs.StringSliceP("include", "i", nil, "")
	fs.StringSliceP("exclude", "x", nil, "")
	fs.BoolP("zero-point", "z", false, "")
	fs.BoolP("quiet", "q", false, "")
	fs.BoolP("help", "h", false, "")
	fs.Bool("strict", false, "")
	fs.Bool("float16", false, "")
	return fs
}

// sample is a program with these flags, and hints.
func sample() *App {
	return &App{
		Main:      Command{Flags: sampleFlags},
		FlagHints: map[string]string{"fp16": "--float16 does it", "symmetric": "codes are symmetric"},
		Meaning: func(_ *pflag.FlagSet, name string) string {
			if name == "nf4" {
				return "it is --format nf4"
			}
			return ""
		},
	}
}
