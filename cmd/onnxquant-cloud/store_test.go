package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
)

// faulty is a server of S3 on the loopback that can be made to fail.
type faulty struct {
	*httptest.Server
	handler http.Handler
	busy    int                                               // requests to refuse
	before  func(w http.ResponseWriter, r *http.Request) bool // true: the request is answered
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.busy > 0 {
		f.busy--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if f.before != nil && f.before(w, r) {
		return
	}
	f.handler.ServeHTTP(w, r)
}

// newS3 starts a server with the bucket "bucket", which the environment names.
func newS3(t *testing.T) *faulty {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	f := &faulty{handler: gofakes3.New(backend).Server()}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": f.URL, "AWS_ACCESS_KEY_ID": "key-of-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
		"AWS_REGION": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value)
	}
	return f
}

// cut is an answer that ends early.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}

// local opens buckets in memory or in a folder, in place of those of clouds.
func local(t *testing.T) func(context.Context, place) (*blob.Bucket, error) {
	folder := t.TempDir()
	return func(ctx context.Context, p place) (*blob.Bucket, error) {
		switch p.scheme {
		case "gs":
			return memblob.OpenBucket(nil), nil
		case "azblob":
			return fileblob.OpenBucket(folder, nil)
		}
		return openBucket(ctx, p)
	}
}

// client speaks to a store as onnxquant does, over pipes.
func client(t *testing.T, s http.Handler) *http.Client {
	t.Helper()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan struct{})
	go func() { serve(in, out, s); out.Close(); close(ended) }()
	c := &http.Client{Transport: &http.Transport{DialContext: dialOnce(answers, requests)}}
	t.Cleanup(func() {
		requests.Close()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the program does not end with its input")
		}
	})
	return c
}

func ask(t *testing.T, c *http.Client, method, key, name string, body io.Reader, size int64, ranged string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://store/?"+key+"="+url.QueryEscape(name), body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = size
	if ranged != "" {
		r.Header.Set("Range", ranged)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, content
}

// Objects are written, read by ranges, listed and removed, in each kind of store.
func TestObjects(t *testing.T) {
	newS3(t)
	c := client(t, newStore(local(t)))
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1) // two parts
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		name := scheme + "://bucket/a folder/m%1+ü.onnx"
		r, _ := ask(t, c, http.MethodPut, "name", name, bytes.NewReader(content), int64(len(content)), "")
		tag := r.Header.Get("ETag")
		if r.StatusCode != http.StatusCreated || tag == "" {
			t.Fatalf("%s: %d %s", scheme, r.StatusCode, r.Header.Get("Onnxquant-Error"))
		}
		r, _ = ask(t, c, http.MethodHead, "name", name, nil, 0, "")
		if r.StatusCode != http.StatusOK || r.Header.Get("ETag") != tag || r.ContentLength != int64(len(content)) {
			t.Errorf("%s: %d, %v", scheme, r.StatusCode, r.Header)
		}
		r, got := ask(t, c, http.MethodGet, "name", name, nil, 0, "bytes=16-35")
		if r.StatusCode != http.StatusPartialContent || string(got) != "0123456789abcdef0123" || r.Header.Get("Content-Range") != "bytes 16-35/"+strconv.Itoa(len(content)) {
			t.Errorf("%s: %d %q, %v", scheme, r.StatusCode, got, r.Header)
		}
		if r, got = ask(t, c, http.MethodGet, "name", name, nil, 0, ""); r.StatusCode != http.StatusOK || !bytes.Equal(got, content) {
			t.Errorf("%s: %d, %d bytes", scheme, r.StatusCode, len(got))
		}
		if r, _ = ask(t, c, http.MethodGet, "name", name, nil, 0, "bytes=99999999-"); r.StatusCode != http.StatusRequestedRangeNotSatisfiable {
			t.Errorf("%s: %d", scheme, r.StatusCode)
		}
		ask(t, c, http.MethodPut, "name", scheme+"://bucket/a folder/deeper/x", strings.NewReader(""), 0, "")
		_, got = ask(t, c, http.MethodGet, "list", scheme+"://bucket/a folder/", nil, 0, "")
		var listed string
		if err := json.Unmarshal(got, &listed); err != nil || listed != name {
			t.Errorf("%s: %s, %v", scheme, got, err)
		}
		if r, _ = ask(t, c, http.MethodDelete, "name", name, nil, 0, ""); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", scheme, r.StatusCode)
		}
		if r, _ = ask(t, c, http.MethodHead, "name", name, nil, 0, ""); r.StatusCode != http.StatusNotFound || r.Header.Get("Onnxquant-Error") != "there is no such object or bucket" {
			t.Errorf("%s: %d %v", scheme, r.StatusCode, r.Header)
		}
	}
}

