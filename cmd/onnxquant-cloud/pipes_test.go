package main

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// pipes are a connection over two pipes.
type pipes struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p pipes) Close() error                     { return errors.Join(p.PipeWriter.Close(), p.PipeReader.Close()) }
func (p pipes) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (p pipes) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (p pipes) SetDeadline(time.Time) error      { return nil }
func (p pipes) SetReadDeadline(time.Time) error  { return nil }
func (p pipes) SetWriteDeadline(time.Time) error { return nil }

func dialOnce(r *io.PipeReader, w *io.PipeWriter) func(context.Context, string, string) (net.Conn, error) {
	taken := false
	return func(context.Context, string, string) (net.Conn, error) {
		if taken {
			return nil, errors.New("the connection was closed")
		}
		taken = true
		return pipes{r, w}, nil
	}
}

// broken is a content that cannot be read.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
