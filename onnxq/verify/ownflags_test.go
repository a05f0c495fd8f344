package verify

import (
	"slices"
	"strings"
	"testing"

	"onnxquant/spec"
)

// The flags of OUT stay in a hint, unless it replaces them.
func TestOwnFlags(t *testing.T) {
	options := `--auto 5MiB --external-data always --external-data-name out.bin --bits 2 --block -1 --calib "my data.npz" --exclude "lm*" --exclude x --keep-io-types=false --ops MatMul,Gather --zero-point`
	v := &verifier{record: []spec.Step{{Command: "convert", Options: options}}}
	for _, c := range []struct {
		flags   string
		without [][]string
		want    string
	}{
		{"--exclude w", [][]string{autoFlags}, `--external-data always --bits 2 --block -1 --calib 'my data.npz' --exclude 'lm*' --exclude x --keep-io-types=false --ops MatMul,Gather --zero-point --exclude w`},
		{"--bits 8", [][]string{formatFlags}, `--external-data always --block -1 --calib 'my data.npz' --exclude 'lm*' --exclude x --keep-io-types=false --ops MatMul,Gather --zero-point --bits 8`},
		{"--bits 4 --block 32", [][]string{formatFlags, codeFlags}, `--external-data always --calib 'my data.npz' --exclude 'lm*' --exclude x --keep-io-types=false --ops MatMul,Gather --zero-point --bits 4 --block 32`},
		{"--bits 8 --activations weights", [][]string{formatFlags, activationFlags}, `--external-data always --calib 'my data.npz' --exclude 'lm*' --exclude x --keep-io-types=false --zero-point --bits 8 --activations weights`},
	} {
		if got := v.ownFlags(c.flags, c.without...); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
	v.ops = []string{"Conv", "Gemm"}
	if got := v.ownFlags("--bits 8", autoFlags, activationFlags); !strings.HasSuffix(got, " --bits 8 --ops Conv,Gemm") {
		t.Errorf("own --ops: %s", got)
	}
	if got := v.ownFlags("--bits 8"); strings.Contains(got, "Conv") {
		t.Errorf("the --ops of OUT stay: %s", got)
	}
	v.ops = nil
	v.record = append(v.record, v.record[0])
	if got := v.ownFlags("--bits 8"); got != "--bits 8" {
		t.Errorf("two conversions: %s", got)
	}
	// A model of another tool has no flags: a conversion must quantize its operators.
	for want, ops := range map[string][]string{"--bits 8 --ops Conv": {"Conv"}, "--bits 8": {"Gemm", "MatMul"}} {
		if got := (&verifier{ops: ops}).ownFlags("--bits 8", activationFlags); got != want {
			t.Errorf("%s: %s", ops, got)
		}
	}
	for _, text := range []string{"", "bits 4", "--", `--exclude "`, "--bits="} {
		flagsOf(text)
	}
	if got := flagsOf("--zero-point"); !slices.Equal(got, []flag{{"zero-point", ""}}) {
		t.Errorf("%q", got)
	}
}
