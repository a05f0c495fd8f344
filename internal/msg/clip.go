package msg

// Clip shortens a long text.
func Clip(s string) string {
	const longest = 200
	if len(s) > longest {
		return s[:longest] + "…"
	}
	return s
}
