package pg

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A connection can die without a word: a firewall forgets it, a host in between
// loses power. Nothing comes then, and no time-out of the server's is heard. So
// each wait for an answer has a bound on this side too, longer than what the
// server allows a statement.

// answerWithin is the bound of one statement or pipeline, given what the server
// allows a statement.
func answerWithin(statement time.Duration) time.Duration { return statement + statement/6 }

// pingWithin is how long a connection that lay idle may take to show that it
// lives before another is taken. Several may be dead at once, and are tried one
// after the other.
const pingWithin = 2 * time.Second

// dialer finds out in half a minute that an idle peer is gone, where the network
// does not hide it.
var dialer = &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
	Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
}}

// An answerBound gives every wait for an answer its bound. The connection that
// meets it is closed; whether what it did was done is not known. It hands errors
// to the resetter, where there is one.
type answerBound struct {
	limit  time.Duration
	resets *resetter
}

var (
	_ pgx.QueryTracer = answerBound{}
	_ pgx.BatchTracer = answerBound{}
)

type boundKey struct{}

// A bounded wait has the context of who waits, and ends its own.
type bounded struct {
	asked context.Context //nolint:containedctx // it is looked at when the wait ends
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

func (answerBound) end(ctx context.Context, conn *pgx.Conn) {
	wait, ok := ctx.Value(boundKey{}).(bounded)
	if !ok {
		return
	}
	wait.end()
	if broke, ok := ctx.Value(breakKey{}).(*atomic.Bool); ok && conn.IsClosed() && wait.asked.Err() == nil {
		broke.Store(true)
	}
}

type breakKey struct{}

// WatchBreak returns a context for statements, and whether a connection broke under one of them that its caller
// still waited for: a caller that gives up breaks the connection, too.
func WatchBreak(ctx context.Context) (_ context.Context, broke func() bool) {
	seen := &atomic.Bool{}
	return context.WithValue(ctx, breakKey{}, seen), seen.Load
}

// TraceQueryStart begins the wait for a statement.
func (b answerBound) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return b.begin(ctx)
}

// TraceQueryEnd ends it.
func (b answerBound) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	b.end(ctx, conn)
	b.resets.heed(data.Err)
}

// TraceBatchStart begins the wait for a pipeline.
func (b answerBound) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return b.begin(ctx)
}

// TraceBatchQuery ends no wait: the bound is the whole pipeline's.
func (b answerBound) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	b.resets.heed(data.Err)
}

// TraceBatchEnd ends it.
func (b answerBound) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	b.end(ctx, conn)
	b.resets.heed(data.Err)
}

type unboundKey struct{}

// Unbound is for statements that may take as long as they need: a migration
// rewrites tables, and waits for another process's.
func Unbound(ctx context.Context) context.Context {
	return context.WithValue(ctx, unboundKey{}, true)
}
