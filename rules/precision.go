package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/regularfile"
	"onnxquant/spec"
)

// Precision has the overrides of a precision_info document: a JSON object from names of weights to
// settings.
//
//	{
//	  "layers.0.mlp.up.weight": 8,
//	  "lm_head*":      {"bits": 8, "block": -1},
//	  "model/embed*":  {"format": "float"},
//	  "*.k_proj.*":    {"precision": 8, "block_size": 32, "axis": 0}
//	}
//
// A key is the exact name of a weight or a glob. In a glob, * also matches / and . (see
// docs/precision-info.md). If several keys match, the last one in the document wins, and the others
// have no effect.
//
// An integer is a number of bits. An object takes bits, block, axis, format, algorithm and
// zero_point. precision and block_size are other spellings of bits and block. Settings that an
// entry does not mention follow the general options, so {} exempts a weight from an earlier glob.
//
// A nil Precision overrides nothing.
type Precision struct {
	source string // name of the document in messages
	keys   []precisionKey
	exact  map[string]int // key → index in keys
	only   map[string]int // the one name that a key with backslashes matches → index in keys
	globs  []int          // indices of the keys that can match several names
}

type precisionKey struct {
	pattern  string
	pos      position
	override spec.Override
}

// schemaKey is the key that names the schema of a document, for editors. It does not stand for a
// weight.
const schemaKey = "$schema"

// maxPrecisionSize leaves room for 100,000 names of 150 bytes.
const maxPrecisionSize = 16 << 20

// LoadPrecision reads the precision_info document at path.
func LoadPrecision(path string) (*Precision, error) {
	source := "precision_info " + path
	f, _, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPrecisionSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	return parsePrecision(data, source)
}

// ParsePrecision parses a precision_info document. Its errors name the line and the column, both
// counted from 1. Columns count characters.
func ParsePrecision(data []byte) (*Precision, error) {
	return parsePrecision(data, "precision_info")
}

