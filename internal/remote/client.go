// Package remote reads models from the Hugging Face hub, from web servers and from object stores, and writes objects.
//
// A [Client] gets the name of a file, hf://OWNER/REPOSITORY[@REVISION]/PATH, https://HOST/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY or
// azblob://CONTAINER/KEY. For the last three it runs the program onnxquant-cloud. [Client.Stat] asks for its size and
// hash. [Client.Fetch] puts a model and its external data into a folder, which the caller owns. It reads the structure of the
// model first, by ranges, and then the contents of tensors. A connection that is cut is made again, and goes on where the first
// one stopped; so does a later Fetch to the same folder. Where the hub tells a hash, the content is checked.
//
// [Client.Put] writes an object, which appears whole or not at all. [Client.Target] is for models with external data: the model that is
// replaced stays whole until then.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Client reads remote files.
type Client struct {
	Hub   string        // URL of the hub, without / at the end
	Token string        // for the hub; "" for what is public. It is sent to no other server, and is in no message.
	HTTP  *http.Client  // nil: one with the proxies of the environment
	Pause time.Duration // before the second try, and twice as long before each further one
	Tries int           // without progress
	Idle  time.Duration // after which a server that sends nothing is given up; 0: a minute
}

// New returns a client as the environment says: HF_ENDPOINT, HF_TOKEN, and proxies.
func New() *Client {
	return &Client{
		Hub:   strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"),
		Token: os.Getenv("HF_TOKEN"), Pause: time.Second, Tries: 6,
	}
}

// Info describes a remote file.
type Info struct {
	Name   string // of this version: for the hub, with the commit
	Size   int64
	ETag   string // of this version, or its time of modification; "" if the server has none
	SHA256 string // of the content, if the hub tells it

	blob string // hash of git, if the hub tells that alone
	url  string // where it is read
	hub  bool   // the token is for this URL
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	after  time.Duration // to wait before the next try
	text   string        // of a helper; "": the server says no more
}

func (e *statusError) Error() string {
	if e.text != "" {
		return e.text
	}
	return fmt.Sprintf("the server answers %d %s", e.status, http.StatusText(e.status))
}

// Stat asks for a file.
func (c *Client) Stat(ctx context.Context, name string) (*Info, error) {
	p, err := parse(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Plain(name), err)
	}
	var info *Info
	err = c.retry(ctx, func() (bool, error) {
		info, err = c.stat(ctx, &p)
		return false, unreached(err)
	})
	if err != nil {
		return nil, c.explain(name, &p, err)
	}
	return info, nil
}

// address is the URL of a file of the hub.
func (c *Client) address(p *place, revision string) string {
	return fmt.Sprintf("%s/%s/resolve/%s/%s", c.Hub, p.repository, url.PathEscape(revision), (&url.URL{Path: p.path}).EscapedPath())
}

func (c *Client) stat(ctx context.Context, p *place) (*Info, error) {
	info := &Info{hub: p.repository != ""}
	switch {
	case info.hub:
		info.url = c.address(p, p.revision)
	case p.object != "":
		info.url = helperURL("name", p.object)
	default:
		info.url = p.url.String()
	}
	const mostRedirects = 5
	at, commit := info.url, ""
	for range mostRedirects {
		r, err := c.do(ctx, http.MethodHead, at, info.hub, "", noRedirect)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
		commit = cmp.Or(commit, r.Header.Get("X-Repo-Commit"))
		linked := r.Header.Get("X-Linked-Etag")
		switch next, redirected := redirection(r); {
		case redirected && info.hub && linked != "": // the content is elsewhere, and described here
		case redirected && info.hub && next.Host != r.Request.URL.Host:
			return nil, errors.New("the hub redirects to another server without the hash of the file")
		case redirected:
			if err := allowed(r.Request.URL, next); err != nil {
				return nil, err
			}
			at = next.String()
			continue
		case r.StatusCode == http.StatusMethodNotAllowed || r.StatusCode == http.StatusNotImplemented:
			return c.statByRange(ctx, p, info)
		case r.StatusCode >= http.StatusMultipleChoices:
			return nil, failure(r)
		}
		info.Size = r.ContentLength
		if size := r.Header.Get("X-Linked-Size"); size != "" {
			if info.Size, err = strconv.ParseInt(size, 10, 64); err != nil || info.Size < 0 {
				return nil, errors.New("the size that the server tells is no number")
			}
		}
		if info.Size < 0 {
			return c.statByRange(ctx, p, info)
		}
		if err := checkSize(info.Size); err != nil {
			return nil, err
		}
		info.ETag = cmp.Or(etag(linked), version(r.Header))
		c.identify(info, p, commit)
		return info, nil
	}
	return nil, errRedirects
}

