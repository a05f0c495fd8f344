package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
		got := doubleDashes(new(convertFlags).flagSet(), c.args)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.args, diff)
		}
		if diff := cmp.Diff(before, c.args); diff != "" {
			t.Errorf("the arguments themselves changed: %s", diff)
		}
	}
}
