package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/stream"
)

// ofMessage answers with the present and future events of a message, as server-sent events.
func (s *events) ofMessage(c *request.Call) error {
	m, err := s.access.Message(c)
	if _, refused := errors.AsType[*request.Problem](err); refused {
		return err
	}
	after, problem := cursorOf(c)
	if problem != nil {
		return problem
	}
	if err == nil && after.Turn != 0 {
		if problem, err = s.checkTurn(c, m.ID, after.Turn); problem != nil {
			return problem
		}
	}
	if err == nil && after.Over && !m.ClosedAt.IsZero() {
		c.W.WriteHeader(http.StatusNoContent) // see events.stream
		return nil
	}
	if after.Over { // not closed: the database was restored from a backup
		after = stream.Cursor{}
	}
	return s.serve(c, err == nil, feed{future: func(ctx context.Context, w *eventWriter) error {
		return s.writeMessage(ctx, c, w, m.ID, after)
	}})
}

// cursorOf returns the position after the last event that the client has, of a message.
func cursorOf(c *request.Call) (stream.Cursor, error) {
	name, text := "Last-Event-ID", c.Header.Get("Last-Event-ID")
	if text == "" {
		name, text = "after", c.URL.Query().Get("after")
	}
	after, err := stream.ParseCursor(text)
	if err != nil {
		return after, request.Refuse(http.StatusBadRequest, "%s must be the id of an event of this message", name)
	}
	return after, nil
}

// checkTurn refuses a position in a turn of another message.
func (s *events) checkTurn(c *request.Call, id turnkeeper.MessageID, turn turnkeeper.TurnID) (problem, err error) {
	found, err := s.store.WatchedMessages(c.Context(), []turnkeeper.MessageID{id})
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		for _, t := range m.Turns {
			if t == turn {
				return nil, nil
			}
		}
	}
	return request.Refuse(http.StatusBadRequest, "the event with this id belongs to another message"), nil
}

// writeMessage writes the events of a message that the caller may see. It returns nil after the last event, and if the
// message was purged. After any other end the connection is closed (Route.abortsEarly): generated clients would take a
// normal end for that of the message.
func (s *events) writeMessage(ctx context.Context, c *request.Call, w *eventWriter, id turnkeeper.MessageID,
	after stream.Cursor) error {
	for e, err := range s.hub.Message(ctx, id, after) {
		if errors.Is(err, turnkeeper.ErrNotFound) {
			return nil
		}
		event, seen := e.Event, true
		if err == nil {
			event, seen, err = s.visible(ctx, c, e)
		}
		if err != nil || seen && w.numbered(e.ID(), event) != nil {
			return request.ErrGone
		}
	}
	return nil
}

// visible returns what the caller sees of an event of a message. seen is false if that is nothing.
func (s *events) visible(ctx context.Context, c *request.Call,
	e stream.MessageEvent) (_ turnkeeper.Event, seen bool, err error) {
	event, seen := e.Event, true
	switch {
	case e.Type == stream.MessageWaiting:
		event.Data = waitingData(c, e.Message)
	case e.Type == stream.MessageClosed:
		event.Data, err = s.closedData(ctx, e.Message.ID)
	case !c.Caller.May(request.ScopeRead):
		event, seen = views.ForSender(event)
	}
	return event, seen, err
}

func waitingData(c *request.Call, m waiting.Message) json.RawMessage {
	m.Waits = append([]waiting.Wait(nil), m.Waits...) // they are shared by all watchers
	access.Screen(c, &m)
	return encoded(views.MessageWaitingData{State: m.State, Waits: views.All(m.Waits, views.OfWait)})
}

func (s *events) closedData(ctx context.Context, id turnkeeper.MessageID) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	m, reply, err := s.access.Answered(ctx, id)
	if err != nil {
		return nil, err
	}
	data := views.MessageClosedData{State: m.State, Outcome: m.Outcome}
	if reply != nil {
		data.Reply = new(views.OfReply(*reply))
	}
	return encoded(data), nil
}

// encoded returns a view as JSON.
func encoded(view any) json.RawMessage {
	text, err := json.Marshal(view)
	if err != nil {
		panic(err) // views can always be encoded
	}
	return text
}
