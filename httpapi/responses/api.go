package responses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

// A Store reads and writes responses; *operate.Store implements it.
type Store interface {
	AcceptResponse(ctx context.Context, n operate.NewResponse) (turnkeeper.MessageID, error)
	HeadsWithHistory(ctx context.Context, key turnkeeper.ConversationKey, history []byte) ([]operate.Head, error)
	HeadOf(ctx context.Context, key turnkeeper.ConversationKey) (operate.Head, error)
	Saids(ctx context.Context, key turnkeeper.ConversationKey,
		ids []turnkeeper.MessageID) (map[turnkeeper.MessageID]operate.Said, error)
	CreateConversation(ctx context.Context, c operate.Created, token int64, user string) (time.Time, error)
	CreatedConversation(ctx context.Context, id string, token int64, user string) (operate.Created, error)
	Response(ctx context.Context, id turnkeeper.MessageID) (operate.Response, error)
	CancelMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (operate.Ended, error)
	Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error)
}

// A Config configures an API.
type Config struct {
	Store Store
	// Rings subscribes to the doorbell for ended turns.
	Rings func() (rings <-chan struct{}, cancel func())
	// Hub follows the events of messages.
	Hub *stream.Hub
	// Draining is closed when the process stops, which ends streams and waits.
	Draining        <-chan struct{}
	MaxMessageBytes int
	KeepAlive       time.Duration // interval of comments in a stream
	Wait            time.Duration // maximum wait for a reply that is neither streamed nor in the background; 0: 5 min
}

// An API answers requests. It is safe for concurrent use.
type API struct{ cfg Config }

// New returns an API. It starts nothing.
func New(cfg Config) *API {
	if cfg.Wait == 0 {
		cfg.Wait = 5 * time.Minute
	}
	return &API{cfg}
}

// A Caller is the sender of a request.
type Caller struct {
	TokenID  int64                   // 0: a local request without a token
	User     string                  // that the token is bound to; empty: it covers all
	Sees     func(agent string) bool // reports whether the token covers an agent
	Operates bool                    // may cancel responses of other tokens
}

// sees reports whether the token covers the conversation of a message.
func (c Caller) sees(m turnkeeper.Message) bool {
	return c.Sees(m.Agent) && (c.User == "" || c.User == m.User)
}

// A Call is one request and the writer of its answer.
type Call struct {
	W http.ResponseWriter
	*http.Request
	Caller      Caller
	Body        []byte // body of the request, if it has one
	TraceParent string // W3C trace context of the sender; empty: none
	// OpenStream counts the answer as a stream, or refuses it. Further calls do nothing.
	OpenStream func() error
}

// DraftsHeader is the header of a request whose stream is to have what the model writes while it writes: "true" or
// "false".
const DraftsHeader = "Turnkeeper-Drafts"

func wantsDrafts(r *http.Request) (bool, error) {
	switch r.Header.Get(DraftsHeader) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, invalid(DraftsHeader, "invalid_value", "the header %s must be true or false", DraftsHeader)
}

// keyOf returns the idempotency key of a request.
func keyOf(r *http.Request) string { return r.Header.Get("Idempotency-Key") }

// Create accepts a message. It answers with the response at once (background), as a stream of events
// (stream), or when the reply is written.
func (a *API) Create(c Call) error {
	r, err := parse(c.Body)
	if err != nil {
		return err
	}
	if r.drafts, err = wantsDrafts(c.Request); err != nil {
		return err
	}
	if !c.Caller.Sees(r.agent) {
		return noModel(r.agent)
	}
	if c.Caller.User != "" && r.user != "" && r.user != c.Caller.User {
		return invalid("user", "invalid_value", "this token is bound to another user: leave out user, or name its own")
	}
	r.user = cmp.Or(r.user, c.Caller.User)
	if r.stream {
		if err := c.OpenStream(); err != nil {
			return err
		}
	}
	id, err := a.accept(c, r)
	if err != nil {
		return err
	}
	if r.stream {
		kept, err := a.cfg.Store.Response(c.Context(), id)
		if err != nil {
			return err
		}
		return a.stream(c, kept, -1)
	}
	wait := a.cfg.Wait
	if r.background {
		wait = 0
	}
	return a.answer(c, id, wait)
}

// accept puts the message of a request into the inbox. If the conversation whose history the request has goes on
// meanwhile, it starts another one.
func (a *API) accept(c Call, r *request) (id turnkeeper.MessageID, err error) {
	if err := a.resolve(c.Context(), turnkeeper.ConversationKey{Agent: r.agent, User: r.user}, r.entries); err != nil {
		return 0, err
	}
	for _, apart := range []bool{false, true} {
		n := operate.NewResponse{
			Background: r.background, Drafts: r.drafts, Metadata: r.metadata, Instructions: r.instructions,
			MaxOutputTokens: r.maxOutput,
			TokenID:         c.Caller.TokenID, Request: r.sum(),
		}
		if err := a.place(c, r, &n, apart); err != nil {
			return 0, err
		}
		n.Preface, n.Words = r.preface(), r.words()
		n.Submission.Agent, n.Submission.User, n.Submission.Body = r.agent, r.user, r.body()
		n.Submission.Key, n.Submission.TraceParent = keyOf(c.Request), c.TraceParent
		if err := a.checkSize(n); err != nil {
			return 0, err
		}
		if id, err = a.cfg.Store.AcceptResponse(c.Context(), n); !errors.Is(err, turnkeeper.ErrWrongState) {
			break
		}
	}
	return id, accepted(r.agent, err)
}