func parsePrecision(data []byte, source string) (*Precision, error) {
	if len(data) > maxPrecisionSize {
		return nil, fmt.Errorf("%s: larger than %d MiB", source, maxPrecisionSize>>20)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // byte order mark, which some editors on Windows write
	p := &Precision{source: source, exact: map[string]int{}, only: map[string]int{}}
	err := p.parse(data)
	if err != nil && isRanges(data) {
		err = errors.New("it has ranges of activations, not settings of weights: give it by --ranges")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return p, nil
}

func isRanges(data []byte) bool {
	_, err := ParseRanges(data)
	return err == nil
}

// For returns the override of a weight, and whether there is one. A weight in a subgraph has two
// names: with and without its path.
func (p *Precision) For(names ...string) (spec.Override, bool) {
	if o := p.Shared(names...); o != nil {
		return *o, true
	}
	return spec.Override{}, false
}

// Shared is For for very many weights. All weights that one key matches share an override, which
// must not be changed. Without an override, Shared returns nil.
func (p *Precision) Shared(names ...string) *spec.Override {
	if p == nil {
		return nil
	}
	last := -1
	for _, name := range names {
		for _, keys := range []map[string]int{p.exact, p.only} {
			if i, ok := keys[name]; ok {
				last = max(last, i)
			}
		}
		for _, i := range slices.Backward(p.globs) {
			if i <= last {
				break
			}
			if matchGlob(p.keys[i].pattern, name) {
				last = i
			}
		}
	}
	if last < 0 {
		return nil
	}
	return &p.keys[last].override
}

// Unused returns an error if a key matches none of names, the weights of a model. The key is
// probably misspelt, so the error suggests the nearest name.
func (p *Precision) Unused(names []string) error {
	if p == nil {
		return nil
	}
	var patterns []string
	for _, k := range p.keys {
		patterns = append(patterns, k.pattern)
	}
	var unused []precisionKey
	for _, i := range unusedOf(patterns, names) {
		unused = append(unused, p.keys[i])
	}
	if len(unused) == 0 {
		return nil
	}
	key := unused[0]
	message := p.source + ": "
	if key.pos != (position{}) {
		message += key.pos.String() + ": "
	}
	if n := len(unused) - 1; n > 0 {
		message += fmt.Sprintf("%q and %s match no weight", key.pattern, english.Plural(n, "other key", ""))
	} else {
		message += fmt.Sprintf("%q matches no weight", key.pattern)
	}
	if near, ok := nearest.Name(key.pattern, names); ok {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return errors.New(message)
}

func (p *Precision) parse(data []byte) error {
	doc, err := newJSONTokens(data)
	if err != nil {
		return err
	}
	if first := doc.next(); first.value != json.Delim('{') {
		return first.errorf("want an object from weight names to settings, got %s", first.what())
	}
	for name, key := range doc.keys() {
		if name == schemaKey {
			if _, err := doc.next().text(name); err != nil {
				return err
			}
			continue
		}
		if err := p.checkPattern(name); err != nil {
			return key.at(err)
		}
		override, err := parseOverride(doc)
		if err != nil {
			return err
		}
		p.add(precisionKey{name, key.pos, override})
	}
	return nil
}

func (p *Precision) add(k precisionKey) {
	p.exact[k.pattern] = len(p.keys)
	switch only, one := onlyName(k.pattern); {
	case !one:
		p.globs = append(p.globs, len(p.keys))
	case only != k.pattern:
		p.only[only] = len(p.keys)
	}
	p.keys = append(p.keys, k)
}

// checkPattern refuses a key that can have no effect.
func (p *Precision) checkPattern(pattern string) error {
	if pattern == "" {
		return errors.New("an empty name matches no weight")
	}
	if _, ok := p.exact[pattern]; ok {
		return fmt.Errorf("%q is given twice", pattern)
	}
	return nil
}

// parseOverride parses the value of a key: bits, or an object of settings.
func parseOverride(doc *jsonTokens) (o spec.Override, err error) {
	first := doc.next()
	if _, ok := first.value.(json.Number); ok {
		err = setOverride(&o, "bits", "bits", first)
		return o, err
	}
	if first.value != json.Delim('{') {
		return o, first.errorf(`want a number of bits, or an object such as {"format": "int8"}, got %s`, first.what())
	}
	spelt := map[string]string{} // setting → how the document spells it
	for name, key := range doc.keys() {
		setting, ok := settings[name]
		if !ok {
			text := fmt.Sprintf("setting %q is not known (known: bits, block, axis, format, algorithm, zero_point, scale_type)", name)
			if near, ok := nearest.Name(strings.ToLower(name), slices.Sorted(maps.Keys(settings))); ok {
				text += "; did you mean " + near + "?"
			}
			return o, key.errorf("%s", text)
		}
		switch before, twice := spelt[setting]; {
		case twice && before == name:
			return o, key.errorf("%s is given twice", name)
		case twice:
			return o, key.errorf("%s and %s are one setting: give one of them", before, name)
		}
		spelt[setting] = name
		if err := setOverride(&o, setting, name, doc.next()); err != nil {
			return o, err
		}
	}
	return o, first.at(checkTogether(o))
}

// checkOverride checks settings that come from code, not from a document.
func checkOverride(o spec.Override) error {
	if o.Bits != nil {
		if err := checkBits("bits", *o.Bits); err != nil {
			return err
		}
	}
	if o.Block != nil {
		if err := checkBlock("block", *o.Block); err != nil {
			return err
		}
	}
	if o.Format != nil {
		if _, err := spec.ParseFormat(string(*o.Format)); err != nil {
			return err
		}
	}
	if o.Algorithm != nil {
		if _, err := spec.ParseAlgorithm(string(*o.Algorithm)); err != nil {
			return err
		}
	}
	if o.ScaleType != nil {
		if _, err := spec.ParseScaleType(string(*o.ScaleType)); err != nil {
			return err
		}
	}
	return checkTogether(o)
}

// checkTogether checks that settings do not contradict each other.
func checkTogether(o spec.Override) error {
	if o.Format == nil {
		return nil
	}
	if *o.Format == spec.Float {
		if o != (spec.Override{Format: o.Format}) {
			return errors.New("format float leaves a weight as it is: it cannot have other settings")
		}
		return nil
	}
	var bits, block int
	var zeroPoint bool
	spec.SetIf(&bits, o.Bits)
	spec.SetIf(&block, o.Block)
	spec.SetIf(&zeroPoint, o.ZeroPoint)
	_, _, err := spec.Resolve(bits, *o.Format, block, zeroPoint)
	return err
}

func checkBits(name string, bits int) error {
	if err := spec.CheckBits(bits); err != nil {
		return fmt.Errorf("%s %d: %w", name, bits, err)
	}
	return nil
}

func checkBlock(name string, block int) error {
	if block < 2 && block != spec.PerChannel {
		return fmt.Errorf("%s %d: want at least 2, or -1 for one scale per channel", name, block)
	}
	return nil
}

// settings maps each spelling to the setting it means.
var settings = map[string]string{
	"bits": "bits", "precision": "bits",
	"block": "block", "block_size": "block",
	"axis":       "axis",
	"format":     "format",
	"algorithm":  "algorithm",
	"zero_point": "zero_point",
	"scale_type": "scale_type",
}

// setOverride sets a setting to v. name is how the document spells the setting.
func setOverride(o *spec.Override, setting, name string, v jsonToken) (err error) {
	switch setting {
	case "bits":
		var bits int
		if bits, err = v.integer(name); err == nil {
			err = v.at(checkBits(name, bits))
		}
		o.Bits = &bits
	case "block":
		var block int
		if block, err = v.integer(name); err == nil {
			err = v.at(checkBlock(name, block))
		}
		o.Block = &block
	case "axis":
		var axis int
		axis, err = v.integer(name)
		o.Axis = &axis
	case "format":
		var text string
		var format spec.Format
		if text, err = v.text(name); err == nil {
			format, err = spec.ParseFormat(strings.ToLower(text))
			err = v.at(err)
		}
		o.Format = &format
	case "algorithm":
		var text string
		var algorithm spec.Algorithm
		if text, err = v.text(name); err == nil {
			algorithm, err = spec.ParseAlgorithm(strings.ToLower(text))
			err = v.at(err)
		}
		o.Algorithm = &algorithm
	case "scale_type":
		var text string
		var scales spec.ScaleType
		if text, err = v.text(name); err == nil {
			scales, err = spec.ParseScaleType(strings.ToLower(text))
			err = v.at(err)
		}
		o.ScaleType = &scales
	case "zero_point":
		var on bool
		on, err = v.bool(name)
		o.ZeroPoint = &on
	}
	return err
}
