// Command mkmodel writes a test model to a file.
//
//	mkmodel [-seed N] KIND FILE
//	mkmodel [-seed N] [-layers L] [-k K] [-n N] [-float16] [-transb] [-embedded] big FILE
//
// Without arguments it lists the kinds. A big model is L MatMuls of K×N, with the
// weights in FILE.data.
package main

import (
	"flag"
	"fmt"
	"os"

	"onnxquant/testmodels"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the weights")
	big := testmodels.Big{}
	flag.IntVar(&big.Layers, "layers", 24, "number of MatMuls of a big model")
	flag.IntVar(&big.K, "k", 4096, "rows of the weights of a big model")
	flag.IntVar(&big.N, "n", 11008, "columns of the weights of a big model")
	flag.BoolVar(&big.Float16, "float16", false, "float16 instead of float32 in a big model")
	flag.BoolVar(&big.TransB, "transb", false, "Gemms with transB=1 instead of MatMuls in a big model")
	flag.BoolVar(&big.Embedded, "embedded", false, "weights in FILE, at most 2 GiB, in a big model")
	flag.Usage = usage
	flag.Parse()
	big.Seed = *seed

	if flag.NArg() != 2 {
		usage()
		os.Exit(2)
	}
	if err := write(flag.Arg(0), flag.Arg(1), big); err != nil {
		fmt.Fprintln(os.Stderr, "mkmodel:", err)
		os.Exit(1)
	}
}

func write(kind, path string, big testmodels.Big) error {
	if kind == "big" {
		if min(big.Layers, big.K, big.N) < 1 {
			return fmt.Errorf("a big model needs at least one layer, row and column")
		}
		return testmodels.WriteBig(path, big)
	}
	m, err := testmodels.Build(kind, big.Seed)
	if err != nil {
		return err
	}
	return m.Write(path)
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: mkmodel [flags] KIND FILE")
	flag.PrintDefaults()
	fmt.Fprintf(os.Stderr, "kinds:\n  %-12s MatMuls of K×N, their weights in FILE.data\n", "big")
	for _, k := range testmodels.Kinds() {
		fmt.Fprintf(os.Stderr, "  %-12s %s\n", k.Name, k.What)
	}
}
