package main

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"onnxquant/testmodels"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"onnxquant": main})
}

// The scripts have two commands of their own:
//
//	mkmodel KIND FILE        writes a model of package testmodels
//	status N COMMAND [ARG…]  runs a command, which must exit with status N
//
// and $NL and $ESC for the characters that a script cannot hold.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NL", "\n")
			env.Setenv("ESC", "\x1b")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mkmodel": makeModel,
			"status":  checkStatus,
		},
	})
}

func makeModel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mkmodel KIND FILE")
	}
	m, err := testmodels.Build(args[0], 1)
	ts.Check(err)
	ts.Check(m.Write(ts.MkAbs(args[1])))
}

func checkStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}
