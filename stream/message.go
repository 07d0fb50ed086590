package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

// The events of a message that belong to none of its turns. They are not stored and have no number.
const (
	MessageWaiting turnkeeper.EventType = "message_waiting" // why the message waits now
	MessageClosed  turnkeeper.EventType = "message_closed"  // the last event
)

// A MessageEvent is an event of a message: one of its turns, or MessageWaiting or MessageClosed.
type MessageEvent struct {
	turnkeeper.Event
	Message waiting.Message // of MessageWaiting and MessageClosed
	After   Cursor          // the position behind the event
}

// ID returns the id of the event, for ParseCursor. It is empty for MessageWaiting, which is not stored: a client that
// reconnects sends the id of the event before it, and gets the reasons of that moment.
func (e MessageEvent) ID() string {
	if e.Type == MessageWaiting {
		return ""
	}
	return e.After.String()
}

// A Cursor is a position in the events of a message. The zero value is before the first one.
type Cursor struct {
	Turn turnkeeper.TurnID
	Seq  int64 // of the turn's event before the position; 0: none
	Over bool  // after the last event of the message
}

const over = "end"

// String returns the text that ParseCursor reads. Clients must not rely on its form.
func (c Cursor) String() string {
	if c.Over {
		return over
	}
	return fmt.Sprintf("%d.%d", c.Turn, c.Seq)
}

// ParseCursor reads a Cursor. An empty text is the zero value.
func ParseCursor(text string) (c Cursor, err error) {
	switch text {
	case "":
		return Cursor{}, nil
	case over:
		return Cursor{Over: true}, nil
	}
	turn, seq, _ := strings.Cut(text, ".")
	id, err := strconv.ParseInt(turn, 10, 64)
	if err == nil {
		c.Seq, err = strconv.ParseInt(seq, 10, 64)
	}
	if c.Turn = turnkeeper.TurnID(id); err != nil || id < 0 || c.Seq < 0 || c.String() != text {
		return Cursor{}, errors.New("it is not the id of an event")
	}
	return c, nil
}

// Message yields the events of a message after a position, until its last one: MessageWaiting whenever the reasons why
// it waits have changed, the events of all its turns, and MessageClosed once it is closed. A turn that ends with
// turn_error and retry is followed by another one: what the first has streamed is void.
//
// An error ends the sequence. It matches turnkeeper.ErrNotFound if the message does not exist, or was purged, and is
// the cause of ctx when that has ended. Errors of the source are retried.
func (h *Hub) Message(ctx context.Context, id turnkeeper.MessageID, after Cursor) iter.Seq2[MessageEvent, error] {
	return func(yield func(MessageEvent, error) bool) {
		w := &messageWatcher{hub: h, id: id, at: after, bell: make(chan struct{}, 1), yield: yield}
		h.board.join(ctx, id, w.bell)
		defer h.board.leave(id, w.bell)
		defer func() { w.leave() }()
		for !w.catchUp(ctx) {
			if !pause(ctx, w.bell, maxPoll) {
				yield(MessageEvent{}, context.Cause(ctx))
				return
			}
		}
	}
}

// A messageWatcher is one iteration of Hub.Message.
type messageWatcher struct {
	hub   *Hub
	id    turnkeeper.MessageID
	at    Cursor
	bell  chan struct{}
	yield func(MessageEvent, error) bool

	turn     turnkeeper.TurnID // that it follows; 0: none
	tail     *tail             // of turn
	finished turnkeeper.TurnID // the newest turn all of whose events were yielded; 0: none
	last     time.Time         // when the last event was yielded
	shown    string            // the last reasons to wait that were yielded
}

// catchUp yields all there is, and reports whether the sequence is over.
func (w *messageWatcher) catchUp(ctx context.Context) bool {
	now, known := w.hub.board.now(w.id)
	switch {
	case !known:
		return false
	case now.missing:
		w.yield(MessageEvent{}, turnkeeper.ErrNotFound)
		return true
	}
	closed := !now.message.ClosedAt.IsZero()
	turns, known := w.ahead(now.message.Turns)
	if !known && !closed {
		return false
	}
	waits := reasonsOf(now)
	for _, turn := range turns {
		switch w.events(ctx, turn, closed || turn != now.message.TurnID, waits != "" && waits != w.shown) {
		case stopped:
			return true
		case unfinished:
			return !w.waits(now)
		case finished:
			w.finished = turn
		}
	}
	if closed {
		w.yield(MessageEvent{Event: turnkeeper.Event{Type: MessageClosed, At: now.message.ClosedAt},
			Message: now.message, After: Cursor{Over: true}}, nil)
		return true
	}
	return !w.waits(now)
}