var errRedirects = errors.New("the server redirects too often")

// checkSize refuses a size that no file has: memory grows with it.
func checkSize(n int64) error {
	const most = 1 << 42
	if n < 0 || n > most {
		return fmt.Errorf("the server tells a size of %d bytes; want 0 to %d", n, int64(most))
	}
	return nil
}

// statByRange asks for the first byte, of servers that do not answer HEAD.
func (c *Client) statByRange(ctx context.Context, p *place, info *Info) (*Info, error) {
	r, err := c.do(ctx, http.MethodGet, info.url, info.hub, "bytes=0-0", nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	_, total, err := contentRange(r)
	if err == nil {
		err = checkSize(total)
	}
	if err != nil {
		return nil, err
	}
	info.Size, info.ETag = total, version(r.Header)
	c.identify(info, p, r.Header.Get("X-Repo-Commit"))
	return info, nil
}

// identify sets the name of this version, and the hash that the hub gives as ETag: SHA-256 of large files, that of git of others.
func (c *Client) identify(info *Info, p *place, commit string) {
	info.Name = p.pinned(commit)
	if !info.hub {
		return
	}
	if commit != "" { // the same files from now on, whatever happens to the branch
		info.url = c.address(p, commit)
	}
	switch {
	case isHex(info.ETag, 64):
		info.SHA256 = info.ETag
	case isHex(info.ETag, 40):
		info.blob = info.ETag
	}
}

func isHex(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == ""
}

func etag(text string) string { return strings.Trim(strings.TrimPrefix(text, "W/"), `"`) }

// version is the ETag of an answer. Without one it is the time of modification, if the file was not changed in the last
// minute: within a second, a file may change twice.
func version(h http.Header) string {
	if tag := etag(h.Get("ETag")); tag != "" {
		return tag
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	now, err2 := http.ParseTime(h.Get("Date"))
	if errors.Join(err, err2) != nil || now.Sub(modified) < time.Minute {
		return ""
	}
	return "modified " + modified.UTC().Format(time.RFC3339)
}

// redirection returns where an answer redirects to.
func redirection(r *http.Response) (*url.URL, bool) {
	if r.StatusCode < http.StatusMultipleChoices || r.StatusCode >= http.StatusBadRequest {
		return nil, false
	}
	next, err := r.Location()
	return next, err == nil
}

// allowed refuses a redirection that drops encryption.
func allowed(from, to *url.URL) error {
	if to.Scheme == "https" || to.Scheme == "http" && from.Scheme == "http" && isLoopback(to) {
		return nil
	}
	return errors.New("the server redirects to a URL without https")
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// follow follows redirections. The token does not go to another server.
func follow(r *http.Request, via []*http.Request) error {
	const most = 5
	if len(via) > most {
		return errRedirects
	}
	if r.URL.Host != via[0].URL.Host {
		r.Header.Del("Authorization")
	}
	return allowed(via[len(via)-1].URL, r.URL)
}

// isPrivate reports whether nobody reads what is sent to a URL.
func isPrivate(u *url.URL) bool { return u.Scheme == "https" || isLoopback(u) }

// do sends a request. The token goes to the hub alone, and not in clear text over a network. redirect is http.Client.CheckRedirect; nil: follow.
func (c *Client) do(ctx context.Context, method, at string, hub bool, bytes string, redirect func(*http.Request, []*http.Request) error) (*http.Response, error) {
	w := newWatch(ctx, cmp.Or(c.Idle, time.Minute))
	r, err := http.NewRequestWithContext(w.ctx, method, at, nil)
	if err != nil {
		w.stop()
		return nil, errors.New("it is no URL")
	}
	if hub && c.Token != "" && strings.HasPrefix(at, c.Hub+"/") && isPrivate(r.URL) {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	r.Header.Set("User-Agent", "onnxquant")
	r.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file
	if bytes != "" {
		r.Header.Set("Range", bytes)
	}
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	if client.CheckRedirect = redirect; redirect == nil {
		client.CheckRedirect = follow
	}
	if r.URL.Host == helperName {
		client.Transport = helpers()
	}
	w.begin()
	response, err := client.Do(r)
	w.end()
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // it has the URL, which may be signed
		err = wrapped.Err
	}
	if err != nil {
		w.stop()
		return nil, advised(w.explain(err))
	}
	response.Body = &body{response.Body, w}
	return response, nil
}

// failure is the error of an answer.
func failure(r *http.Response) error {
	const longest = 2 * time.Minute
	e := &statusError{status: r.StatusCode, text: r.Header.Get("Onnxquant-Error")}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = min(time.Duration(s)*time.Second, longest)
	}
	return e
}

// contentRange returns the first byte of an answer and the size of the file.
func contentRange(r *http.Response) (first, total int64, err error) {
	switch r.StatusCode {
	case http.StatusOK:
		if r.ContentLength < 0 {
			return 0, 0, errors.New("the server does not tell the size of the file")
		}
		return 0, r.ContentLength, nil
	case http.StatusPartialContent:
		var last int64
		if n, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); n == 3 && err == nil {
			return first, total, nil
		}
		return 0, 0, errors.New("the server does not say which range it sends")
	}
	return 0, 0, failure(r)
}

// retry calls f until it succeeds, or fails for good, or too often without progress.
func (c *Client) retry(ctx context.Context, f func() (progress bool, err error)) error {
	pause, tries := c.Pause, 0
	for {
		progress, err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if tries++; progress {
			pause, tries = c.Pause, 1
		}
		if tries >= c.Tries || !isTransient(err) {
			return err
		}
		wait := pause
		var status *statusError
		if errors.As(err, &status) {
			wait = max(wait, status.after)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		pause *= 2
	}
}

// isTransient reports whether another try may succeed.
func isTransient(err error) bool {
	var status *statusError
	var nobody *unreachedError
	switch {
	case errors.As(err, &nobody):
		return false
	case errors.As(err, &status):
		return status.status >= http.StatusInternalServerError || status.status == http.StatusTooManyRequests || status.status == http.StatusRequestTimeout
	}
	var file *fs.PathError // it has Timeout, too
	var broken *brokenError
	if errors.As(err, &file) || errors.As(err, &broken) {
		return file == nil
	}
	var system interface{ Timeout() bool } // an error of the network
	return errors.As(err, &system) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

func (c *Client) isHubPrivate() bool {
	u, err := url.Parse(c.Hub)
	return err == nil && isPrivate(u)
}

// explain says what to do about an error.
func (c *Client) explain(name string, p *place, err error) error {
	name = Plain(name)
	var status *statusError
	if !errors.As(err, &status) || p.repository == "" {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch denied := status.status == http.StatusUnauthorized || status.status == http.StatusForbidden; {
	case denied && c.Token == "":
		return fmt.Errorf("%s: it is not public, or does not exist; the variable HF_TOKEN gives a token: %w", name, err)
	case denied && !c.isHubPrivate():
		return fmt.Errorf("%s: the token of HF_TOKEN is not sent, as HF_ENDPOINT is no https URL: %w", name, err)
	case denied:
		return fmt.Errorf("%s: the token of HF_TOKEN may not read it: %w", name, err)
	case status.status == http.StatusNotFound:
		return fmt.Errorf("%s: the repository has no such file or revision: %w", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
