package remote

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	secret = "hf_secret"
)

// hub is a server that answers as the hub does, and one for contents of large files, as it redirects to.
type hub struct {
	*testing.T
	files     map[string]string // by name in owner/name
	large     map[string]bool   // by name: it is on the other server
	private   bool
	cut       int64 // connections to the other server are cut after so many bytes; 0: never
	noRanges  bool
	falsified bool // the other server sends something else
	busy      int  // answers of the other server that say that it is busy

	client *Client
	mu     sync.Mutex
	served int64    // bytes of contents
	asked  []string // requests
	url    string   // of the other server
}

func newHub(t *testing.T) *hub {
	h := &hub{T: t, files: map[string]string{}, large: map[string]bool{}}
	front := httptest.NewServer(http.HandlerFunc(h.front))
	back := httptest.NewServer(http.HandlerFunc(h.back))
	t.Cleanup(front.Close)
	t.Cleanup(back.Close)
	h.url = back.URL
	h.client = &Client{Hub: front.URL, Token: secret, Pause: time.Millisecond, Tries: 5}
	return h
}

func (h *hub) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Range"))
}

func (h *hub) front(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if h.private && r.Header.Get("Authorization") != "Bearer "+secret {
		http.Error(w, "denied", http.StatusUnauthorized)
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/old/name/"); ok {
		http.Redirect(w, r, "/owner/name/"+rest, http.StatusTemporaryRedirect)
		return
	}
	name := ""
	for _, revision := range []string{"main", commit} {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/owner/name/resolve/"+revision+"/"); ok {
			name = rest
		}
	}
	content, ok := h.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if !h.large[name] {
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
		return
	}
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
	w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content))))
	http.Redirect(w, r, h.url+"/"+name+"?signature=hidden", http.StatusFound)
}

func (h *hub) back(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if r.Header.Get("Authorization") != "" {
		h.Error("the token went to another server")
	}
	h.mu.Lock()
	busy := h.busy > 0
	h.busy--
	h.mu.Unlock()
	if busy {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	content := h.files[strings.TrimPrefix(r.URL.Path, "/")]
	if h.falsified {
		content = strings.Repeat("x", len(content))
	}
	if h.noRanges {
		r.Header.Del("Range")
	}
	w.Header().Set("ETag", fmt.Sprintf(`"part-%d"`, len(content)))
	http.ServeContent(&cutter{w, h, h.cut}, r, "", time.Time{}, strings.NewReader(content))
}

// cutter cuts a connection after so many bytes.
type cutter struct {
	http.ResponseWriter
	h    *hub
	left int64
}

func (c *cutter) Write(b []byte) (int, error) {
	c.h.mu.Lock()
	c.h.served += int64(len(b))
	c.h.mu.Unlock()
	if c.h.cut > 0 {
		if c.left -= int64(len(b)); c.left < 0 {
			c.ResponseWriter.Write(b[:len(b)/2])
			panic(http.ErrAbortHandler)
		}
	}
	return c.ResponseWriter.Write(b)
}

// put puts a model of some megabytes with external data on the hub.
func (h *hub) put(layers int) (model string) {
	h.Helper()
	path := filepath.Join(h.TempDir(), "m.onnx")
	if err := testmodels.WriteBig(path, testmodels.Big{Seed: 1, Layers: layers, K: 512, N: 512}); err != nil {
		h.Fatal(err)
	}
	for _, name := range []string{"m.onnx", "m.onnx.data"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			h.Fatal(err)
		}
		h.files["onnx/"+name], h.large["onnx/"+name] = string(b), strings.HasSuffix(name, ".data")
	}
	return "hf://owner/name/onnx/m.onnx"
}

func (h *hub) same(f *Fetched) {
	h.Helper()
	for i, path := range f.Paths {
		name := strings.TrimPrefix(f.Files[i].Name, "hf://owner/name@"+commit+"/")
		b, err := os.ReadFile(path)
		if err != nil || string(b) != h.files[name] {
			h.Errorf("%s: %d bytes, not the %d of %s: %v", path, len(b), len(h.files[name]), name, err)
		}
	}
}

