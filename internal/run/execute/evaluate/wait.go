package evaluate

import "context"

// wait runs a job and returns its result, or the cause of the end of ctx, whatever comes first. A job that looks at
// ctx between nodes alone then ends with its node; nobody waits for that.
func wait[T any](ctx context.Context, job func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := job()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
