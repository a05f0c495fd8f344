package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"onnxquant/testmodels"
)

func TestMain(m *testing.M) {
	commands := map[string]func(){"onnxquant": main}
	maps.Copy(commands, handicapped)
	testscript.Main(m, commands)
}

// The scripts have commands of their own:
//
//	mkmodel KIND FILE        writes a model of package testmodels
//	mknpy FILE SHAPE X…      writes a float32 .npy file; a shape is like 2x3
//	atmost BYTES FILE        fails if a file is larger
//	status N COMMAND [ARG…]  runs a command, which must exit with status N
//
// and $NL and $ESC for the characters that a script cannot hold, and $TINYGPT for a small language model.
func TestScripts(t *testing.T) {
	tinygpt, err := filepath.Abs("../../testmodels/tinygpt/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NL", "\n")
			env.Setenv("ESC", "\x1b")
			env.Setenv("TINYGPT", tinygpt)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mkmodel": makeModel,
			"mknpy":   makeArray,
			"status":  checkStatus,
			"atmost":  checkSize,
		},
	})
}

// checkSize fails if a file is larger than so many bytes.
func checkSize(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: atmost BYTES FILE")
	}
	most, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if info.Size() > most {
		ts.Fatalf("%s has %d bytes, more than %d", args[1], info.Size(), most)
	}
}

func makeModel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mkmodel KIND FILE")
	}
	m, err := testmodels.Build(args[0], 1)
	ts.Check(err)
	ts.Check(m.Write(ts.MkAbs(args[1])))
}

func makeArray(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mknpy FILE SHAPE X…")
	}
	var elements []float32
	for _, text := range args[2:] {
		x, err := strconv.ParseFloat(text, 32)
		ts.Check(err)
		elements = append(elements, float32(x))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), array("<f4", args[1], elements), 0o666))
}

// array is a .npy file of numbers of a type such as <f4, and of a shape such as 2x3.
func array(typ, shape string, elements any) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }\n", typ, strings.ReplaceAll(shape, "x", ", "))
	raw := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	raw, err := binary.Append(append(raw, header...), binary.LittleEndian, elements)
	if err != nil {
		panic(err)
	}
	return raw
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
