package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

const (
	defaultEvents = 500
	maxEvents     = 1000
)

// An EventStore reads for the route of events.
type EventStore interface {
	Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error)
	WhoseTurn(ctx context.Context, id turnkeeper.TurnID) (turnkeeper.ConversationKey, error)
	ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error)
	WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error)
}

// events serves the events of turns, as lists and as streams.
type events struct {
	store     EventStore
	access    access.Access
	hub       *stream.Hub
	draining  <-chan struct{}
	keepAlive time.Duration // interval of comments in a stream
	timeout   time.Duration // of one query of a stream
}

// source is the hub's source of events.
type source struct {
	store EventStore
	rings func() (<-chan struct{}, func())
}

func (s source) Events(ctx context.Context, turn turnkeeper.TurnID, after int64,
	limit int) ([]turnkeeper.Event, error) {
	return s.store.Events(ctx, turn, after, limit)
}

func (s source) WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	return s.store.WatchedMessages(ctx, ids)
}

func (s source) Subscribe() (<-chan struct{}, func()) { return s.rings() }

// get answers with the events after a number: the stored ones as a list, or the stored and all
// future ones as server-sent events.
func (s *events) get(c *request.Call) error {
	id, err := request.ID[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	after, err := afterOf(c)
	if err != nil {
		return err
	}
	err = s.access.CheckTurn(c, id)
	if !wantsStream(c.Request) {
		if err != nil {
			return err
		}
		return s.list(c, id, after)
	}
	if _, refused := errors.AsType[*request.Problem](err); refused {
		return err
	}
	// An EventSource never reconnects after a status other than 200: on a temporary error the stream
	// starts and ends, and the client reconnects.
	return s.stream(c, id, after, err == nil)
}

// wantsStream reports whether the client accepts text/event-stream with a weight above 0.
func wantsStream(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, parameters, _ := mime.ParseMediaType(part)
		weight, err := strconv.ParseFloat(parameters["q"], 64)
		if kind == "text/event-stream" && (err != nil || weight > 0) {
			return true
		}
	}
	return false
}

// retryLater ends a stream before its first event, and asks the client to reconnect after three
// seconds: there are too many requests, or the database does not answer.
func retryLater(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "retry: 3000\n\n")
	_ = http.NewResponseController(w).Flush()
}

// afterOf returns the number of the last event the client has. Last-Event-ID wins over the query: a
// client that reconnects repeats the URL of its first request.
func afterOf(c *request.Call) (int64, error) {
	text := c.Header.Get("Last-Event-ID")
	if text == "" {
		return c.Number("after", 0)
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, request.Refuse(http.StatusBadRequest, "Last-Event-ID must be the number of an event")
	}
	return after, nil
}

func (s *events) list(c *request.Call, id turnkeeper.TurnID, after int64) error {
	limit, err := c.Number("limit", defaultEvents)
	if err != nil || limit < 1 || limit > maxEvents {
		return request.Refuse(http.StatusBadRequest, "limit must be 1 to %d", maxEvents)
	}
	found, err := s.store.Events(c.Context(), id, after, int(limit))
	if err != nil {
		return err
	}
	next := after
	if len(found) > 0 {
		next = found[len(found)-1].Seq
	}
	return c.Respond(http.StatusOK, listOf(found, views.OfEvent, next))
}

