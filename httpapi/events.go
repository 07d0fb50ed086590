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
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

const (
	defaultEvents = 500
	maxEvents     = 1000
)

// getEvents gives the events after a number: those that are stored, as a list, or
// those and all that come, as a stream of server-sent events.
func (a *API) getEvents(c *call) error {
	id, err := idOf[turnkeeper.TurnID](c, "turn")
	if err != nil {
		return err
	}
	after, err := afterOf(c)
	if err != nil {
		return err
	}
	err = a.mayTurn(c, id)
	if !wantsStream(c.Request) {
		if err != nil {
			return err
		}
		return a.eventList(c, id, after)
	}
	if _, refused := errors.AsType[*problem](err); refused {
		return err
	}
	// An EventSource gives up for good at any other status, so whatever passes is
	// told by an end: it comes again.
	return a.eventStream(c, id, after, err == nil)
}

// wantsStream says that the client takes a stream of events, and not at a weight of 0.
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

// comeLater ends a stream before its first event, where too many ask at once, as when
// all clients of a process that stopped come here, or where nobody can say whose a
// token is while the database is away.
func comeLater(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "retry: 3000\n\n")
}

// afterOf is the number of the last event that the client has. The header comes
// from a client that was cut off, and has the URL of its first request.
func afterOf(c *call) (int64, error) {
	text := c.Header.Get("Last-Event-ID")
	if text == "" {
		return c.number("after", 0)
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, refusal(http.StatusBadRequest, "Last-Event-ID must be the number of an event")
	}
	return after, nil
}

func (a *API) eventList(c *call, id turnkeeper.TurnID, after int64) error {
	limit, err := c.number("limit", defaultEvents)
	if err != nil || limit < 1 || limit > maxEvents {
		return refusal(http.StatusBadRequest, "limit must be 1 to %d", maxEvents)
	}
	events, err := a.cfg.Store.Events(c.Context(), id, after, int(limit))
	if err != nil {
		return err
	}
	next := after
	if len(events) > 0 {
		next = events[len(events)-1].Seq
	}
	return c.answer(http.StatusOK, listOf(events, views.OfEvent, next))
}

func (a *API) eventStream(c *call, id turnkeeper.TurnID, after int64, reachable bool) error {
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	if reachable && !a.isDraining() {
		var over bool
		if after, over = a.place(c.Context(), id, after); over {
			// There is nothing after the last event: this is how a client is told not
			// to come again.
			c.w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	w := &eventWriter{w: c.w, control: http.NewResponseController(c.w)}
	if err := w.write([]byte("retry: 1000\n\n")); err != nil || !reachable {
		return errGone
	}
	ctx, stop := context.WithCancelCause(c.Context())
	defer stop(nil)
	if a.isDraining() {
		return a.stored(ctx, w, id, after)
	}
	watched := make(chan struct{})
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer stop(nil)
	defer close(watched)
	keeping.Go(func() { a.keepAlive(ctx, w, id, watched, stop) })
	for event, err := range a.hub.Follow(ctx, id, after) {
		if ctx.Err() != nil {
			return errGone
		}
		if err != nil {
			continue // it is read again
		}
		if err := w.event(event); err != nil {
			return errGone
		}
	}
	return nil
}

var (
	errDraining = errors.New("the process stops")
	errPurged   = errors.New("the turn is gone")
)

// lookEvery is after how many comments it is looked whether there still is the turn: one
// that was purged has no last event.
const lookEvery = 4

// keepAlive writes a comment now and then, and ends the stream when the process
// stops, the client does not read or the turn is purged.
func (a *API) keepAlive(ctx context.Context, w *eventWriter, id turnkeeper.TurnID, watched <-chan struct{}, stop context.CancelCauseFunc) {
	tick := time.NewTicker(a.cfg.KeepAlive)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-watched:
			return
		case <-a.draining:
			stop(errDraining)
			return
		case <-tick.C:
			if err := w.write([]byte(": still here\n\n")); err != nil {
				stop(err)
				return
			}
			if n%lookEvery == 0 && a.isGone(ctx, id) {
				stop(errPurged)
				return
			}
		}
	}
}

func (a *API) isGone(ctx context.Context, id turnkeeper.TurnID) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	_, err := a.cfg.Store.AgentOfTurn(ctx, id)
	return errors.Is(err, turnkeeper.ErrNotFound)
}

// place is where a client stands in a turn's events, and says whether it has the last.
// A number that the turn has not come to, of a database that was set back say, counts
// as that of its newest event: else nothing would come for it, and no end.
func (a *API) place(ctx context.Context, id turnkeeper.TurnID, after int64) (_ int64, over bool) {
	event, there, err := a.eventAt(ctx, id, after)
	if err == nil && !there && after > 0 {
		var turn operate.TurnView
		if turn, err = a.cfg.Store.ViewTurn(ctx, id); err == nil {
			after = min(after, turn.Turn.LastSeq)
			event, _, err = a.eventAt(ctx, id, after)
		}
	}
	return after, err == nil && event.Type.Terminal()
}

func (a *API) eventAt(ctx context.Context, id turnkeeper.TurnID, seq int64) (event turnkeeper.Event, there bool, err error) {
	if seq == 0 {
		return event, false, nil
	}
	events, err := a.cfg.Store.Events(ctx, id, seq-1, 1)
	if err != nil || len(events) == 0 {
		return event, false, err
	}
	return events[0], true, nil
}

// stored writes what there is and ends: the client goes on elsewhere.
func (a *API) stored(ctx context.Context, w *eventWriter, id turnkeeper.TurnID, after int64) error {
	for {
		events, err := a.cfg.Store.Events(ctx, id, after, defaultEvents)
		if err != nil || len(events) == 0 {
			return errGone
		}
		for _, event := range events {
			after = event.Seq
			if err := w.event(event); err != nil {
				return errGone
			}
		}
	}
}

// An eventWriter writes a stream; two goroutines may use it.
type eventWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
}

func (w *eventWriter) event(e turnkeeper.Event) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: ", e.Seq, e.Type)
	if err := encode(&b, views.OfEvent(e)); err != nil { // one line, with its end
		return err
	}
	b.WriteByte('\n')
	return w.write(b.Bytes())
}

// write gives a slow client its time and no more.
func (w *eventWriter) write(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.w.Write(b); err != nil {
		return err
	}
	return w.control.Flush()
}