// A content that ends early, at any place, changes nothing, and leaves no parts.
func TestGivenUp(t *testing.T) {
	s := newS3(t)
	open := newStore(local(t))
	content := bytes.Repeat([]byte("x"), 20<<20)
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		name := scheme + "://bucket/given-up.onnx"
		c := client(t, open)
		ask(t, c, http.MethodPut, "name", name, strings.NewReader("before"), 6, "")
		for _, n := range []int{0, 1, 9 << 20, len(content) - 1} {
			aborted := client(t, open)
			body := io.MultiReader(bytes.NewReader(content[:n]), broken{})
			r, _ := http.NewRequest(http.MethodPut, "http://store/?name="+url.QueryEscape(name), body)
			r.ContentLength = int64(len(content))
			if _, err := aborted.Do(r); err == nil {
				t.Errorf("%s: no error", name)
			}
			if _, got := ask(t, c, http.MethodGet, "name", name, nil, 0, ""); string(got) != "before" {
				t.Errorf("%s: %d bytes after %d", name, len(got), n)
			}
		}
	}
	eventually(t, func() bool {
		r, err := http.Get(s.URL + "/bucket?uploads")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		left, _ := io.ReadAll(r.Body)
		return !bytes.Contains(left, []byte("<UploadId>"))
	})
}

// A server that is busy is asked again. One that cuts connections is, too, as long as nothing was read.
func TestFaults(t *testing.T) {
	s := newS3(t)
	c := client(t, newStore(openBucket))
	content := bytes.Repeat([]byte("x"), 20<<20)
	cuts := 0
	s.busy = 1
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && cuts < 2 {
			cuts++
			io.CopyN(io.Discard, r.Body, 1<<20)
			panic(http.ErrAbortHandler)
		}
		return false
	}
	r, _ := ask(t, c, http.MethodPut, "name", "s3://bucket/m", bytes.NewReader(content), int64(len(content)), "")
	if r.StatusCode != http.StatusCreated || cuts != 2 {
		t.Errorf("%d %s, after %d cuts", r.StatusCode, r.Header.Get("Onnxquant-Error"), cuts)
	}
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		s.handler.ServeHTTP(&cut{w, 1 << 20}, r)
		return true
	}
	request, _ := http.NewRequest(http.MethodGet, "http://store/?name=s3://bucket/m", nil)
	response, err := c.Do(request)
	if err == nil {
		var n int64
		n, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if n == int64(len(content)) {
			t.Error("a content that was cut is whole")
		}
	}
	if err == nil {
		t.Error("a content that was cut ends without an error")
	}
}

// Messages say what to do, and have no secrets.
func TestMessages(t *testing.T) {
	s := newS3(t)
	for _, c := range []struct {
		name, why string
		status    int
		change    func()
	}{
		{"s3://bucket", "want SCHEME://BUCKET/KEY", 400, nil},
		{"s3://bucket?endpoint=http:/x/key", "want SCHEME://BUCKET/KEY", 400, nil},
		{"ftp://bucket/key", "ftp:// is not known", 401, nil},
		{"s3://bucket/none", "no such object or bucket", 404, nil},
		{"s3://another/none", "no such object or bucket", 404, nil},
		{"s3://bucket/m", "access is denied to the credentials of the environment", 403, func() {
			s.before = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }
		}},
		{"s3://bucket/m", "the region is missing: set AWS_REGION", 401, func() { os.Unsetenv("AWS_ENDPOINT_URL") }},
	} {
		if c.change != nil {
			c.change()
		}
		r, _ := ask(t, client(t, newStore(openBucket)), http.MethodHead, "name", c.name, nil, 0, "")
		text := r.Header.Get("Onnxquant-Error")
		if r.StatusCode != c.status || !strings.Contains(text, c.why) || strings.Contains(text, "-of-tests") {
			t.Errorf("%s: %d %s", c.name, r.StatusCode, text)
		}
	}
	signed := errors.New("blob (key \"k\") (code=Unknown): Put \"https://a.blob.example/c/k?sv=1&sig=hidden\": dial tcp:\n refused")
	if text := message(http.StatusBadGateway, signed); text != `Put "https://a.blob.example/c/k": dial tcp: refused` {
		t.Error(text)
	}
}