func (a *API) checkSize(n operate.NewResponse) error {
	if strings.TrimSpace(n.Submission.Body) == "" {
		return invalid("input", "empty_input", "%s", turnkeeper.ErrEmptyMessage)
	}
	size := len(n.Preface) + len(n.Submission.Body)
	if size <= a.cfg.MaxMessageBytes {
		return nil
	}
	with := ""
	if n.Preface != "" {
		with = " with its instructions and earlier messages"
	}
	return invalid("input", "string_above_max_length", "input has %d bytes%s, the limit is %d", size, with,
		a.cfg.MaxMessageBytes)
}

// find reads a response by id, if it is visible to the caller.
func (a *API) find(c Call, id string) (operate.Response, error) {
	message, ok := messageOf(id)
	if !ok {
		return operate.Response{}, noResponse(id)
	}
	r, err := a.cfg.Store.Response(c.Context(), message)
	if errors.Is(err, turnkeeper.ErrNotFound) || err == nil && !c.Caller.sees(r.Message) {
		return operate.Response{}, noResponse(id)
	}
	return r, err
}

// Get answers with a response in its current state, or streams its events.
func (a *API) Get(c Call) error {
	stream, after, err := eventsAsked(c)
	if err != nil {
		return err
	}
	r, err := a.find(c, c.PathValue("id"))
	if err != nil {
		return err
	}
	if last := int64(len(eventsOf(r))) - 1; after > last && !r.Drafts { // no client can have an event that was not sent
		return invalid("starting_after", "invalid_value",
			"starting_after is beyond the newest event of the response, which is %d", last)
	}
	if stream && c.Method != http.MethodHead {
		return a.stream(c, r, after)
	}
	return write(c.W, http.StatusOK, viewOf(r))
}

// eventsAsked reports whether a GET asks for events, and after which number; -1: from the first.
func eventsAsked(c Call) (stream bool, after int64, err error) {
	query := c.URL.Query()
	switch text := query.Get("stream"); {
	case text != "":
		if stream, err = strconv.ParseBool(text); err != nil {
			return false, 0, invalid("stream", "invalid_type", "stream must be true or false")
		}
	case len(c.Body) > 0: // openai-go sends stream in the body of the GET
		var body struct{ Stream bool }
		if json.Unmarshal(c.Body, &body) != nil {
			return false, 0, invalid("", "invalid_json", "the request's body is not a JSON object")
		}
		stream = body.Stream
	}
	after = -1
	if text := query.Get("starting_after"); text != "" {
		after, err = strconv.ParseInt(text, 10, 64)
		if err != nil || after < 0 || !stream {
			return false, 0, invalid("starting_after", "invalid_value",
				"starting_after must be the sequence_number of an event, and requires stream=true")
		}
	}
	return stream, after, nil
}

// cancelTime is how long Cancel waits for the worker to end its turn.
const cancelTime = 10 * time.Second

// Cancel cancels a response that is not complete, and answers with it.
func (a *API) Cancel(c Call) error {
	r, err := a.find(c, c.PathValue("id"))
	if err != nil {
		return err
	}
	if !c.Caller.Operates && r.TokenID != c.Caller.TokenID {
		return &Error{Status: http.StatusForbidden, Code: "insufficient_permissions",
			Message: "this response was created with another token: cancelling it requires the scope \"operate\""}
	}
	_, err = a.cfg.Store.CancelMessage(c.Context(), r.Message.ID, "requested by its sender")
	if err != nil && !errors.Is(err, turnkeeper.ErrWrongState) { // ErrWrongState: already complete
		return err
	}
	return a.answer(c, r.Message.ID, cancelTime)
}

// An InputList is the input of a response: one message.
type InputList struct {
	Object  string `json:"object" schema:"const=list"`
	Data    []item `json:"data"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

// Input answers with the message of a response.
func (a *API) Input(c Call) error {
	r, err := a.find(c, c.PathValue("id"))
	if err != nil {
		return err
	}
	in := inputOf(r)
	return write(c.W, http.StatusOK, InputList{"list", []item{in}, in.ID, in.ID, false})
}

// A Model is an agent in the format of a model.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object" schema:"const=model"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// A ModelList lists models.
type ModelList struct {
	Object string  `json:"object" schema:"const=list"`
	Data   []Model `json:"data"`
}

// Models lists the agents that the caller may send to.
func (a *API) Models(c Call) error {
	agents, err := a.cfg.Store.Agents(c.Context())
	if err != nil {
		return err
	}
	all := ModelList{Object: "list", Data: []Model{}}
	for _, agent := range agents {
		if agent.RetiredAt.IsZero() && c.Caller.Sees(agent.Name) {
			all.Data = append(all.Data, modelOf(agent.Name))
		}
	}
	return write(c.W, http.StatusOK, all)
}

// Model answers with one of them.
func (a *API) Model(c Call) error {
	agents, err := a.cfg.Store.Agents(c.Context())
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(c.PathValue("id"), modelPrefix)
	for _, agent := range agents {
		if agent.Name == name && agent.RetiredAt.IsZero() && c.Caller.Sees(name) {
			return write(c.W, http.StatusOK, modelOf(name))
		}
	}
	return noModel(name)
}

func modelOf(agent string) Model { return Model{agent, "model", 0, "turnkeeper"} }
