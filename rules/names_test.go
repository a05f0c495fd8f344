package rules

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	n, err := ParseNames([]byte(`{
		"model.layers.*.q_proj.weight": "blk.*.attn_q.weight",
		"a*b*": "*-*-",
		"[x]*": "x*",
		"[*]": "bracket",
		"gone*": null,
		"gone but one": "kept"
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"model.layers.17.q_proj.weight": "blk.17.attn_q.weight",
		"aXYbZb":                        "XY-Zb-",
		"x€":                            "x€",
		"[*]":                           "bracket",
		"other":                         "other",
		"gone":                          "",
		"gone but one":                  "kept",
	} {
		if got, ok := n.For(name); got != want || ok != (want != "") {
			t.Errorf("%s becomes %q, %v, want %q", name, got, ok, want)
		}
	}
	if got, ok := (*Names)(nil).For("w"); got != "w" || !ok {
		t.Error("without names, names change")
	}
	if err := n.Unused([]string{"model.layers.17.q_proj.weight"}); err == nil || !strings.Contains(err.Error(), `line 3, column 3: "a*b*" matches no tensor`) {
		t.Errorf("unused: %v", err)
	}
	for doc, want := range map[string]string{
		`[]`:                "line 1, column 1: want an object",
		`{"a": 1}`:          `line 1, column 7: "a": want a string, got 1`,
		`{"a": ""}`:         "the name is empty",
		`{"a*": "*.*"}`:     "has 2 *, but its key only 1",
		`{"a\\*[*]": "*"}`:  "has 1 *, but its key only 0",
		`{"a": "b"`:         "unexpected end",
		"{\"a\": \"\xff\"}": "not UTF-8",
	} {
		if _, err := ParseNames([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}

// FuzzNames maps a name by a document. Each star of a glob stands for a part of the name. A name
// that no rule matches does not change.
func FuzzNames(f *testing.F) {
	f.Add(`{"a*b?": "*x"}`, "aabb")
	f.Add(`{"[a-*]*\\*": "*"}`, "a€*")
	f.Add(`{"*": null, "w": "v"}`, "w")
	f.Fuzz(func(t *testing.T, doc, name string) {
		n, err := ParseNames([]byte(doc))
		if err != nil {
			return
		}
		got, ok := n.For(name)
		unused := n.Unused([]string{name})
		if len(n.rules) == 1 && unused != nil && (!ok || got != name) {
			t.Fatalf("no rule matches %q, which becomes %q, %v", name, got, ok)
		}
		for _, r := range n.rules {
			if matchGlob(r.pattern, name) && len(globParts(r.pattern, name)) != stars(r.pattern) {
				t.Fatalf("%q has %d stars, which stand for %q in %q", r.pattern, stars(r.pattern), globParts(r.pattern, name), name)
			}
		}
	})
}
