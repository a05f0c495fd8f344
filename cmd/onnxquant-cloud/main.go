// Command onnxquant-cloud reads and writes objects for onnxquant: s3://BUCKET/KEY, gs://BUCKET/KEY and azblob://CONTAINER/KEY.
//
// onnxquant starts it, and asks by HTTP/1.1 over standard input and output:
//
//	HEAD   /?name=NAME    size and ETag of an object
//	GET    /?name=NAME    its content, or a range of it
//	PUT    /?name=NAME    a new content, which appears whole or not at all
//	DELETE /?name=NAME    removes an object
//	GET    /?list=NAME    names that begin with NAME, a JSON string a line
//
// An error is a status with a line of text in the header Onnxquant-Error. When standard input ends, what is in work is given up.
//
// Credentials come from the environment, as the libraries of the providers read it. The program is a module of its own, so that these
// libraries are no dependencies of onnxquant.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(told(os.Args[1:], os.Stdout, os.Stderr))
	}
	signal.Ignore(os.Interrupt) // it ends with onnxquant
	out := os.Stdout
	os.Stdout = os.Stderr // libraries print to it, as that of Google does without credentials
	serve(os.Stdin, out, newStore(openBucket))
}

// version overrides the version that the Go tool records, as that of onnxquant does.
var version string

const help = `Reads and writes objects for onnxquant: s3://BUCKET/KEY, gs://BUCKET/KEY and
azblob://CONTAINER/KEY. onnxquant starts it, and talks to it over standard input and output.

Usage:
  onnxquant-cloud
  onnxquant-cloud --version    show the version of the program, of Go, and the platform
  onnxquant-cloud --help       show this text

It is found beside onnxquant, or in the PATH. Credentials come from the environment, as the
libraries of the providers read it.
`

// told answers a command line of a user, and returns the exit status.
func told(args []string, out, errors io.Writer) int {
	switch {
	case len(args) == 1 && slices.Contains([]string{"--version", "version"}, args[0]):
		said := version
		if info, ok := debug.ReadBuildInfo(); ok && said == "" {
			said = strings.Trim(info.Main.Version, "()")
		}
		fmt.Fprintf(out, "onnxquant-cloud %s (%s %s/%s)\n", cmp.Or(said, "devel"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return 0
	case len(args) == 1 && slices.Contains([]string{"--help", "-h", "help"}, args[0]):
		fmt.Fprint(out, help)
		return 0
	}
	fmt.Fprintln(errors, "onnxquant-cloud: onnxquant runs it for names such as s3://BUCKET/KEY; for users it has --version and --help")
	return 2
}

// serve answers requests until in ends, and no handler is at work.
func serve(in io.Reader, out io.Writer, h http.Handler) {
	near, far := net.Pipe() // it has deadlines, which the server needs, and which files lack on some systems
	go func() {
		io.Copy(far, in)
		far.Close()
	}()
	go func() {
		io.Copy(out, far)
		far.Close() // nobody reads what is written
	}()
	s := http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	l := &single{conn: near, closed: make(chan struct{})}
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			l.Close()
		}
	}
	s.Serve(l)
}

// single is a listener with one connection, which ends with it.
type single struct {
	conn   net.Conn
	taken  bool
	once   sync.Once
	closed chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.closed
	return nil, io.EOF
}

func (l *single) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }
