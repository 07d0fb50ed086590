package request

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrQueryTimeout says that the queries of a request took too long.
var ErrQueryTimeout = errors.New("the queries of this request took too long")

// WithinTimeout calls do, and ends the context of the call when limit is over, not counting the time while
// PauseTimeout is in effect. Then the error matches ErrQueryTimeout.
func (c *Call) WithinTimeout(limit time.Duration, do func() error) error {
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	c.Request = c.WithContext(ctx)
	c.timeout, c.limit = time.AfterFunc(limit, func() { cancel(ErrQueryTimeout) }), limit
	defer c.timeout.Stop()
	return timedOut(ctx, do())
}

// PauseTimeout stops the timeout of WithinTimeout, while the client sends a body or the handler waits for a
// reply. resume starts it again from zero.
func (c *Call) PauseTimeout() (resume func()) {
	if c.timeout == nil {
		return func() {}
	}
	c.timeout.Stop()
	return func() { c.timeout.Reset(c.limit) }
}

// WithinTimeout calls do with a context that ends after limit. Then the error matches ErrQueryTimeout.
func WithinTimeout(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrQueryTimeout)
	defer cancel()
	return timedOut(ctx, do(ctx))
}

func timedOut(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrQueryTimeout) {
		return fmt.Errorf("%w: %w", ErrQueryTimeout, err)
	}
	return err
}
