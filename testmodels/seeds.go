package testmodels

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io"
	"iter"
)

//go:embed seeds.zip
var seeds []byte

// Seeds yields the names and bytes of small models, valid and invalid ones, as seeds for
// fuzzing. They come from the corpora; make seeds picks them.
func Seeds() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		z, err := zip.NewReader(bytes.NewReader(seeds), int64(len(seeds)))
		if err != nil {
			panic(err) // seeds.zip is part of this program
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				panic(err)
			}
			model, err := io.ReadAll(r)
			if err != nil {
				panic(err)
			}
			if r.Close(); !yield(f.Name, model) {
				return
			}
		}
	}
}