// A model with external data comes from two servers, over connections that are cut again and again. The token goes to the hub alone.
func TestFetch(t *testing.T) {
	h := newHub(t)
	h.private = true
	name := h.put(6)
	h.cut, h.busy = 700<<10, 2
	f, err := h.client.Fetch(t.Context(), name, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	h.same(f)
	if len(f.Files) != 2 || f.Files[0].Name != "hf://owner/name@"+commit+"/onnx/m.onnx" || filepath.Base(f.Path) != "m.onnx" {
		t.Errorf("%+v", f)
	}
	if size := int64(len(h.files["onnx/m.onnx.data"])); h.served > 2*size {
		t.Errorf("%d bytes were sent of %d", h.served, size)
	}
	if f.Files[1].SHA256 == "" || f.Files[0].blob == "" {
		t.Errorf("no hashes: %+v", f.Files)
	}
}

// The structure alone is a file with holes: nothing is read of external data.
func TestSkeleton(t *testing.T) {
	h := newHub(t)
	name := h.put(2)
	folder := t.TempDir()
	f, err := h.client.Fetch(t.Context(), name, folder, true)
	if err != nil {
		t.Fatal(err)
	}
	if h.served != 0 {
		t.Errorf("%d bytes of contents were read", h.served)
	}
	info, err := os.Stat(f.Paths[1])
	if err != nil || info.Size() != int64(len(h.files["onnx/m.onnx.data"])) {
		t.Errorf("%v, %v", info, err)
	}
	if f, err = h.client.Fetch(t.Context(), name, folder, false); err != nil {
		t.Fatal(err)
	}
	h.same(f)
}

// Contents inside of a model file are left out of its structure.
func TestEmbedded(t *testing.T) {
	h := newHub(t)
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := testmodels.WriteBig(path, testmodels.Big{Seed: 1, Layers: 2, K: 512, N: 2048, Embedded: true}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.files["m.onnx"], h.large["m.onnx"] = string(b), true
	folder := t.TempDir()
	if _, err := h.client.Fetch(t.Context(), "hf://owner/name@main/m.onnx", folder, true); err != nil {
		t.Fatal(err)
	}
	if h.served > int64(len(b))/4 {
		t.Errorf("%d bytes were read of %d", h.served, len(b))
	}
	before := h.served
	h.served = 0
	f, err := h.client.Fetch(t.Context(), "hf://owner/name/m.onnx", folder, false)
	if err != nil {
		t.Fatal(err)
	}
	h.same(f)
	if h.served+before != int64(len(b)) {
		t.Errorf("%d and %d bytes were read of %d: some twice", before, h.served, len(b))
	}
}

// A fetch that was stopped goes on where it was.
func TestGoesOn(t *testing.T) {
	h := newHub(t)
	name, folder := h.put(16), t.TempDir()
	h.client.Tries, h.cut = 1, 10<<20
	if _, err := h.client.Fetch(t.Context(), name, folder, false); err == nil {
		t.Fatal("no error")
	}
	h.cut, h.served = 0, 0
	f, err := h.client.Fetch(t.Context(), name, folder, false)
	if err != nil {
		t.Fatal(err)
	}
	h.same(f)
	if size := int64(len(h.files["onnx/m.onnx.data"])); h.served > size-8<<20 {
		t.Errorf("%d bytes of %d were read again", h.served, size)
	}
	// Another version begins anew.
	h.files["onnx/m.onnx.data"] = strings.Repeat("y", len(h.files["onnx/m.onnx.data"]))
	if f, err = h.client.Fetch(t.Context(), name, folder, false); err != nil {
		t.Fatal(err)
	}
	h.same(f)
}

// A repository that was renamed is found by its old name.
func TestRenamed(t *testing.T) {
	h := newHub(t)
	h.private = true
	h.put(1)
	info, err := h.client.Stat(t.Context(), "hf://old/name/onnx/m.onnx.data")
	if err != nil || info.SHA256 == "" {
		t.Errorf("%+v, %v", info, err)
	}
}

// unanswered denies requests, and records their tokens, in place of a network.
type unanswered struct{ tokens []string }

func (c *unanswered) RoundTrip(r *http.Request) (*http.Response, error) {
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A mirror without encryption does not get the token, unless it is on this machine.
func TestClearText(t *testing.T) {
	for hub, want := range map[string]string{"http://mirror.example": "", "https://mirror.example": "Bearer " + secret, "http://127.0.0.1:8080": "Bearer " + secret, "http://localhost": "Bearer " + secret} {
		var seen unanswered
		c := &Client{Hub: hub, Token: secret, HTTP: &http.Client{Transport: &seen}, Tries: 1}
		_, err := c.Stat(t.Context(), "hf://owner/name/m.onnx")
		if len(seen.tokens) != 1 || seen.tokens[0] != want {
			t.Errorf("%s: sent %q", hub, seen.tokens)
		}
		if err == nil || strings.Contains(err.Error(), "is not sent") != (want == "") {
			t.Errorf("%s: %v", hub, err)
		}
	}
}

// A server that says nothing, or stops in the middle, is given up, and asked again.
func TestIdle(t *testing.T) {
	content, err := os.ReadFile(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	var hangs atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := hangs.Add(1); {
		case n == 1:
			<-r.Context().Done()
			return
		case n == 3:
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			w.Write(content[:10])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer s.Close()
	c := &Client{Pause: time.Millisecond, Tries: 3, Idle: 200 * time.Millisecond}
	f, err := c.Fetch(t.Context(), s.URL+"/m.onnx", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(f.Path); err != nil || !bytes.Equal(b, content) || hangs.Load() < 4 {
		t.Errorf("%d bytes after %d requests, %v", len(b), hangs.Load(), err)
	}
	hangs.Store(0)
	c.Tries = 1
	if _, err := c.Stat(t.Context(), s.URL+"/m.onnx"); !errors.Is(err, errIdle) {
		t.Errorf("%v", err)
	}
}

// A stream of HTTP/2 that its server ends in the middle is made again.
func TestStream(t *testing.T) {
	content, err := os.ReadFile(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	var gets atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if r.Method == http.MethodGet && gets.Add(1) == 1 {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			w.Write(content[:10])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := &Client{HTTP: s.Client(), Pause: time.Millisecond, Tries: 3}
	if _, err := c.Fetch(t.Context(), s.URL+"/m.onnx", t.TempDir(), false); err != nil || gets.Load() < 2 {
		t.Errorf("%d requests, %v", gets.Load(), err)
	}
}

// Another try helps against what connections do, not against what the disk does.
func TestTransient(t *testing.T) {
	for err, want := range map[error]bool{
		&brokenError{errors.New("stream error")}: true, io.ErrUnexpectedEOF: true, &statusError{status: 503}: true, &statusError{status: 404}: false,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}: true, &fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}: false, errRedirects: false,
	} {
		if isTransient(fmt.Errorf("f: %w", err)) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// Content that is not what the hub says is refused, and read anew next time.
func TestFalsified(t *testing.T) {
	h := newHub(t)
	name, folder := h.put(1), t.TempDir()
	h.falsified = true
	if _, err := h.client.Fetch(t.Context(), name, folder, false); err == nil || !strings.Contains(err.Error(), "and the hub says") {
		t.Fatalf("%v", err)
	}
	h.falsified = false
	f, err := h.client.Fetch(t.Context(), name, folder, false)
	if err != nil {
		t.Fatal(err)
	}
	h.same(f)
}

// A server that knows no ranges sends all.
func TestNoRanges(t *testing.T) {
	h := newHub(t)
	h.noRanges = true
	f, err := h.client.Fetch(t.Context(), h.put(3), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	h.same(f)
}

// A size that no file has is refused before memory is allocated for it.
func TestSizes(t *testing.T) {
	for _, size := range []string{"-1", "-262145", "4398046511105", "9223372036854775807", "99999999999999999999"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "linked.onnx"):
				w.Header().Set("X-Linked-Size", size)
			case r.Method == http.MethodHead:
				w.WriteHeader(http.StatusMethodNotAllowed)
			default:
				w.Header().Set("Content-Range", "bytes 0-0/"+size)
				w.WriteHeader(http.StatusPartialContent)
			}
		}))
		for _, name := range []string{"linked.onnx", "range.onnx"} {
			if _, err := (&Client{Tries: 1}).Fetch(t.Context(), s.URL+"/"+name, t.TempDir(), false); err == nil {
				t.Errorf("%s: %s: no error", name, size)
			}
		}
		s.Close()
	}
}

// A plain server has no hash. A file that changes meanwhile is noticed.
func TestPlainServer(t *testing.T) {
	content, err := os.ReadFile(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	version, heads := 1, true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && !heads {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if r.Method == http.MethodGet && version == 2 {
			version = 3
		}
		w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, version))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(content)))
	}))
	defer s.Close()
	c := &Client{Pause: time.Millisecond, Tries: 3}
	for _, heads = range []bool{true, false} {
		f, err := c.Fetch(t.Context(), s.URL+"/a/m.onnx", t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(f.Path); err != nil || string(b) != string(content) || f.Files[0].ETag != "v1" {
			t.Errorf("%d bytes, %v, %+v", len(b), err, f.Files[0])
		}
	}
	version, heads = 2, true
	if _, err := c.Fetch(t.Context(), s.URL+"/a/m.onnx", t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "the file was changed") {
		t.Errorf("%v", err)
	}
}