// ahead returns the turns whose events are still to be yielded. known is false if the turn at the position is not among
// all.
func (w *messageWatcher) ahead(all []turnkeeper.TurnID) (ahead []turnkeeper.TurnID, known bool) {
	if w.at.Turn == 0 {
		return all, true
	}
	i := slices.Index(all, w.at.Turn)
	if i < 0 {
		return nil, false
	}
	if w.at.Turn == w.finished {
		i++
	}
	return all[i:], true
}

// A progress is what came of yielding the events of a turn.
type progress int

const (
	unfinished progress = iota // more may come
	finished                   // they are all yielded
	stopped                    // the consumer wants no more
)

// events yields the events of a turn that there are. ended says that the turn has ended, so that no more are written.
// With all, it also yields those that the tail has not read yet.
func (w *messageWatcher) events(ctx context.Context, turn turnkeeper.TurnID, ended, all bool) progress {
	if !w.enter(ctx, turn) {
		return unfinished
	}
	for {
		events, err := w.tail.Events(ctx, turn, w.at.Seq, page)
		if err == nil && len(events) == 0 && (ended || all) {
			if events, err = w.hub.source.Events(ctx, turn, w.at.Seq, page); err == nil && len(events) == 0 && ended {
				return finished
			}
		}
		if err != nil {
			w.hub.faults.add(ctx, "the events of a turn", err)
		}
		if err != nil || len(events) == 0 {
			return unfinished
		}
		for _, e := range events {
			w.at.Seq, w.last = e.Seq, time.Now()
			switch {
			case !w.yield(MessageEvent{Event: e, After: w.at}, nil):
				return stopped
			case e.Type.Terminal():
				return finished
			}
		}
	}
}

// enter makes turn the turn that w follows. It returns false if the source does not answer.
func (w *messageWatcher) enter(ctx context.Context, turn turnkeeper.TurnID) bool {
	if w.turn == turn {
		return true
	}
	at := Cursor{Turn: turn}
	if w.at.Turn == turn {
		seq, err := stored(ctx, w.hub.source, turn, w.at.Seq)
		if err != nil {
			w.hub.faults.add(ctx, "the events of a turn", err)
			return false
		}
		at.Seq = seq
	}
	w.leave()
	w.turn, w.at, w.tail = turn, at, w.hub.join(ctx, turn, at.Seq)
	w.tail.subscribe(w.bell)
	return true
}

func (w *messageWatcher) leave() {
	if w.tail != nil {
		w.tail.unsubscribe(w.bell)
		w.hub.leave(w.turn, w.tail)
		w.turn, w.tail = 0, nil
	}
}

// stored returns seq, or the number of the turn's newest event if that is lower, as after the database was restored
// from a backup.
func stored(ctx context.Context, source Source, turn turnkeeper.TurnID, seq int64) (int64, error) {
	if seq == 0 {
		return 0, nil
	}
	events, err := source.Events(ctx, turn, seq-1, 1)
	if err != nil || len(events) > 0 {
		return seq, err
	}
	var newest int64
	for {
		events, err := source.Events(ctx, turn, newest, page)
		if err != nil || len(events) == 0 {
			return newest, err
		}
		newest = events[len(events)-1].Seq
	}
}

// waits yields the reasons why the message waits, if they have changed and are newer than the events. It returns false
// if the consumer wants no more.
func (w *messageWatcher) waits(now state) bool {
	text := reasonsOf(now)
	if text == "" || text == w.shown || !now.asked.After(w.last) {
		return true
	}
	w.shown = text
	e := turnkeeper.Event{TurnID: now.message.TurnID, Type: MessageWaiting, At: now.asked}
	return w.yield(MessageEvent{Event: e, Message: now.message, After: w.at}, nil)
}

// reasonsOf returns a text that differs if the reasons why a message waits do; empty: it does not wait. Times since
// when something is so are no news.
func reasonsOf(now state) string {
	if len(now.message.Waits) == 0 {
		return ""
	}
	reasons := slices.Clone(now.message.Waits)
	for i := range reasons {
		reasons[i].Silent, reasons[i].Since = 0, time.Time{}
	}
	return fmt.Sprint(reasons)
}
