// Package browser opens pages of onnxquant report in Chromium. It is a module of its own, so that
// the browser's protocol is no dependency of the command.
//
//	make browser
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"onnxquant/testmodels"
)

const root = "../.."

var browser context.Context

func TestMain(m *testing.M) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	browser = ctx
	status := 1
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cannot start Chromium:", err)
	} else {
		status = m.Run()
	}
	closeBrowser()
	stop()
	os.Exit(status)
}

// onnxquant runs the command and returns its standard output.
func onnxquant(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "bin", "onnxquant"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("onnxquant %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

// report converts a model, in two ways, and returns the path of its page, and the report as JSON.
func report(t *testing.T, model []byte, flags ...string) (path string, document map[string]any) {
	t.Helper()
	folder := t.TempDir()
	in, out, other := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "out.onnx"), filepath.Join(folder, "other.onnx")
	path = filepath.Join(folder, "page.html")
	if err := os.WriteFile(in, model, 0o666); err != nil {
		t.Fatal(err)
	}
	onnxquant(t, append(flags, "--quiet", "--block", "32", in, out)...)
	onnxquant(t, "--quiet", "--bits", "8", in, other)
	raw := onnxquant(t, "report", "--json", "--html", path, "--candidates", "int4:32,int4:32:zp,int8:32", in, out, other)
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	return path, document
}

func tinygpt(t *testing.T) []byte {
	t.Helper()
	model, err := os.ReadFile(filepath.Join(root, "testmodels", "tinygpt", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// tab opens a page. The test fails if the page reports an error or asks for anything else.
func tab(t *testing.T, path string) context.Context {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	do(t, ctx)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var mu sync.Mutex
	var complaints []string
	complain := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	address := (&url.URL{Scheme: "file", Path: path}).String()
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			complain("console: %v", e.Args)
		case *runtime.EventExceptionThrown:
			complain("exception: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			complain("log: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address {
				complain("request for %s", e.Request.URL)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		closeTab()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Error(c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(t, ctx, network.Enable, network.EnableParams{})
	call(t, ctx, log.Enable, cdp.Empty{})
	do(t, ctx, chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("body")))
	return ctx
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

func value[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// call sends a command of the browser's protocol.
func call[P, R any](t *testing.T, ctx context.Context, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		t.Fatal(err)
	}
}

// at follows a path such as outs.0.bytes.
func at(document any, path string) any {
	for _, key := range strings.Split(path, ".") {
		switch d := document.(type) {
		case map[string]any:
			document = d[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(d) {
				return nil
			}
			document = d[i]
		default:
			return nil
		}
	}
	return document
}

var shown = regexp.MustCompile(`^(-?[0-9.]+(?:e[-+]?[0-9]+)?)(?: (%|dB|B|KiB|MiB|GiB))?$`)

// agrees reports whether a text shows a number, to the digits that it has.
func agrees(text string, number float64) bool {
	m := shown.FindStringSubmatch(text)
	if m == nil {
		return text == "exact" && number == 999
	}
	x, err := strconv.ParseFloat(m[1], 64)
	factor := map[string]float64{"%": 0.01, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
	if factor != 0 {
		x *= factor
	}
	return err == nil && math.Abs(x-number) <= 0.006*math.Abs(number)
}

// title is how the page names weight i: behind the node that reads it, where its own name is a number of the exporter.
func title(document any, i int) string {
	name := at(document, fmt.Sprintf("weights.%d.name", i)).(string)
	if node, ok := at(document, fmt.Sprintf("weights.%d.node", i)).(string); ok {
		return node + " (" + name + ")"
	}
	return name
}

// compareNumbers compares the numbers on the page, so many at least, and its rows, with the JSON.
func compareNumbers(t *testing.T, ctx context.Context, document any, numbers, weights int) {
	t.Helper()
	type datum struct{ Path, Value, Text string }
	data := value[[]datum](t, ctx, `[...document.querySelectorAll('[data-json]')].map(e => ({path: e.dataset.json, value: e.value, text: e.textContent}))`)
	if len(data) < numbers {
		t.Fatalf("%d numbers", len(data))
	}
	check := func(path, text string, shown string) {
		want, ok := at(document, path).(float64)
		got, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || got != want || !agrees(shown, want) {
			t.Errorf("%s: the page has %s, shown as %q, JSON %v", path, text, shown, at(document, path))
		}
	}
	for _, d := range data {
		check(d.Path, d.Value, d.Text)
	}
	rows := value[[][]string](t, ctx, `[...document.querySelectorAll('#rows li')].map(e => [e.children[0].title, e.children[1].textContent, ...[...e.querySelectorAll('data')].flatMap(d => [d.value, d.textContent])])`)
	if n := len(at(document, "weights").([]any)); len(rows) != n || n != weights {
		t.Fatalf("%d rows, %d weights", len(rows), n)
	}
	for i, row := range rows {
		w := fmt.Sprintf("weights.%d.", i)
		if row[0] != title(document, i) || row[1] != at(document, w+"format") {
			t.Errorf("row %d is %v", i, row)
		}
		check(w+"error", row[2], row[3])
		check(w+"bytes", row[4], row[5])
	}
}

// The numbers on the page are those of the JSON.
func TestNumbers(t *testing.T) {
	path, document := report(t, tinygpt(t), "--exclude", "onnx::MatMul_541")
	ctx := tab(t, path)
	compareNumbers(t, ctx, document, 30, 16)
	headline := value[string](t, ctx, `document.querySelector('h1').textContent`)
	if want := map[any]string{"sound": "○ Sound", "failed": "✗ Failed"}[at(document, "verdict")]; headline != want {
		t.Errorf("headline %q, want %q", headline, want)
	}
	precision := value[string](t, ctx, `document.getElementById('precision').textContent`)
	var entries map[string]any
	if err := json.Unmarshal([]byte(precision), &entries); err != nil || len(entries) != 10 {
		t.Errorf("the precision_info: %v, %d entries", err, len(entries))
	}
}

// Clicks, keys and the filter select weights.
func TestSelection(t *testing.T) {
	path, document := report(t, tinygpt(t), "--exclude", "onnx::MatMul_541")
	ctx := tab(t, path)
	selected := func(what string, want int) {
		t.Helper()
		name := title(document, want)
		got := value[[]string](t, ctx, `[document.querySelector('#detail h3').textContent, document.querySelector('[aria-selected=true]').id, document.getElementById('rows').getAttribute('aria-activedescendant'), String(document.querySelectorAll('[aria-selected=true]').length)]`)
		if row := fmt.Sprintf("w%d", want); got[0] != name || got[1] != row || got[2] != row || got[3] != "1" {
			t.Errorf("%s: %v is selected, want %v, %s", what, got, name, row)
		}
	}
	selected("at first", 0)
	do(t, ctx, chromedp.Click(chromedp.CSS("#w3")))
	selected("click", 3)
	do(t, ctx, chromedp.Focus(chromedp.CSS("#rows")), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowUp))
	selected("arrows", 4)
	do(t, ctx, chromedp.KeyEvent(kb.End))
	selected("End", 15)
	do(t, ctx, chromedp.KeyEvent(kb.Home))
	selected("Home", 0)

	last := at(document, "weights.15.name").(string)
	call(t, ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
	do(t, ctx, chromedp.KeyEvent("INT4 "+last[len(last)-3:]))
	selected("filter", 15)
	if got := value[string](t, ctx, `document.getElementById('count').textContent + ', ' + [...document.querySelectorAll('#rows li')].filter(e => e.offsetHeight > 0).length`); got != "1 of 16, 1" {
		t.Errorf("filtered: %s", got)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	if got := value[string](t, ctx, `document.getElementById('count').textContent`); got != "16 of 16" {
		t.Errorf("after Escape: %s", got)
	}
	do(t, ctx, chromedp.KeyEvent("no such weight"))
	if got := value[string](t, ctx, `document.getElementById('count').textContent`); got != "0 of 16" {
		t.Errorf("without a match: %s", got)
	}

	// The picture of the selected weight has its bins and codes.
	do(t, ctx, chromedp.KeyEvent(kb.Escape), chromedp.Click(chromedp.CSS("#w2")))
	bins := 0
	for _, n := range at(document, "weights.2.detail.bins").([]any) {
		if n.(float64) > 0 {
			bins++
		}
	}
	drawn := value[[]int](t, ctx, `['rect.bins', '.stem', '.cell', '#choices tbody tr'].map(s => document.querySelectorAll(s).length)`)
	cells := len(at(document, "weights.2.detail.channels").([]any)) + len(at(document, "weights.2.detail.positions").([]any))
	if want := []int{bins, 15, cells, 4}; fmt.Sprint(drawn) != fmt.Sprint(want) {
		t.Errorf("drawn are %v bins, codes, parts and formats, want %v", drawn, want)
	}
	do(t, ctx, chromedp.Click(chromedp.CSS("#copy")))
	if got := value[string](t, ctx, `document.getElementById('copied').textContent`); got == "" {
		t.Error("Copy says nothing")
	}
}

// Texts can be read on light and dark desktops: their contrast is at least 4.5.
func TestColors(t *testing.T) {
	path, _ := report(t, tinygpt(t))
	ctx := tab(t, path)
	const contrasts = `(() => {
		const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return c; } };
		return ['body', 'h1 .mark', '.facts dt', '.effect', '.small', '.result', '#w0 span', '#count', '#detail dt', 'pre', '.note'].flatMap(s => [...document.querySelectorAll(s)].slice(0, 3).map(e => {
			const a = light(getComputedStyle(e).color), b = light(behind(e));
			return {what: s, contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), dark: b < 0.2};
		}));
	})()`
	for _, scheme := range []string{"light", "dark"} {
		call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for _, c := range value[[]struct {
			What     string
			Contrast float64
			Dark     bool
		}](t, ctx, contrasts) {
			if c.Contrast < 4.5 || c.Dark != (scheme == "dark") {
				t.Errorf("%s: %+v", scheme, c)
			}
		}
	}
}

// Nothing is wider than the window of a telephone.
func TestNarrow(t *testing.T) {
	path, _ := report(t, tinygpt(t))
	ctx := tab(t, path)
	do(t, ctx, chromedp.EmulateViewport(390, 800))
	if width := value[int](t, ctx, `document.documentElement.scrollWidth`); width > 390 {
		t.Errorf("the page is %d wide", width)
	}
}

// pages counts the pages that a page prints on.
func pages(t *testing.T, ctx context.Context) int {
	t.Helper()
	pdf, err := chromedp.Run(ctx, chromedp.PrintToPDF(chromedp.PDFPreferCSSPageSize(), chromedp.PDFPrintBackground()))
	if err != nil {
		t.Fatal(err)
	}
	return len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(pdf, -1))
}

// A small model prints on two pages.
func TestPrint(t *testing.T) {
	path, _ := report(t, tinygpt(t))
	if n := pages(t, tab(t, path)); n != 2 {
		t.Errorf("%d pages", n)
	}
}

// The page of 1,000 weights is small, right, prints on two pages, and can be filtered.
func TestThousandWeights(t *testing.T) {
	dims := make([]int, 1001)
	for i := range dims {
		dims[i] = 32
	}
	large := filepath.Join(t.TempDir(), "large.onnx")
	if err := testmodels.MLP(1, dims...).Write(large); err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(large)
	if err != nil {
		t.Fatal(err)
	}
	path, document := report(t, model)
	if info, err := os.Stat(path); err != nil || info.Size() > 2e6 {
		t.Errorf("the page has %d bytes: %v", info.Size(), err)
	}
	ctx := tab(t, path)
	compareNumbers(t, ctx, document, 25, 1000)

	const state = `[document.querySelector('[aria-selected=true]').id, document.querySelector('#detail h3').textContent, document.getElementById('count').textContent, String([...document.querySelectorAll('#rows li')].filter(e => e.offsetHeight > 0).length)]`
	check := func(what string, weight int, count, shown string) {
		t.Helper()
		want := []string{fmt.Sprintf("w%d", weight), at(document, fmt.Sprintf("weights.%d.name", weight)).(string), count, shown}
		if got := value[[]string](t, ctx, state); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("at first", 0, "1000 of 1000", "1000")
	do(t, ctx, chromedp.Focus(chromedp.CSS("#rows")), chromedp.KeyEvent(kb.End))
	check("End", 999, "1000 of 1000", "1000")
	text := at(document, "weights.700.name").(string)
	var matches []int
	for i := range 1000 {
		if strings.Contains(at(document, fmt.Sprintf("weights.%d.name", i)).(string), text) {
			matches = append(matches, i)
		}
	}
	do(t, ctx, chromedp.Focus(chromedp.CSS("#filter")), chromedp.KeyEvent(text))
	n := strconv.Itoa(len(matches))
	check("filter", matches[0], n+" of 1000", n)
	if n := pages(t, ctx); n != 2 {
		t.Errorf("%d pages", n)
	}
}

// Names that are markup stay text.
func TestMarkup(t *testing.T) {
	model := bytes.ReplaceAll(tinygpt(t), []byte("onnx::MatMul_540"), []byte(`</script><b>"'&x`))
	model = bytes.ReplaceAll(model, []byte("onnx::MatMul_523"), []byte(`<script>boom()//`))
	path, document := report(t, model)
	ctx := tab(t, path)
	for i, want := range []string{`</script><b>"'&x`, `<script>boom()//`} {
		if name := at(document, fmt.Sprintf("weights.%d.name", i)); name != want {
			t.Fatalf("weight %d is %v", i, name)
		}
		do(t, ctx, chromedp.Click(chromedp.CSS(fmt.Sprintf("#w%d", i))))
		if got := value[string](t, ctx, `document.querySelector('#detail h3').textContent`); got != want {
			t.Errorf("selected is %q, want %q", got, want)
		}
	}
	if n := value[int](t, ctx, `document.querySelectorAll('script').length + document.querySelectorAll('main b:not(.legend b)').length`); n != 2 {
		t.Errorf("%d scripts and bold elements", n)
	}
}
