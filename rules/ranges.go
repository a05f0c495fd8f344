package rules

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"

	"onnxquant/calib"
	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/regularfile"
)

// Ranges has the ranges of the activations of a model. Calibration finds them, static quantization
// needs them. In JSON:
//
//	{
//	  "version": 1,
//	  "model": {"file": "m.onnx", "sha256": "…"},
//	  "method": "minmax",
//	  "samples": 128,
//	  "tensors": {
//	    "NAME": {"min": -1.5, "max": 3.2, "typical": 0.4}
//	  },
//	  "no_range": ["MASK"]
//	}
//
// Only version, tensors and the ends of ranges are required. The name of a value in a subgraph
// begins with the path of the subgraph.
type Ranges struct {
	Source  string // file name, for messages
	Model   RangesModel
	Method  string // how the ranges were found, such as "minmax" or "percentile:99.9"
	Samples int64  // number of samples that the model was run on
	Tensors map[string]calib.Range
	Typical map[string]float64 // typical magnitude by tensor, if known: see calibrate.Ranges
	NoRange map[string]bool    // observed values without a range: infinite, NaN or empty
}

// RangesModel identifies the model of the ranges.
type RangesModel struct {
	File   string `json:"file,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the model file without its external data
}

const (
	rangesVersion = 1
	maxRangesSize = 64 << 20 // room for 400,000 tensors
)

// LoadRanges reads a document of ranges at path.
func LoadRanges(path string) (*Ranges, error) {
	source := "ranges " + path
	f, _, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRangesSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	return parseRanges(data, source)
}

// ParseRanges reads a document of ranges. Its errors name the line and the column.
func ParseRanges(data []byte) (*Ranges, error) { return parseRanges(data, "ranges") }

func parseRanges(data []byte, source string) (*Ranges, error) {
	if len(data) > maxRangesSize {
		return nil, fmt.Errorf("%s: larger than %d MiB", source, maxRangesSize>>20)
	}
	r := &Ranges{Source: source, Tensors: map[string]calib.Range{}, Typical: map[string]float64{}}
	if err := r.parse(bytes.TrimPrefix(data, []byte("\ufeff"))); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return r, nil
}

// Clone copies ranges, for changes.
func (r *Ranges) Clone() *Ranges {
	c := *r
	c.Tensors, c.Typical, c.NoRange = maps.Clone(r.Tensors), maps.Clone(r.Typical), maps.Clone(r.NoRange)
	if c.NoRange == nil {
		c.NoRange = map[string]bool{}
	}
	if c.Tensors == nil {
		c.Tensors = map[string]calib.Range{}
	}
	return &c
}

func (r *Ranges) parse(data []byte) error {
	doc, err := newJSONTokens(data)
	if err != nil {
		return err
	}
	version := 0
	given, err := doc.object("a document of ranges", func(key string, t jsonToken) (err error) {
		switch key {
		case "version":
			if version, err = t.integer(key); err == nil && version != rangesVersion {
				err = t.errorf("version %d: this program knows version %d", version, rangesVersion)
			}
		case "model":
			err = r.parseModel(doc, t)
		case "method":
			r.Method, err = t.text(key)
		case "samples":
			var n int
			n, err = t.integer(key)
			if r.Samples = int64(n); err == nil && n < 0 {
				err = t.errorf("samples: %d is negative", n)
			}
		case "tensors":
			err = r.parseTensors(doc, t)
		case "no_range":
			err = r.parseNoRange(doc, t)
		default:
			err = errUnknownKey
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !given["version"]:
		return errors.New(`it has no "version"; is it a file of ranges, as onnxquant calibrate writes it?`)
	case !given["tensors"]:
		return errors.New(`it has no "tensors"`)
	}
	return nil
}

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (r *Ranges) parseModel(doc *jsonTokens, first jsonToken) error {
	_, err := doc.fields("model", first, func(key string, t jsonToken) (err error) {
		switch key {
		case "file":
			r.Model.File, err = t.text(key)
		case "sha256":
			if r.Model.SHA256, err = t.text(key); err == nil && !sha256Text.MatchString(r.Model.SHA256) {
				err = t.errorf("sha256: want 64 hexadecimal digits in lower case")
			}
		default:
			err = errUnknownKey
		}
		return err
	})
	return err
}

func (r *Ranges) parseTensors(doc *jsonTokens, first jsonToken) error {
	_, err := doc.fields("tensors", first, func(name string, t jsonToken) error {
		var found calib.Range
		typical := 0.0
		given, err := doc.fields(msg.Quote(name), t, func(key string, t jsonToken) (err error) {
			switch key {
			case "min":
				found.Min, err = t.float("min of " + msg.Quote(name))
			case "max":
				found.Max, err = t.float("max of " + msg.Quote(name))
			case "typical":
				typical, err = t.float("typical of " + msg.Quote(name))
			default:
				err = errUnknownKey
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case !given["min"] || !given["max"]:
			return t.errorf("%s: want min and max", msg.Quote(name))
		}
		if err := cmp.Or(checkRange(found), checkTypical(typical)); err != nil {
			return t.errorf("%s: %v", msg.Quote(name), err)
		}
		r.Tensors[name] = found
		if given["typical"] {
			r.Typical[name] = typical
		}
		return nil
	})
	return err
}

func (r *Ranges) parseNoRange(doc *jsonTokens, first jsonToken) error {
	if first.value != json.Delim('[') {
		return first.errorf("no_range: want a list of names, got %s", first.what())
	}
	r.NoRange = map[string]bool{}
	for doc.dec.More() {
		name, err := doc.next().text("no_range")
		if err != nil {
			return err
		}
		r.NoRange[name] = true
	}
	doc.next() // the closing bracket
	return nil
}

// checkRange checks that a range is finite, also as float32, and that min is not above max.
func checkRange(r calib.Range) error {
	for _, v := range []float64{r.Min, r.Max} {
		if f := float64(float32(v)); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%v is not finite as a float32", v)
		}
	}
	if r.Min > r.Max {
		return fmt.Errorf("min %v is above max %v", r.Min, r.Max)
	}
	return nil
}

// checkTypical checks a typical magnitude.
func checkTypical(v float64) error {
	if !(v >= 0 && v <= math.MaxFloat32) {
		return fmt.Errorf("typical %v: want a finite number, not below 0", v)
	}
	return nil
}

// Write writes the document with one line per tensor, sorted by name.
func (r *Ranges) Write(w io.Writer) error {
	var b bytes.Buffer
	line := func(indent string, key string, value any, end string) {
		k, _ := json.Marshal(key) // strings and finite numbers can always be written
		v, _ := json.Marshal(value)
		fmt.Fprintf(&b, "%s%s: %s%s\n", indent, k, v, end)
	}
	b.WriteString("{\n")
	line("  ", "version", rangesVersion, ",")
	line("  ", "model", r.Model, ",")
	line("  ", "method", r.Method, ",")
	line("  ", "samples", r.Samples, ",")
	b.WriteString("  \"tensors\": {\n")
	names := slices.Sorted(maps.Keys(r.Tensors))
	for i, name := range names {
		if err := cmp.Or(checkRange(r.Tensors[name]), checkTypical(r.Typical[name])); err != nil {
			return fmt.Errorf("range of %s: %w", msg.Quote(name), err)
		}
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		line("    ", name, r.tensor(name), end)
	}
	b.WriteString("  }")
	if len(r.NoRange) > 0 {
		list, _ := json.Marshal(slices.Sorted(maps.Keys(r.NoRange)))
		fmt.Fprintf(&b, ",\n  \"no_range\": %s", list)
	}
	b.WriteString("\n}\n")
	_, err := w.Write(msg.EscapedJSON(b.Bytes()))
	return err
}

// rangeOf is the entry of a tensor in the document.
type rangeOf struct {
	calib.Range
	Typical *float64 `json:"typical,omitempty"`
}

func (r *Ranges) tensor(name string) rangeOf {
	found := rangeOf{Range: r.Tensors[name]}
	if typical, ok := r.Typical[name]; ok {
		found.Typical = &typical
	}
	return found
}

// TypicalOf returns the typical magnitude of the tensor with one of these names.
func (r *Ranges) TypicalOf(names ...string) (float64, bool) {
	for _, name := range names {
		if typical, ok := r.Typical[name]; ok {
			return typical, true
		}
	}
	return 0, false
}

// Of returns the range of the tensor with one of these names.
func (r *Ranges) Of(names ...string) (calib.Range, bool) {
	for _, name := range names {
		if found, ok := r.Tensors[name]; ok {
			return found, true
		}
	}
	return calib.Range{}, false
}

// Lacks reports whether the tensor with one of these names was observed and has no range.
func (r *Ranges) Lacks(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return r.NoRange[name] })
}

// Check returns an error if the ranges belong to another model. sha256 is the hash of the model
// file in hexadecimal. Ranges without a hash fit any model.
func (r *Ranges) Check(sha256 string) error {
	if r.Model.SHA256 == "" || r.Model.SHA256 == sha256 {
		return nil
	}
	return fmt.Errorf(`%s: the ranges are of another model (sha256 %.12s…, this one has %.12s…); calibrate this model, or remove "sha256" from the file to use the ranges anyway`,
		r.Source, r.Model.SHA256, sha256)
}

// Unused returns an error if a range has a name that is not in names, the values of the model.
func (r *Ranges) Unused(names []string) error {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(r.Tensors)), slices.Sorted(maps.Keys(r.NoRange))) {
		if known[name] {
			continue
		}
		message := fmt.Sprintf("%s: the model has no value %s", r.Source, msg.Quote(name))
		if near, ok := nearest.Name(name, names); ok {
			message += "; did you mean " + msg.Quote(near) + "?"
		}
		return errors.New(message)
	}
	return nil
}
