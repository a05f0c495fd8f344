package verify

import (
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/msg"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// flag is a flag of a command, with its value. A flag without one may have another, empty value.
type flag struct{ name, value string }

// flagsOf reads the flags of a record.
func flagsOf(options string) (flags []flag) {
	for rest := options; rest != ""; {
		var f flag
		rest = strings.TrimLeft(rest, " ")
		end := strings.IndexAny(rest, " =")
		if end < 0 {
			end = len(rest)
		}
		f.name, rest = rest[:end], rest[end:]
		if !strings.HasPrefix(f.name, "--") {
			return flags // no record of ours
		}
		if f.name = f.name[2:]; rest != "" && !strings.HasPrefix(rest, " --") {
			sign := rest[:1]
			rest = rest[1:]
			text, err := strconv.QuotedPrefix(rest)
			if err != nil {
				text, _, _ = strings.Cut(rest, " ")
			}
			rest = rest[len(text):]
			if f.value = text; err == nil {
				f.value, _ = strconv.Unquote(text)
			}
			f.value = sign + msg.ShellQuoted(f.value)
		}
		flags = append(flags, f)
	}
	return flags
}

// Flags that say what others replace.
var (
	formatFlags     = []string{"bits", "format", "auto", "precision-info", "scale-rule"} // of --bits
	autoFlags       = []string{"auto"}                                                   // which does not go with --exclude of what it chose
	codeFlags       = []string{"block", "algorithm", "range", "tune"}                    // of --block and --algorithm
	activationFlags = []string{"activations", "activation-type", "symmetric-activations", "coarse-activations", "reduce-range", "ranges", "max-kl", "min-sqnr", "max-drop", "no-balance", "no-fold", "ops", "block"}
)

// codedOps lists the operators that read weights with codes, of those that a conversion quantizes.
func codedOps(r *restyle.Report) (ops []string) {
	if r == nil {
		return nil
	}
	for _, w := range r.Weights {
		for _, reader := range w.Consumers {
			if op, _, _ := strings.Cut(reader, ":"); slices.Contains(onnxq.KnownOps(), op) && !slices.Contains(ops, op) {
				ops = append(ops, op)
			}
		}
	}
	slices.Sort(ops)
	return ops
}

// ownFlags are the flags that OUT was made with, without some, in front of other flags.
func (v *verifier) ownFlags(flags string, without ...[]string) string {
	var made []spec.Step
	for _, s := range v.record {
		if s.Command == "convert" {
			made = append(made, s)
		}
	}
	replaced := append(slices.Concat(without...), "external-data-name") // that belongs to OUT
	if others := slices.ContainsFunc(v.ops, func(op string) bool { return op != "MatMul" && op != "Gemm" }); others && (len(made) != 1 || slices.Contains(replaced, "ops")) {
		flags += " --ops " + strings.Join(v.ops, ",")
	}
	if len(made) != 1 { // the flags of several conversions do not go together
		return flags
	}
	var words []string
	for _, f := range flagsOf(made[0].Options) {
		if !slices.Contains(replaced, f.name) {
			words = append(words, "--"+f.name+f.value)
		}
	}
	return strings.Join(append(words, flags), " ")
}
