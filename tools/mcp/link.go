package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Retry pauses while a server waits for a login.
const (
	loginPause = 2 * time.Second       // between checks for a login
	answerTime = 50 * time.Millisecond // during which callers that waited for a check share its result
)

// A link holds the session with a server of one lane, or of all lanes. It opens
// a new session when that is lost.
type link struct {
	connect func(context.Context) (*session, error)
	timeout time.Duration
	limits  limits
	log     *zap.Logger

	mu         sync.Mutex
	current    *session
	connecting chan struct{} // closed when the running attempt has ended; nil: no attempt is running
	failures   int           // in a row; an answered call or a lasting session resets it
	notBefore  time.Time     // of the next attempt
	why        error         // the last failure
	closed     bool
	used       time.Time // last use
	attempts   sync.WaitGroup
	cancel     context.CancelFunc // cancels the attempt
}

// An unreachable error means that there is no session, so nothing was sent.
type unreachable struct {
	why  error
	wait time.Duration // until the next attempt; 0: the next call makes it
}

func (e *unreachable) Error() string {
	text := e.why.Error()
	if e.wait > 0 && !waitsForLogin(e.why) {
		text += fmt.Sprintf("; it is tried again in %s", max(e.wait.Round(time.Second), time.Second))
	}
	return text
}

func (e *unreachable) Unwrap() error { return e.why }

var errLinkClosed = errors.New("this worker is stopping")

// acquire returns a session with a registered call, which the caller must
// finish.
func (l *link) acquire(ctx context.Context) (*session, error) {
	for {
		s, wait, err := l.take()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns the session, or a channel to wait for.
func (l *link) take() (*session, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = time.Now()
	if l.closed {
		return nil, nil, &unreachable{why: errLinkClosed}
	}
	if l.current != nil && l.current.begin() {
		return l.current, nil, nil
	}
	l.current = nil
	if l.connecting != nil {
		return nil, l.connecting, nil
	}
	if left := time.Until(l.notBefore); left > 0 && l.why != nil {
		return nil, nil, &unreachable{why: l.why, wait: left}
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	l.connecting, l.cancel = make(chan struct{}), cancel
	l.attempts.Go(func() { l.attempt(ctx, cancel) })
	return nil, l.connecting, nil
}

// attempt opens a session, with its own timeout: if a call stops waiting for
// the session, the next one can use it.
func (l *link) attempt(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	s, err := l.connect(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.connecting)
	l.connecting = nil
	switch {
	case err != nil:
		l.miss(err)
	case l.closed:
		l.attempts.Go(s.close)
	default:
		l.current, l.why, l.notBefore = s, nil, time.Time{}
		l.attempts.Go(func() { l.watch(s) })
	}
}

func waitsForLogin(err error) bool {
	waits, ok := errors.AsType[*AuthError](err)
	return ok && waits.Login != ""
}

// miss records a failed attempt. While a login is missing, the next call tries again,
// because that sends nothing to the server; this is logged once.
func (l *link) miss(err error) {
	if waitsForLogin(err) {
		logged := l.why != nil && l.why.Error() == err.Error()
		l.failures, l.why, l.notBefore = 0, err, time.Now().Add(answerTime)
		if !logged {
			l.log.Warn("an MCP server waits for a login", zap.Error(err))
		}
		return
	}
	l.fail(err)
	l.notBefore = l.pause(l.failures)
	l.log.Warn("an MCP server cannot be reached", zap.Error(err), zap.Int("failures", l.failures))
}

func (l *link) fail(why error) { l.failures, l.why = l.failures+1, why }

// pause returns when the next session may be opened after failures in a row. There is
// a pause after each failed attempt, but after the loss of an open session only from
// the second loss on.
func (l *link) pause(failures int) time.Time {
	pause := min(l.limits.FirstPause<<min(failures-1, 10), l.limits.LastPause)
	return time.Now().Add(pause/2 + rand.N(pause)) //nolint:gosec // no secret
}

// watch waits for the loss of a session and records it.
func (l *link) watch(s *session) {
	began := time.Now()
	<-s.lost()
	why := context.Cause(s.ctx)
	if errors.Is(why, errClosed) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == s {
		l.current = nil
	}
	if time.Since(began) > l.limits.LastPause {
		l.failures = 0
	}
	l.fail(why)
	if l.failures > 1 {
		l.notBefore = l.pause(l.failures - 1)
	} else {
		l.why = nil
	}
	l.log.Warn("the session with an MCP server was lost", zap.Error(why), zap.Int("failures", l.failures))
}

// worked resets the failures after an answer.
func (l *link) worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = 0
}

// unused returns how long the link has been unused, or 0 if it is in use.
func (l *link) unused() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connecting != nil || l.current != nil && l.current.busy() {
		return 0
	}
	return time.Since(l.used)
}

// close ends the link, and returns when its server has ended.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	s, cancel := l.current, l.cancel
	l.current = nil
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if s != nil {
		s.close()
	}
	l.attempts.Wait()
}
