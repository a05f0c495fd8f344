// Command engine measures the pure Go engine: it prints the processor seconds of each run of a model, on one thread, with the
// session open.
//
//	engine [-cpuprofile FILE] [-outputs FOLDER] SECONDS MODEL INPUTS.npz
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/work"
)

func main() {
	profile := flag.String("cpuprofile", "", "write a profile to `FILE`")
	outputs := flag.String("outputs", "", "write the elements of output N to `FOLDER`/N")
	flag.Parse()
	if err := run(*profile, *outputs, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(profile, outputs string, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: engine [-cpuprofile FILE] [-outputs FOLDER] SECONDS MODEL INPUTS.npz")
	}
	seconds, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	s, err := evaluate.Open(context.Background(), args[1])
	if err != nil {
		return err
	}
	defer s.Close()
	inputs, err := inputsOf(args[1], args[2])
	if err != nil {
		return err
	}
	for range 2 { // weights are read, and blocks of memory made
		results, err := s.Run(inputs)
		if err != nil {
			return err
		}
		if err := write(outputs, results); err != nil {
			return err
		}
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	runs, from := 0, work.Spent().Seconds()
	for start := time.Now(); runs == 0 || time.Since(start).Seconds() < seconds; runs++ {
		if _, err := s.Run(inputs); err != nil {
			return err
		}
	}
	fmt.Println((work.Spent().Seconds() - from) / float64(runs))
	return nil
}

func write(folder string, results []*execute.Tensor) error {
	if folder == "" {
		return nil
	}
	for i, t := range results {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), t.Data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func inputsOf(model, file string) (inputs []*execute.Tensor, err error) {
	m, err := modelfile.Open(model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	data, err := samples.OpenWhole(m, []string{file}, 1)
	if err != nil {
		return nil, err
	}
	for inputs, err = range data.All() {
	}
	return inputs, err
}
