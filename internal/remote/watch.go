package remote

import (
	"context"
	"errors"
	"io"
	"time"
)

// brokenError is the error of a connection that was there: another one may do.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// errIdle is a brokenError.
var errIdle = &brokenError{errors.New("the server sends nothing any more")}

// watch ends a request when its server sends nothing for some time. The time between reads does not count.
type watch struct {
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	idle   time.Duration
	timer  *time.Timer
}

func newWatch(ctx context.Context, idle time.Duration) *watch {
	w := &watch{idle: idle}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(idle, func() { w.cancel(errIdle) })
	return w
}

func (w *watch) begin() { w.timer.Reset(w.idle) }
func (w *watch) end()   { w.timer.Stop() }

// stop ends the request.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain is the error of a request, which may be that it was given up.
func (w *watch) explain(err error) error {
	if context.Cause(w.ctx) == errIdle {
		return errIdle
	}
	return err
}

// body is that of an answer, which is watched.
type body struct {
	io.ReadCloser
	w *watch
}

func (b *body) Read(p []byte) (int, error) {
	b.w.begin()
	n, err := b.ReadCloser.Read(p)
	b.w.end()
	if err != nil && err != io.EOF {
		err = b.w.explain(err)
		if err != errIdle {
			err = &brokenError{err}
		}
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.w.stop()
	return err
}
