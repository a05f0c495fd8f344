package sensitivity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/msg"
	"onnxquant/onnxq"
)

// Summary says what stays in float and why, what the loss is, and what the ranges are of: a label and a text each.
func (f *StaticFit) Summary() (facts [][2]string) {
	if f == nil {
		return nil
	}
	add := func(label, format string, args ...any) {
		facts = append(facts, [2]string{label, fmt.Sprintf(format, args...)})
	}
	const label = "activations"
	switch {
	case f.Of == 0:
		add(label, "none was measured: no activation has codes, or no output is of a floating-point type")
	case len(f.Float) == 0 && len(f.Wide) > 0:
		add(label, "%s of their own scale in 8 bits, but for those of 16", english.Plural(f.Of, "activation", ""))
	case len(f.Float) == 0:
		add(label, "%s of their own scale, all in codes", english.Plural(f.Of, "activation", ""))
	default:
		add(label, "%d of %s stay in float, because of their loss: %s", len(f.Float), english.Plural(f.Of, "activation", ""), msg.ListNames(slices.Clone(f.Float)))
	}
	if n := len(f.Wide); n > 0 {
		add(label, "%s of 16 bits, because 8 bits cost too much: %s", english.Plural(n, "activation", ""), msg.ListNames(slices.Clone(f.Wide)))
	}
	if n := len(f.Coarse); n > 0 {
		add(label, "%s in float, because codes are too coarse for the range", english.Plural(n, "more", "more"))
	}
	if n := len(f.Inner); n > 0 {
		add(label, "%s inside of written-out normalizations, Gelu and HardSwish in float", english.Plural(n, "value", ""))
	}
	if n := len(f.NoRange); n > 0 {
		add(label, "%s without a range in float", english.Plural(n, "value", ""))
	}
	if f.Of > 0 {
		add("loss", "%s on %s%s", lossText(f.Loss, f.Limits), heldOut(f.HeldOut), limitText(f.Limits, f.Limit))
		if len(f.Float)+len(f.Wide) > 0 && f.Weights != (onnxq.OutputLoss{}) {
			add("loss", "all in codes: %s; codes for weights alone: %s", lossText(f.All, f.Limits), lossText(f.Weights, f.Limits))
		}
	}
	if f.FloatProducts != nil {
		add(label, "codes go into products alone, unless convolutions make them: damage %.2g, around all operators %.2g", f.FloatProducts.Damage, f.AllOperators.Damage)
	}
	if f.PerTensor != nil {
		add("weights", "a scale for each channel: damage %.2g, with one scale for each weight %.2g", f.PerChannel.Damage, f.PerTensor.Damage)
	}
	if text := f.atRunTimeText(); text != "" {
		add("dynamic", "%s", text)
	}
	if f.wider {
		add("weights", "codes of 8 bits, because the limits do not hold with 7; sums of products can overflow on this processor, which has no VNNI")
	}
	if f.EightBits != nil {
		exact := ""
		if f.exact {
			exact = " by exact sums"
		}
		add("weights", "codes of 7 bits: damage %.2g%s, with 8 bits %.2g: sums of products can overflow on this processor, which has no VNNI", f.SevenBits.Damage, exact, f.EightBits.Damage)
	}
	if f.Balance != nil {
		add("balance", "%s", f.balanceText())
	}
	if f.Codes != nil {
		add("codes", "%s", f.codesText())
	}
	add("ranges", "%s, %s", f.Options.Ranges.Method, english.Plural(f.Samples, "sample", ""))
	if f.MinMax != nil {
		add("ranges", "clipped: %s; damage without clipping %.2g, with it %.2g", f.clipped(), f.MinMax.Damage, f.All.Damage)
	}
	return facts
}

// lossText writes what was measured. Without distributions, the largest element means something only to a user who limits it.
func lossText(x onnxq.OutputLoss, given Limits) string {
	parts := []string{fmt.Sprintf("damage %.2g", x.Damage)}
	if x.SQNR != nil {
		parts = append(parts, fmt.Sprintf("SQNR %.1f dB", *x.SQNR))
	}
	if x.KL != nil {
		parts = append(parts, fmt.Sprintf("KL %.2g", *x.KL))
	}
	if x.Drop != nil && (x.KL != nil || given.Drop != nil) {
		parts = append(parts, fmt.Sprintf("%.3g %% changed decisions", 100**x.Drop))
	}
	return strings.Join(parts, ", ")
}

func limitText(given Limits, limit float64) string {
	if given.given() {
		return " (limit: " + given.flags() + ")"
	}
	return fmt.Sprintf(" (limit of the damage %.2g)", limit)
}

func heldOut(n int) string {
	if n == 0 {
		return "the same samples"
	}
	return english.Plural(n, "held-out sample", "")
}

// Summary says which weights are decoded and why, and what the loss is: a label and a text each.
func (f *DynamicFit) Summary() (facts [][2]string) {
	add := func(label, format string, args ...any) {
		facts = append(facts, [2]string{label, fmt.Sprintf(format, args...)})
	}
	const label = "activations"
	switch of := english.Plural(f.Of, "weight", ""); {
	case f.Of == 0:
		add(label, "no operator of a weight can compute with codes")
		return facts
	case f.Loss == (onnxq.OutputLoss{}) && !f.Met:
		add(label, "quantized for %s; none was measured: no output is of a floating-point type", of)
		return facts
	case len(f.Decoded) == 0:
		add(label, "quantized at run time for all %s", of)
	default:
		add(label, "%d of %s are multiplied in float, because of their loss: %s", len(f.Decoded), of, msg.ListNames(slices.Clone(f.Decoded)))
	}
	if f.EightBits != nil {
		add("weights", "%s: damage with a scale for each channel %.2g, with 7 bits %.2g, with one scale for each product %.2g; sums of products overflow on this processor, which has no VNNI",
			f.setting(), f.EightBits.Damage, f.SevenBits.Damage, f.PerTensor.Damage)
	}
	add("loss", "%s on %s%s", lossText(f.Loss, f.Limits), heldOut(f.HeldOut), limitText(f.Limits, f.Limit))
	if len(f.Decoded) > 0 {
		add("loss", "all in codes: %s; codes for weights alone: %s", lossText(f.All, f.Limits), lossText(f.Weights, f.Limits))
	}
	return facts
}

// setting names the form of weights that was chosen.
func (f *DynamicFit) setting() string {
	if f.Options.ReduceRange {
		return "codes of 7 bits"
	}
	return "one scale for each weight of a product"
}
