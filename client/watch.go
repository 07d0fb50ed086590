package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"turnkeeper"
)

// The events of a message that no turn has. docs/events.md describes all types of events.
const (
	EventMessageWaiting turnkeeper.EventType = "message_waiting"
	EventMessageClosed  turnkeeper.EventType = "message_closed"
)

// A Server is the HTTP API of a worker.
type Server struct {
	URL   string       // such as http://127.0.0.1:8722
	Token string       // with the scope send or read; empty: none, which loopback allows
	HTTP  *http.Client // nil: http.DefaultClient. A Timeout would end streams
}

// A MessageEvent is an event of a message.
type MessageEvent struct {
	turnkeeper.Event
	ID    string            // position after the event, for Watch; empty: that of the event before it
	Reply *turnkeeper.Reply // of EventMessageClosed; nil: there is none, or it was purged
}

// Text returns the text that a block_delta adds to its block; empty: the event has none. A later event may void it: see
// docs/events.md. The body of the reply is what counts.
func (e MessageEvent) Text() string {
	if e.Type != turnkeeper.EventBlockDelta {
		return ""
	}
	var data struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(e.Data, &data) // data without a text has none
	return data.Text
}

// Watch yields the events of a message after a position (empty: from the first), from its wait to EventMessageClosed,
// which is the last. After a break it reconnects and continues, for at most half a minute without an answer. The last
// element is an error if the events end otherwise: turnkeeper.ErrNotFound if the message does not exist, or was purged,
// or is not visible to the token, and the cause if ctx has ended.
func (s Server) Watch(ctx context.Context, id turnkeeper.MessageID, after string) iter.Seq2[MessageEvent, error] {
	return func(yield func(MessageEvent, error) bool) {
		w := &watch{server: s, id: id, after: after, answered: time.Now(), yield: yield}
		for {
			over, err := w.connect(ctx)
			switch {
			case over:
				return
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case err == nil || passing(err) && time.Since(w.answered) < patience:
				select {
				case <-ctx.Done():
				case <-time.After(afterBreak):
				}
				continue
			}
			yield(MessageEvent{}, err)
			return
		}
	}
}

// A watch is one iteration of Server.Watch.
type watch struct {
	server   Server
	id       turnkeeper.MessageID
	after    string
	answered time.Time // when the API last answered
	yield    func(MessageEvent, error) bool
}

// A refusal is an answer of the API other than a stream.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

func (r *refusal) Is(target error) bool {
	return r.status == http.StatusNotFound && target == turnkeeper.ErrNotFound
}

// passing reports whether another request may succeed.
func passing(err error) bool {
	r, refused := errors.AsType[*refusal](err)
	return !refused || r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError
}

// connect yields the events of one connection. over says that no more follow.
func (w *watch) connect(ctx context.Context) (over bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/messages/%d/events",
		strings.TrimRight(w.server.URL, "/"), w.id), nil)
	if err != nil {
		return false, &refusal{detail: err.Error()}
	}
	req.Header.Set("Accept", "text/event-stream")
	if w.server.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.server.Token)
	}
	if w.after != "" {
		req.Header.Set("Last-Event-ID", w.after)
	}
	client := w.server.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		w.answered = time.Now()
		return w.read(resp.Body)
	case http.StatusNoContent:
		return true, nil
	}
	return false, refusalOf(resp)
}

const (
	maxProblem = 16 << 10 // bytes of a refusal
	maxLine    = 64 << 20 // bytes of a line of a stream: a reply is in one
)

func refusalOf(resp *http.Response) error {
	r := &refusal{resp.StatusCode, "the API answered " + resp.Status}
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&problem) == nil && problem.Detail != "" {
		r.detail = problem.Detail
	}
	return r
}

// read yields the events of a stream.
func (w *watch) read(stream io.Reader) (over bool, err error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	var id, data string
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case lines.Text() == "" && data != "":
			e, err := eventOf(id, data)
			if err != nil {
				return false, &refusal{detail: err.Error()}
			}
			w.answered = time.Now()
			if id != "" {
				w.after = id
			}
			if !w.yield(e, nil) || e.Type == EventMessageClosed {
				return true, nil
			}
			id, data = "", ""
		}
	}
	return false, lines.Err()
}

func eventOf(id, data string) (e MessageEvent, err error) {
	var wire struct {
		TurnID turnkeeper.TurnID    `json:"turn_id"`
		Seq    int64                `json:"seq"`
		Type   turnkeeper.EventType `json:"type"`
		Round  int                  `json:"round"`
		Block  int                  `json:"block"`
		Data   json.RawMessage      `json:"data"`
		At     time.Time            `json:"at"`
	}
	if err := json.Unmarshal([]byte(data), &wire); err != nil {
		return e, fmt.Errorf("decode an event: %w", err)
	}
	e = MessageEvent{Event: turnkeeper.Event(wire), ID: id}
	if e.Type == EventMessageClosed {
		e.Reply, err = closingReply(e.Data)
	}
	return e, err
}

// closingReply decodes the reply in the data of EventMessageClosed.
func closingReply(data []byte) (*turnkeeper.Reply, error) {
	var closed struct {
		Reply *struct {
			ID           turnkeeper.ReplyID    `json:"id"`
			MessageID    turnkeeper.MessageID  `json:"message_id"`
			TurnID       turnkeeper.TurnID     `json:"turn_id"`
			Agent        string                `json:"agent"`
			User         string                `json:"user"`
			Conversation string                `json:"conversation"`
			Outcome      turnkeeper.TurnState  `json:"outcome"`
			Body         string                `json:"body"`
			StopReason   turnkeeper.StopReason `json:"stop_reason"`
			ErrorClass   string                `json:"error_class"`
			Calls        json.RawMessage       `json:"calls"`
			Labels       []string              `json:"labels"`
			CreatedAt    time.Time             `json:"created_at"`
			ParentTurn   turnkeeper.TurnID     `json:"parent_turn_id"`
		} `json:"reply"`
	}
	if err := json.Unmarshal(data, &closed); err != nil || closed.Reply == nil {
		return nil, err
	}
	r := closed.Reply
	calls, err := callsOf(r.Calls)
	return &turnkeeper.Reply{
		ID: r.ID, MessageID: r.MessageID, TurnID: r.TurnID, Agent: r.Agent, User: r.User, Conversation: r.Conversation,
		Outcome: r.Outcome,
		Body:    r.Body, StopReason: r.StopReason, ErrorClass: r.ErrorClass, Calls: calls, Labels: r.Labels,
		CreatedAt: r.CreatedAt, ParentTurn: r.ParentTurn,
	}, err
}