// What cannot be read has an error that says why. No message has the token or a signature.
func TestErrors(t *testing.T) {
	h := newHub(t)
	name := h.put(1)
	h.files["no.onnx"] = "this is no model"
	for _, c := range []struct {
		name, why string
		change    func()
	}{
		{"hf://owner/name/none.onnx", "has no such file or revision", nil},
		{"hf://owner/name@v2/onnx/m.onnx", "has no such file or revision", nil},
		{"hf://owner/name/no.onnx", "hf://owner/name/no.onnx: ", nil},
		{"hf://owner/m.onnx", "want hf://OWNER/REPOSITORY/PATH", nil},
		{"hf://owner/name/../m.onnx", "not a plain one", nil},
		{"http://example.org/m.onnx", "want https", nil},
		{"https://user:password@example.org/m.onnx", "a user or a password", nil},
		{"https://example.org/", "want https://HOST/PATH", nil},
		{"https://example.org/?s=hidden", "want https://HOST/PATH", nil},
		{name, "external data: hf://owner/name@" + commit + "/onnx/m.onnx.data: ", func() { delete(h.files, "onnx/m.onnx.data") }},
		{name, "HF_TOKEN gives a token", func() { h.private, h.client.Token = true, "" }},
		{name, "the token of HF_TOKEN may not read it", func() { h.client.Token = "hf_other" }},
	} {
		if c.change != nil {
			c.change()
		}
		_, err := h.client.Fetch(t.Context(), c.name, t.TempDir(), false)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %s", c.name, err, c.why)
		}
		for _, word := range []string{secret, "hf_other", "hidden"} {
			if err != nil && strings.Contains(err.Error(), word) {
				t.Errorf("%s: a secret is in %v", c.name, err)
			}
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c := &Client{Hub: gone.URL, Token: secret, Pause: time.Millisecond, Tries: 2}
	if _, err := c.Stat(t.Context(), name); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}

// An interrupt ends a fetch, also while it waits for the next try.
func TestInterrupt(t *testing.T) {
	h := newHub(t)
	name := h.put(2)
	h.busy, h.client.Pause = 1000, time.Hour
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { stop(stopped) })
	if _, err := h.client.Fetch(ctx, name, t.TempDir(), false); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
}

