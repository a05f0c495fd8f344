package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// store answers requests about objects.
type store struct {
	open    func(context.Context, place) (*blob.Bucket, error)
	mu      sync.Mutex
	buckets map[string]*blob.Bucket
}

func newStore(open func(context.Context, place) (*blob.Bucket, error)) *store {
	return &store{open: open, buckets: map[string]*blob.Bucket{}}
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	list := q.Has("list")
	name := q.Get("name")
	if list {
		name = q.Get("list")
	}
	p, err := parse(name)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	b, err := s.bucket(r.Context(), p)
	if err != nil {
		refuse(w, http.StatusUnauthorized, err)
		return
	}
	switch {
	case list && r.Method == http.MethodGet:
		err = listed(r.Context(), w, b, p)
	case r.Method == http.MethodHead:
		_, err = head(r.Context(), w, b, p.key)
	case r.Method == http.MethodGet:
		err = get(w, r, b, p.key)
	case r.Method == http.MethodPut:
		err = put(w, r, b, p)
	case r.Method == http.MethodDelete:
		err = b.Delete(r.Context(), p.key)
	default:
		err = &statusError{http.StatusMethodNotAllowed, "the method is not known"}
	}
	if err != nil {
		refuse(w, status(err), err)
	}
}

func (s *store) bucket(ctx context.Context, p place) (*blob.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := p.scheme + "://" + p.bucket
	if b := s.buckets[at]; b != nil {
		return b, nil
	}
	b, err := s.open(context.WithoutCancel(ctx), p) // it outlives the request
	if err == nil {
		s.buckets[at] = b
	}
	return b, err
}

// head sets the headers of an object.
func head(ctx context.Context, w http.ResponseWriter, b *blob.Bucket, key string) (*blob.Attributes, error) {
	a, err := b.Attributes(ctx, key)
	if err != nil {
		return nil, err
	}
	w.Header().Set("ETag", a.ETag)
	w.Header().Set("Last-Modified", a.ModTime.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.FormatInt(a.Size, 10))
	return a, nil
}

// get sends an object, or a range of it.
func get(w http.ResponseWriter, r *http.Request, b *blob.Bucket, key string) error {
	a, err := head(r.Context(), w, b, key)
	if err != nil {
		return err
	}
	first, n := int64(0), a.Size
	if text := r.Header.Get("Range"); text != "" {
		var last int64
		if _, err := fmt.Sscanf(text, "bytes=%d-%d", &first, &last); err != nil || first < 0 || last < first || first >= a.Size {
			return &statusError{http.StatusRequestedRangeNotSatisfiable, "the object has no such range"}
		}
		n = min(last+1, a.Size) - first
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, a.Size))
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	content, err := b.NewRangeReader(r.Context(), key, first, n, nil)
	if err != nil {
		return err
	}
	defer content.Close()
	if content.Size() != a.Size || !content.ModTime().Equal(a.ModTime) {
		return &statusError{http.StatusConflict, "the object was changed while it was read; try again"}
	}
	if n < a.Size {
		w.WriteHeader(http.StatusPartialContent)
	}
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // the connection ends, so that the reader notices
	}
	return nil
}

// put writes an object. It is given up when the request ends early: the object is then what it was.
func put(w http.ResponseWriter, r *http.Request, b *blob.Bucket, p place) error {
	if r.ContentLength < 0 {
		return &statusError{http.StatusLengthRequired, "the size of the object is missing"}
	}
	ctx, giveUp := context.WithCancel(context.WithoutCancel(r.Context()))
	defer giveUp()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(patience, giveUp) })()
	write := written
	if p.scheme == "s3" {
		write = uploaded
	}
	o := &blob.WriterOptions{BufferSize: partSize(r.ContentLength), ContentType: "application/octet-stream"}
	if err := write(ctx, giveUp, b, p.key, r.Body, o); err != nil {
		return err
	}
	a, err := head(ctx, w, b, p.key)
	if err != nil {
		return err
	}
	w.Header().Del("Content-Length") // of the object
	if a.Size != r.ContentLength {
		return &statusError{http.StatusConflict, "another content was written to the object at the same time"}
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

// patience is how long parts of an upload that is given up are removed.
const patience = 30 * time.Second

// uploaded writes an object. After an error of the content the parts are removed, for which the context must not have ended.
func uploaded(ctx context.Context, _ func(), b *blob.Bucket, key string, content io.Reader, o *blob.WriterOptions) error {
	return b.Upload(ctx, key, content, o)
}

// written writes an object of a store where the end of the context is what gives up.
func written(ctx context.Context, giveUp func(), b *blob.Bucket, key string, content io.Reader, o *blob.WriterOptions) error {
	w, err := b.NewWriter(ctx, key, o)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, content); err != nil {
		giveUp()
		w.Close()
		return err
	}
	return w.Close()
}

// partSize is the size of a part of an upload. Memory holds some of them, and S3 takes 10,000.
func partSize(n int64) int {
	const least, most = 8 << 20, 10_000
	return int(max(least, (n+most-1)/most))
}

// listed sends the names that begin with that of p.
func listed(ctx context.Context, w io.Writer, b *blob.Bucket, p place) error {
	var lines []byte
	for i := b.List(&blob.ListOptions{Prefix: p.key, Delimiter: "/"}); ; {
		o, err := i.Next(ctx)
		if err == io.EOF {
			_, err := w.Write(lines)
			return err
		}
		if err != nil {
			return err
		}
		if o.IsDir {
			continue
		}
		line, err := json.Marshal(p.scheme + "://" + p.bucket + "/" + o.Key)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
}

// statusError is an error with its status.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// status is the status for an error. Those from 500 may be tried again.
func status(err error) int {
	var own *statusError
	var coded interface{ HTTPStatusCode() int }
	switch code := gcerrors.Code(err); {
	case errors.As(err, &own):
		return own.status
	case code == gcerrors.NotFound:
		return http.StatusNotFound
	case code == gcerrors.PermissionDenied:
		return http.StatusForbidden
	case code == gcerrors.FailedPrecondition:
		return http.StatusPreconditionFailed
	case code == gcerrors.InvalidArgument || code == gcerrors.Unimplemented:
		return http.StatusBadRequest
	case errors.As(err, &coded) && coded.HTTPStatusCode() >= http.StatusBadRequest && coded.HTTPStatusCode() < http.StatusInternalServerError:
		return coded.HTTPStatusCode()
	}
	return http.StatusBadGateway
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, status int, err error) {
	h := w.Header()
	for _, name := range []string{"ETag", "Last-Modified", "Content-Length", "Content-Range"} {
		h.Del(name)
	}
	h.Set("Onnxquant-Error", message(status, err))
	w.WriteHeader(status)
}

var (
	query  = regexp.MustCompile(`\?[^\s"']*`) // of a URL: it may be a signature
	prefix = regexp.MustCompile(`^blob (\(key "[^"]*"\) )?\(code=\w+\): `)
)

// message is a line about an error, without secrets.
func message(status int, err error) string {
	text := strings.Join(strings.Fields(query.ReplaceAllString(err.Error(), "")), " ")
	text = prefix.ReplaceAllString(text, "")
	switch status {
	case http.StatusNotFound:
		return "there is no such object or bucket"
	case http.StatusForbidden:
		return "access is denied to the credentials of the environment: " + text
	}
	return text
}
