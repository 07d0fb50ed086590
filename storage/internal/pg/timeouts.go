package pg

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A connection can die silently, as when a firewall forgets it or a host loses power.
// The server's timeouts do not help then. So each wait for an answer also has a timeout
// on this side, longer than the server's statement timeout.

// answerWithin returns the timeout of one statement or pipeline, given the server's
// statement timeout.
func answerWithin(statement time.Duration) time.Duration { return statement + statement/6 }

// pingWithin is the timeout for checking an idle connection before it is used. It is
// short because several may be dead, and the pool checks one after the other.
const pingWithin = 2 * time.Second

// dialer makes the system detect within half a minute that the peer of an idle
// connection is gone.
var dialer = &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
	Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
}}

// An answerBound gives every statement and pipeline a timeout. When it is reached, the
// connection is closed, and whether the statement was done is not known. It passes
// errors to the resetter, if there is one, and each outcome to the outage.
type answerBound struct {
	limit  time.Duration
	resets *resetter
	outage *Outage
}

var (
	_ pgx.QueryTracer   = answerBound{}
	_ pgx.BatchTracer   = answerBound{}
	_ pgx.ConnectTracer = answerBound{}
)

type boundKey struct{}

// A bounded holds the caller's context and ends the one with the timeout.
type bounded struct {
	asked context.Context //nolint:containedctx // read when the wait ends
	end   context.CancelFunc
}

func (b answerBound) begin(ctx context.Context) context.Context {
	if ctx.Value(unboundKey{}) != nil {
		return ctx
	}
	asked := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("the database did not answer within %s", b.limit))
	return context.WithValue(ctx, boundKey{}, bounded{asked, cancel})
}

func (b answerBound) end(ctx context.Context, conn *pgx.Conn, err error) {
	b.resets.heed(err)
	wait, ok := ctx.Value(boundKey{}).(bounded)
	if !ok {
		b.outage.saw(ctx, err)
		return
	}
	b.outage.saw(wait.asked, err)
	wait.end()
	if broke, ok := ctx.Value(breakKey{}).(*atomic.Bool); ok && conn.IsClosed() && wait.asked.Err() == nil {
		broke.Store(true)
	}
}

type breakKey struct{}

// WatchBreak returns a context for statements, and a function that reports whether a connection broke during one of
// them. A connection that closed because the caller's own context ended does not count.
func WatchBreak(ctx context.Context) (_ context.Context, broke func() bool) {
	seen := &atomic.Bool{}
	return context.WithValue(ctx, breakKey{}, seen), seen.Load
}

// TraceQueryStart starts the timeout of a statement.
func (b answerBound) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return b.begin(ctx)
}

// TraceQueryEnd ends it.
func (b answerBound) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	b.end(ctx, conn, data.Err)
}

// TraceBatchStart starts the timeout of a pipeline.
func (b answerBound) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return b.begin(ctx)
}

// TraceBatchQuery ends no timeout, because that is for the whole pipeline.
func (b answerBound) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	b.resets.heed(data.Err)
}

// TraceBatchEnd ends it.
func (b answerBound) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	b.end(ctx, conn, data.Err)
}

// TraceConnectStart does nothing: a connection attempt has its own timeout.
func (answerBound) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd passes the outcome of a connection attempt to the outage.
func (b answerBound) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	b.outage.saw(context.Background(), data.Err)
}

type unboundKey struct{}

// Unbound returns a context whose statements have no timeout. It is for migrations,
// which rewrite tables and wait for other processes.
func Unbound(ctx context.Context) context.Context {
	return context.WithValue(ctx, unboundKey{}, true)
}