// A signature in a URL is sent, and neither recorded nor said. The parts that are there count under another one.
func TestSigned(t *testing.T) {
	content, err := os.ReadFile(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	var gets atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Query().Get("X-Amz-Signature"), "hidden") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.Method == http.MethodGet {
			gets.Add(1)
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer s.Close()
	c, folder := &Client{Tries: 1}, t.TempDir()
	for _, signature := range []string{"hidden1", "hidden2"} {
		f, err := c.Fetch(t.Context(), s.URL+"/m.onnx?X-Amz-Signature="+signature, folder, false)
		if err != nil {
			t.Fatal(err)
		}
		if f.Files[0].Name != s.URL+"/m.onnx" || gets.Load() != 1 {
			t.Errorf("%s, %d requests", f.Files[0].Name, gets.Load())
		}
		parts, err := os.ReadFile(f.Path + partsSuffix)
		if err != nil || bytes.Contains(parts, []byte("hidden")) {
			t.Errorf("%q, %v", parts, err)
		}
	}
	if _, err := c.Stat(t.Context(), s.URL+"/m.onnx?s=hidden"); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"hf://a/b/c": true, "https://x/y": true, "http://x/y": true, "a.onnx": false, "https.onnx": false, "https://": false, "s3://b/k": true, "gs://b": true, "s3:/b": false} {
		if Is(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	for _, c := range [][3]string{
		{"hf://o/r@c/a/m.onnx", "m.data", "hf://o/r@c/a/m.data"}, {"hf://o/r@c/m.onnx", "d/m.data", "hf://o/r@c/d/m.data"},
		{"https://h/a/m.onnx?x=1", "w.bin", "https://h/a/w.bin"}, {"https://h/m.onnx", "a b.bin", "https://h/a%20b.bin"},
		{"s3://b/m.onnx", "m.data", "s3://b/m.data"}, {"gs://b/a b/m.onnx", "d/m%.data", "gs://b/a b/d/m%.data"},
	} {
		if got, err := beside(c[0], c[1]); got != c[2] || err != nil {
			t.Errorf("%q: %s, %v", c, got, err)
		}
	}
	if _, err := beside("hf://o/r@c/m.onnx", "../x"); err == nil {
		t.Error("a location outside of the folder is allowed")
	}
}

// Messages have no query, which may be a signature. Names of files and of the hub stay.
func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"s3://b/k?X-Amz-Signature=x": "s3://b/k", "gs://b/k#x": "gs://b/k", "azblob://c?sig=x": "azblob://c", "https://h/p?x#y": "https://h/p", "ftp://h/p?x": "ftp://h/p",
		"hf://o/r@a#b/m.onnx": "hf://o/r@a#b/m.onnx", "a?b.onnx": "a?b.onnx", "./s3:/x?y": "./s3:/x?y", `C:/a#b`: `C:/a#b`,
	} {
		if got := Plain(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestCheckOut(t *testing.T) {
	for name, want := range map[string]bool{
		"a.onnx": true, "/a/b": true, `C:/a`: true, "./s3:/b": true, "s3://b/k": true, "azblob://b/k/l": true, "": true,
		"s3:/b/k": false, "s3://": false, "s3://b": false, "s3://b/../k": false, "gs://b/k?x": false, "hf://o/r/p": false, "https://h/p": false, "ftp://h/p": false,
	} {
		if err := CheckOut(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The data of a model get a name that the model does not use that they replace.
func TestUses(t *testing.T) {
	target := Target{old: []string{"m.onnx.data", "m.onnx.data_1", "w.bin"}}
	for name, want := range map[string]bool{"m.onnx.data": true, "w.bin": true, "m.onnx.1.data": false, "m.onnx": false} {
		if target.uses(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// Without an ETag, the time of modification tells versions apart, unless it was just now.
func TestVersion(t *testing.T) {
	now := time.Now()
	header := func(tag string, ago time.Duration) http.Header {
		return http.Header{"Etag": {tag}, "Last-Modified": {now.Add(-ago).UTC().Format(http.TimeFormat)}, "Date": {now.UTC().Format(http.TimeFormat)}}
	}
	for want, h := range map[string]http.Header{
		"v1": header(`W/"v1"`, 0), "": header("", time.Second),
		"modified " + now.Add(-time.Hour).UTC().Format(time.RFC3339): header("", time.Hour),
	} {
		if got := version(h); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
