package msg

// Clip shortens what could be a page.
func Clip(s string) string {
	const longest = 200
	if len(s) > longest {
		return s[:longest] + "…"
	}
	return s
}