func (s *events) stream(c *request.Call, id turnkeeper.TurnID, after int64, reachable bool) error {
	if reachable && !isClosed(s.draining) {
		var over bool
		if after, over = s.position(c.Context(), id, after); over {
			// Per the HTML standard, 204 tells an EventSource not to reconnect: the client has the
			// last event.
			c.W.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	return s.serve(c, reachable, feed{
		future:   func(ctx context.Context, w *eventWriter) error { return s.writeTurn(ctx, w, id, after) },
		stored:   func(ctx context.Context, w *eventWriter) error { return s.writeStored(ctx, w, id, after) },
		isPurged: func(ctx context.Context) bool { return s.isPurged(ctx, id) },
	})
}

// A feed writes the events of one stream. The contexts end when the client does not read, or the process drains.
type feed struct {
	future func(context.Context, *eventWriter) error // writes the stored events and all future ones
	// writes the stored ones, while the process drains; nil: it writes none then
	stored   func(context.Context, *eventWriter) error
	isPurged func(context.Context) bool // nil: future ends by itself
}

// serve answers with a stream of server-sent events. If the database is not reachable, the stream starts and ends.
func (s *events) serve(c *request.Call, reachable bool, f feed) error {
	if err := c.OpenStream(); err != nil {
		return err
	}
	header := c.W.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	if c.Method == http.MethodHead {
		return nil
	}
	c.PauseTimeout() // a stream lasts as long as its turn
	w := &eventWriter{w: c.W, control: http.NewResponseController(c.W)}
	if err := w.write([]byte("retry: 1000\n\n")); err != nil || !reachable {
		return request.ErrGone
	}
	if isClosed(s.draining) {
		if f.stored == nil {
			return request.ErrGone
		}
		return f.stored(c.Context(), w)
	}
	ctx, stop := context.WithCancelCause(c.Context())
	defer stop(nil)
	watched := make(chan struct{})
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer stop(nil)
	defer close(watched)
	keeping.Go(func() { s.comment(ctx, w, f.isPurged, watched, stop) })
	return f.future(ctx, w)
}

// writeTurn writes the stored and future events of a turn.
func (s *events) writeTurn(ctx context.Context, w *eventWriter, id turnkeeper.TurnID, after int64) error {
	for event, err := range s.hub.Follow(ctx, id, after) {
		if ctx.Err() != nil {
			return request.ErrGone
		}
		if err != nil {
			continue // Follow reads again
		}
		if err := w.event(event); err != nil {
			return request.ErrGone
		}
	}
	return nil
}

var (
	errDraining = errors.New("the process is stopping")
	errPurged   = errors.New("the turn was purged")
)

// purgeCheckEvery is the number of comments between checks that the turn still exists: a purged turn
// has no last event.
const purgeCheckEvery = 4

// comment writes a comment every keepAlive, and ends the stream when the process drains, the client
// does not read or the turn is purged.
func (s *events) comment(ctx context.Context, w *eventWriter, isPurged func(context.Context) bool,
	watched <-chan struct{}, stop context.CancelCauseFunc) {
	tick := time.NewTicker(s.keepAlive)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-watched:
			return
		case <-s.draining:
			stop(errDraining)
			return
		case <-tick.C:
			if err := w.write([]byte(": still here\n\n")); err != nil {
				stop(err)
				return
			}
			if n%purgeCheckEvery == 0 && isPurged != nil && isPurged(ctx) {
				stop(errPurged)
				return
			}
		}
	}
}

func (s *events) isPurged(ctx context.Context, id turnkeeper.TurnID) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := s.store.WhoseTurn(ctx, id)
	return errors.Is(err, turnkeeper.ErrNotFound)
}

// position returns the number of the last event a client has, and whether it is the turn's last event.
// It lowers a number beyond the newest event, as after the database was restored from a backup, to the
// newest: otherwise the client would get neither an event nor an end.
func (s *events) position(ctx context.Context, id turnkeeper.TurnID, after int64) (_ int64, over bool) {
	event, there, err := s.eventAt(ctx, id, after)
	if err == nil && !there && after > 0 {
		if turn, err := s.store.ViewTurn(ctx, id); err == nil {
			after = min(after, turn.Turn.LastSeq)
			event, _, _ = s.eventAt(ctx, id, after) // on an error, the turn counts as open
		}
	}
	return after, event.Type.Terminal()
}

func (s *events) eventAt(ctx context.Context, id turnkeeper.TurnID,
	seq int64) (event turnkeeper.Event, there bool, err error) {
	if seq == 0 {
		return event, false, nil
	}
	events, err := s.store.Events(ctx, id, seq-1, 1)
	if err != nil || len(events) == 0 {
		return event, false, err
	}
	return events[0], true, nil
}

// writeStored writes the stored events and ends the stream: the client reconnects to another process.
func (s *events) writeStored(ctx context.Context, w *eventWriter, id turnkeeper.TurnID, after int64) error {
	for {
		events, err := s.read(ctx, id, after)
		if err != nil || len(events) == 0 {
			return request.ErrGone
		}
		for _, event := range events {
			after = event.Seq
			if err := w.event(event); err != nil {
				return request.ErrGone
			}
		}
	}
}

func (s *events) read(ctx context.Context, id turnkeeper.TurnID, after int64) ([]turnkeeper.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.store.Events(ctx, id, after, defaultEvents)
}

// An eventWriter writes a stream of server-sent events. It is safe for concurrent use.
type eventWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

func (w *eventWriter) event(e turnkeeper.Event) error {
	return w.numbered(strconv.FormatInt(e.Seq, 10), e)
}

// numbered writes an event with an id; empty: it has none, and a client that reconnects sends that of the event before
// it.
func (w *eventWriter) numbered(id string, e turnkeeper.Event) error {
	var b bytes.Buffer
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: ", e.Type)
	if err := request.Encode(&b, views.OfEvent(e)); err != nil { // one line, with its newline
		return err
	}
	b.WriteByte('\n')
	return w.write(b.Bytes())
}

// write writes and flushes, within writeTimeout.
func (w *eventWriter) write(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.w.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}
