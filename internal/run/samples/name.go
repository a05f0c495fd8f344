package samples

import (
	"fmt"

	"onnxquant/internal/run/execute"
)

// Name names a sample, for errors: its number, and its file if there are several.
func (s *Samples) Name(number int) string {
	text := fmt.Sprintf("sample %d", number)
	if len(s.sources) == 1 && !s.sources[0].several() {
		return text
	}
	at := number
	for _, source := range s.sources {
		n, err := source.count(at + 1)
		if err != nil {
			return text
		}
		if at < n {
			if file := source.file(at); file != "" {
				return fmt.Sprintf("%s (%s)", text, file)
			}
			return text
		}
		at -= n
	}
	return text
}

// file implements source. Where inputs have files of their own, it is that of the input with the most.
func (a *arrays) file(number int) string {
	var most []*array
	for _, column := range a.columns {
		if len(column) > len(most) {
			most = column
		}
	}
	if samplesOf(most) == a.n {
		for _, x := range most {
			if number < x.count {
				return x.path
			}
			number -= x.count
		}
	}
	return a.path
}

// several implements source.
func (a *arrays) several() bool {
	for _, column := range a.columns {
		if len(column) > 1 {
			return true
		}
	}
	return false
}

// file implements source.
func (f *files) file(number int) (file string) {
	if f.image != nil {
		return f.paths[number]
	}
	for _, path := range f.paths {
		err := f.sound.Each(path, func(*execute.Tensor, int) error {
			if number--; number < 0 {
				return errEnough
			}
			return nil
		})
		if err != nil {
			return path
		}
	}
	return ""
}

// several implements source.
func (f *files) several() bool { return len(f.paths) > 1 }

// file implements source.
func (t *tokens) file(int) string { return t.path }

// several implements source.
func (t *tokens) several() bool { return false }

// file implements source: the ids are of no file.
func (s *sequences) file(int) string { return "" }

// several implements source.
func (s *sequences) several() bool { return false }
