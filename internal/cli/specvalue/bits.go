package specvalue

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/othertools"
	"onnxquant/spec"
)

// BitCount is the value of --bits.
type BitCount struct{ To *int }

func (b BitCount) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil && slices.Contains(CodedFormats(), spec.Format(strings.ToLower(s))):
		return errors.New("want 2, 4 or 8; for this format, write --format " + strings.ToLower(s))
	case err != nil:
		n = 0
	case n == 16 || n == 32:
		return errors.New("want 2, 4 or 8; " + othertools.Flags[fmt.Sprint("fp", n)])
	}
	if err := spec.CheckBits(n); err != nil {
		return err
	}
	*b.To = n
	return nil
}

func (b BitCount) String() string   { return "" }
func (b BitCount) Type() string     { return "N" }
func (b BitCount) Values() []string { return []string{"2", "4", "8"} }
