package remote

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"onnxquant/internal/modelfile"
)

// hubScheme begins names of files of the hub: hf://OWNER/REPOSITORY[@REVISION]/PATH.
const hubScheme = "hf://"

// objectSchemes begin names of objects: s3://BUCKET/KEY.
var objectSchemes = []string{"s3://", "gs://", "azblob://"}

// Is reports whether a name is that of a remote file.
func Is(name string) bool {
	return IsObject(name) || begins(name, hubScheme) || begins(name, "https://") || begins(name, "http://")
}

// IsObject reports whether a name is that of an object, which can be written.
func IsObject(name string) bool {
	return slices.ContainsFunc(objectSchemes, func(scheme string) bool { return begins(name, scheme) })
}

// urlLike begins the name of something that is no file. A single letter is a drive of Windows.
var urlLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:/`)

// CheckOut refuses a name for an output that is neither that of a file nor that of an object.
func CheckOut(name string) error { return checkOut(name, "file") }

// CheckFolder refuses a name for outputs that is neither that of a folder nor that of objects.
func CheckFolder(name string) error {
	if IsObject(name) {
		name = strings.TrimRight(name, "/") + "/key"
	}
	return checkOut(name, "folder")
}

func checkOut(name, what string) error {
	switch {
	case IsObject(name):
		if _, err := parse(name); err != nil {
			return fmt.Errorf("%s: %w", Plain(name), err)
		}
	case begins(name, hubScheme):
		return fmt.Errorf("%s: outputs cannot be written to the hub; name a %s, and upload it with the hub's own tools", Plain(name), what)
	case urlLike.MatchString(name):
		return fmt.Errorf("%s: only %ss and objects can be written, s3://BUCKET/KEY, gs://BUCKET/KEY and azblob://CONTAINER/KEY; for a %s of this name, write ./ before it", Plain(name), what, what)
	}
	return nil
}

// CheckFile refuses a name for an output that is not that of a file.
func CheckFile(name string) error {
	if IsObject(name) {
		return fmt.Errorf("%s: only outputs of a conversion or a batch can be objects; name a file", Plain(name))
	}
	return CheckOut(name)
}

func begins(name, scheme string) bool {
	return len(name) > len(scheme) && strings.EqualFold(name[:len(scheme)], scheme)
}

// place is where a file is.
type place struct {
	repository, revision string // of the hub; "" for other servers
	path                 string // of the file in the repository
	url                  *url.URL
	object               string // its name; "" for other servers
}

func parse(name string) (p place, err error) {
	switch {
	case begins(name, hubScheme):
		return parseHub(name[len(hubScheme):])
	case IsObject(name):
		return parseObject(name)
	}
	if p.url, err = url.Parse(name); err != nil {
		return p, errors.New("it is no URL")
	}
	switch {
	case p.url.User != nil:
		return p, errors.New("a URL with a user or a password would be recorded; give it without")
	case p.url.Scheme == "http" && !isLoopback(p.url):
		return p, errors.New("want https; http is for this machine alone")
	case p.url.Host == "" || Base(name) == "":
		return p, errors.New("want https://HOST/PATH of a file")
	}
	return p, nil
}

func parseHub(rest string) (p place, err error) {
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return p, errors.New("want hf://OWNER/REPOSITORY/PATH or hf://OWNER/REPOSITORY@REVISION/PATH")
	}
	name, revision, _ := strings.Cut(parts[1], "@")
	if revision == "" {
		revision = "main"
	}
	if revision, err = url.PathUnescape(revision); err != nil {
		return p, errors.New("the revision has a wrong escape")
	}
	p.repository, p.revision, p.path = parts[0]+"/"+name, revision, parts[2]
	for _, text := range []string{p.repository, p.path} {
		if path.Clean("/"+text) != "/"+text || strings.ContainsAny(text, "?#%\\") {
			return p, errors.New("the path is not a plain one")
		}
	}
	return p, nil
}

func parseObject(name string) (p place, err error) {
	scheme, rest, _ := strings.Cut(name, "://")
	bucket, key, _ := strings.Cut(rest, "/")
	if bucket == "" || key == "" || strings.HasSuffix(key, "/") {
		return p, fmt.Errorf("want %s://BUCKET/KEY of an object", scheme)
	}
	if path.Clean("/"+key) != "/"+key || strings.ContainsAny(rest, "?#\\") {
		return p, errors.New("the key is not a plain path: it has a part such as .., // or one of ? # \\")
	}
	p.object = strings.ToLower(scheme) + "://" + rest
	return p, nil
}

// Same reports whether two names are those of one object.
func Same(a, b string) bool {
	p, err := parse(a)
	q, err2 := parse(b)
	return errors.Join(err, err2) == nil && p.object != "" && p.object == q.object
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Base returns the name of the file without folders.
func Base(name string) string {
	if IsObject(name) {
		name = Plain(name)
		return name[strings.LastIndexByte(name, '/')+1:]
	}
	u, err := url.Parse(name)
	if err != nil || u.Path == "" || strings.HasSuffix(u.Path, "/") {
		return ""
	}
	return path.Base(u.Path)
}

// beside returns the name of a file at a location that begins in the folder of the file called name.
func beside(name, location string) (string, error) {
	if err := modelfile.CheckLocation(location); err != nil {
		return "", err
	}
	if IsObject(name) || begins(name, hubScheme) {
		scheme, rest, _ := strings.Cut(name, "://")
		return scheme + "://" + path.Join(path.Dir(rest), location), nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", err
	}
	return u.ResolveReference(&url.URL{Path: location}).String(), nil
}

// Plain returns a name without the query of a URL, which may be a signature: it is for messages and records. A name of the hub has
// no query.
func Plain(name string) string {
	if begins(name, hubScheme) || !urlLike.MatchString(name) {
		return name
	}
	if i := strings.IndexAny(name, "?#"); i >= 0 {
		return name[:i]
	}
	return name
}

// pinned is the name with the commit that the hub resolved the revision to, and without a query.
func (p *place) pinned(commit string) string {
	if p.object != "" {
		return p.object
	}
	if p.repository == "" {
		return Plain(p.url.String())
	}
	if commit == "" {
		commit = p.revision
	}
	return fmt.Sprintf("%s%s@%s/%s", hubScheme, p.repository, url.PathEscape(commit), p.path)
}
