package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"onnxquant/internal/process"
)

// helperName is the program that reads and writes objects of clouds. It speaks HTTP/1.1 over its standard input and output.
const helperName = "onnxquant-cloud"

var errNoHelper = errors.New("the program " + helperName + " is neither beside this one nor on the PATH; docs/remote.md says how to install it")

// helpers is the transport to helpers: each connection is a process.
var helpers = sync.OnceValue(func() *http.Transport {
	const most = 8
	return &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: most, IdleConnTimeout: 30 * time.Second, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return startHelper() },
	}
})

// pipe is a connection to a helper.
type pipe struct {
	io.Reader
	io.WriteCloser
	cmd  *exec.Cmd
	once sync.Once
}

// startHelper starts a helper. It ends when its input does, also if this process is killed; an interrupt does not reach it.
func startHelper() (net.Conn, error) {
	path, ok := process.Beside(helperName)
	if !ok {
		return nil, errNoHelper
	}
	cmd := process.Grouped(context.Background(), os.Interrupt, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(errNoHelper, err)
	}
	return &pipe{Reader: out, WriteCloser: in, cmd: cmd}, nil
}

// Close ends the input of the helper, which gives up what it does.
func (p *pipe) Close() (err error) {
	p.once.Do(func() {
		err = p.WriteCloser.Close()
		go func() { // its last words may take a while
			const patience = time.Minute
			kill := time.AfterFunc(patience, func() { process.KillGroup(p.cmd) })
			p.cmd.Wait()
			kill.Stop()
		}()
	})
	return err
}

type helperAddress struct{}

func (helperAddress) Network() string { return "pipe" }
func (helperAddress) String() string  { return helperName }

func (p *pipe) LocalAddr() net.Addr              { return helperAddress{} }
func (p *pipe) RemoteAddr() net.Addr             { return helperAddress{} }
func (p *pipe) SetDeadline(time.Time) error      { return nil } // the watch of a request ends it
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }
