package msg

import "strings"

// ShellQuoted quotes an argument as a POSIX shell wants it, if it must be quoted.
func ShellQuoted(arg string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("-_./:=,@%+", r) || r > 127
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
