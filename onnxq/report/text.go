package report

import (
	"fmt"
	"strconv"
	"strings"

	"onnxquant/internal/msg"
	"onnxquant/onnxq/inspect"
	"onnxquant/spec"
)

// byteText writes a size with three digits, as the script of the page does.
func byteText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for ; v >= 1024 && unit < 4; unit++ {
		v /= 1024
	}
	decimals := 0
	for limit := 99.95; limit > 9 && v < limit; limit /= 10 {
		decimals++
	}
	return fmt.Sprintf("%.*f %s", decimals, v, []string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

func percentText(x float64) string {
	switch p := 100 * x; {
	case p == 0:
		return "0 %"
	case p >= 99.95:
		return fmt.Sprintf("%.0f %%", p)
	case p >= 9.995:
		return fmt.Sprintf("%.1f %%", p)
	case p >= 0.9995:
		return fmt.Sprintf("%.2f %%", p)
	case p >= 0.001:
		return fmt.Sprintf("%.3f %%", p)
	default:
		return fmt.Sprintf("%.1e %%", p)
	}
}

func decibelText(x float64) string {
	if x >= exact {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", x)
}

// clipped shortens a name: its middle becomes ….
func clipped(s string) string {
	r := []rune(s)
	if len(r) <= mostRunes {
		return s
	}
	return string(r[:mostRunes/2]) + "…" + string(r[len(r)-mostRunes/2:])
}

func firstOf(n int, list []string) []string {
	var first []string
	for _, s := range list[:min(n, len(list))] {
		first = append(first, clipped(s))
	}
	if len(list) > n {
		first = append(first, fmt.Sprintf("%d more", len(list)-n))
	}
	return first
}

// named is the name of a weight, behind the node that reads it if the name says nothing.
func named(name, node string) string {
	if node == "" {
		return name
	}
	return node + " (" + name + ")"
}

// flagsOf writes a candidate such as int4:32:zp as flags of a conversion. Other names stay.
func flagsOf(name string) string {
	c, err := spec.ParseCandidate(name)
	if err != nil || c.Format == spec.Float {
		return name
	}
	flags := "--format " + string(c.Format)
	if c.Block != 0 {
		flags += fmt.Sprintf(" --block %d", c.Block)
	}
	if c.ZeroPoint {
		flags += " --zero-point"
	}
	if c.ScaleType != "" {
		flags += " --scale-type " + string(c.ScaleType)
	}
	return flags
}

func joined(names []string) string { return strings.Join(firstOf(mostListed, names), ", ") }

func shapeText(dims []int64) string { return msg.Shape(dims, "×") }

func opsetText(list []inspect.OpsetVersion) string {
	var text []string
	for _, o := range list {
		text = append(text, strings.TrimSpace(o.Domain+" "+strconv.FormatInt(o.Version, 10)))
	}
	return joined(text)
}
