package responses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

const (
	pollTime     = time.Second      // interval of queries without a doorbell
	writeTimeout = 30 * time.Second // time a client has to read one write
)

// A watch tells a handler that waits for a response when to query it again.
type watch struct {
	rings    <-chan struct{}
	poll     *time.Ticker
	alive    <-chan time.Time
	draining <-chan struct{}
	over     <-chan time.Time
	cancel   func()
}

func (a *API) watch(over time.Duration) *watch {
	rings, cancel := a.cfg.Rings()
	alive, poll := time.NewTicker(a.cfg.KeepAlive), time.NewTicker(pollTime)
	w := &watch{rings: rings, poll: poll, alive: alive.C, draining: a.cfg.Draining}
	w.cancel = func() { cancel(); poll.Stop(); alive.Stop() }
	if over > 0 {
		w.over = time.After(over)
	}
	return w
}

// A reason is why watch.next returned.
type reason int

const (
	look reason = iota
	keepAlive
	stopped // the process stops
	timeUp
	gone // the client has disconnected
)

func (w *watch) next(ctx context.Context) reason {
	select {
	case <-w.rings:
		return look
	case <-w.poll.C:
		return look
	case <-w.alive:
		return keepAlive
	case <-w.draining:
		return stopped
	case <-w.over:
		return timeUp
	case <-ctx.Done():
		return gone
	}
}

// answer waits for a response to complete, at most wait, and answers with its state.
func (a *API) answer(c Call, id turnkeeper.MessageID, wait time.Duration) error {
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	r, why, err := a.await(c.Context(), id, wait)
	switch {
	case err != nil:
		return err
	case why == gone:
		return ErrGone
	case why == stopped && r.Outcome == "" && c.Method == http.MethodPost && keyOf(c.Request) != "":
		// With a key, a repeat at another process waits for the same response.
		c.W.Header().Set("Retry-After", "1")
		return &Error{Status: http.StatusServiceUnavailable,
			Message: "this process is stopping, but the response continues: repeat the request with its Idempotency-Key, or poll " + idOf(id), Code: "stopping"}
	}
	return write(c.W, http.StatusOK, viewOf(r))
}

func (a *API) await(ctx context.Context, id turnkeeper.MessageID,
	wait time.Duration) (r operate.Response, why reason, err error) {
	w := a.watch(wait)
	defer w.cancel()
	for {
		r, err = a.cfg.Store.Response(ctx, id)
		if err != nil || r.Outcome != "" || wait == 0 {
			return r, look, err
		}
		for why = keepAlive; why == keepAlive; {
			why = w.next(ctx)
		}
		if why != look {
			return r, why, nil
		}
	}
}

// stream writes the present and future events of a response with numbers above after. A stream that
// cannot reach the last event ends with a connection error, so that no client takes it for complete.
func (a *API) stream(c Call, r operate.Response, after int64) error {
	if err := c.OpenStream(); err != nil {
		return err
	}
	out := &writer{w: c.W, control: http.NewResponseController(c.W), after: after}
	c.W.Header().Set("Content-Type", "text/event-stream")
	c.W.Header().Set("X-Accel-Buffering", "no")
	if err := out.write(nil); err != nil {
		return ErrGone
	}
	if r.Drafts {
		return a.streamDrafts(c, r, out)
	}
	w := a.watch(0)
	defer w.cancel()
	for {
		if err := out.events(eventsOf(r)); err != nil {
			return ErrGone
		}
		if r.Outcome != "" {
			return nil
		}
		if err := a.idle(w.next(c.Context()), out); err != nil {
			return err
		}
		now, err := a.cfg.Store.Response(c.Context(), r.Message.ID) // another error is temporary
		if errors.Is(err, turnkeeper.ErrNotFound) {
			panic(http.ErrAbortHandler) // purged
		}
		if err == nil {
			r = now
		}
	}
}

// idle runs after a watch that returned no events.
func (a *API) idle(why reason, out *writer) error {
	switch why {
	case keepAlive:
		// One line, without the empty line that ends an event: some clients would deliver an empty event.
		if err := out.write([]byte(": still here\n")); err != nil {
			return ErrGone
		}
	case stopped:
		panic(http.ErrAbortHandler)
	case gone:
		return ErrGone
	case look, timeUp:
	}
	return nil
}

// streamDrafts writes the events of a response with drafts.
func (a *API) streamDrafts(c Call, r operate.Response, out *writer) error {
	ctx, leave := context.WithCancel(c.Context())
	taken, followed := make(chan turnkeeper.Event), make(chan struct{})
	defer func() { leave(); <-followed }()
	go func() { defer close(followed); a.follow(ctx, r.Message.ID, taken) }()
	alive := time.NewTicker(a.cfg.KeepAlive)
	defer alive.Stop()
	d := draftsOf(r)
	for {
		if err := out.events(d.events); err != nil {
			return ErrGone
		}
		why := look
		select {
		case e, more := <-taken:
			if !more {
				return a.endDrafts(c, d, out)
			}
			d.take(e)
		case <-alive.C:
			why = keepAlive
		case <-a.cfg.Draining:
			why = stopped
		case <-c.Context().Done():
			why = gone
		}
		if err := a.idle(why, out); err != nil {
			return err
		}
	}
}

// follow sends the events of the turns of a message, and closes the channel after the last one, or if there can be no
// more.
func (a *API) follow(ctx context.Context, id turnkeeper.MessageID, to chan<- turnkeeper.Event) {
	defer close(to)
	for e, err := range a.cfg.Hub.Message(ctx, id, stream.Cursor{}) {
		if err != nil || e.Type == stream.MessageClosed {
			return
		}
		select {
		case to <- e.Event:
		case <-ctx.Done():
			return
		}
	}
}

// endDrafts writes the last events, after the last event of the turns.
func (a *API) endDrafts(c Call, d *drafts, out *writer) error {
	r, err := a.cfg.Store.Response(c.Context(), d.r.Message.ID)
	if err != nil || r.Outcome == "" { // purged, or not reachable
		panic(http.ErrAbortHandler)
	}
	d.end(r)
	// events of turns were deleted since the client read them: it gets the last one
	if n := int64(len(d.events)); out.after >= n {
		out.after = n - 2
	}
	if err := out.events(d.events); err != nil {
		return ErrGone
	}
	return nil
}

type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	after   int64 // number of the last event that the client has; -1: it has none
}

// events writes those of the events that the client has not.
func (w *writer) events(all []event) error {
	for _, e := range all[min(w.after+1, int64(len(all))):] {
		if err := w.event(e); err != nil {
			return err
		}
		w.after = e.Number
	}
	return nil
}

func (w *writer) event(e event) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: ", e.Type)
	if err := encode(&b, e); err != nil {
		return err
	}
	b.WriteByte('\n')
	return w.write(b.Bytes())
}

// write writes and flushes, within writeTimeout.
func (w *writer) write(b []byte) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.w.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}
