package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// helperURL asks a helper about a name.
func helperURL(key, name string) string {
	return "http://" + helperName + "/?" + key + "=" + url.QueryEscape(name)
}

// Put writes a file to an object. The object appears whole or not at all: after an error it is what it was.
func (c *Client) Put(ctx context.Context, name, path string) (*Info, error) {
	p, err := parse(name)
	if err == nil && p.object == "" {
		err = errors.New("only objects can be written: s3://, gs:// and azblob://")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Plain(name), err)
	}
	info := &Info{Name: p.object, url: helperURL("name", p.object)}
	err = c.retry(ctx, func() (bool, error) { return false, c.put(ctx, info, path) })
	if err != nil {
		return nil, c.explain(name, &p, err)
	}
	return info, nil
}

// Get reads a file as it is.
func (c *Client) Get(ctx context.Context, name, path string) error {
	info, err := c.Stat(ctx, name)
	if err != nil {
		return err
	}
	o, err := c.openObject(ctx, info, path)
	if err != nil {
		return err
	}
	defer os.Remove(path + partsSuffix)
	defer o.Close()
	return o.finish()
}

// atEnd is how long a store may take to put the parts of an object together.
const atEnd = 10 * time.Minute

func (c *Client) put(ctx context.Context, info *Info, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	info.Size = stat.Size()
	w := newWatch(ctx, max(c.Idle, atEnd))
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPut, info.url, &sent{io.LimitReader(f, info.Size), w})
	if err != nil {
		w.stop()
		return err
	}
	if r.ContentLength = info.Size; info.Size == 0 {
		r.Body = http.NoBody
	}
	response, err := helpers().RoundTrip(r)
	w.end()
	defer w.stop()
	if err != nil {
		return broken(w.explain(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return failure(response)
	}
	info.ETag = etag(response.Header.Get("ETag"))
	return nil
}

// broken is the error of a helper that ended: another one may do.
func broken(err error) error {
	var file *os.PathError
	if errors.Is(err, errNoHelper) || errors.As(err, &file) {
		return err
	}
	return &brokenError{err}
}

// sent is a file that is sent, which is watched.
type sent struct {
	io.Reader
	w *watch
}

func (s *sent) Read(b []byte) (int, error) {
	s.w.begin()
	return s.Reader.Read(b)
}

// Delete removes an object. It is no error if there is none.
func (c *Client) Delete(ctx context.Context, name string) error {
	p, err := parse(name)
	if err == nil {
		err = c.retry(ctx, func() (bool, error) {
			r, err := c.do(ctx, http.MethodDelete, helperURL("name", p.object), false, "", nil)
			if err != nil {
				return false, broken(err)
			}
			r.Body.Close()
			if r.StatusCode >= http.StatusMultipleChoices && r.StatusCode != http.StatusNotFound {
				return false, failure(r)
			}
			return false, nil
		})
	}
	if err != nil {
		return c.explain(name, &p, err)
	}
	return nil
}

// List returns the objects whose names begin with prefix, and have no / after it.
func (c *Client) List(ctx context.Context, prefix string) (names []string, err error) {
	err = c.retry(ctx, func() (bool, error) {
		names = nil
		r, err := c.do(ctx, http.MethodGet, helperURL("list", prefix), false, "", nil)
		if err != nil {
			return false, broken(err)
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return false, failure(r)
		}
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			var name string
			if err := json.Unmarshal(lines.Bytes(), &name); err != nil {
				return false, err
			}
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		return false, lines.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", prefix, err)
	}
	return names, nil
}
