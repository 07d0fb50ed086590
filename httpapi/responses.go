package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/responses"
	"turnkeeper/storage/operate"
)

// openai serves the Responses API: it reads requests like the rest of the API and calls package responses.
type openai struct {
	api      *responses.API
	maxBytes int // limit of a message's body
}

func (o *openai) post(c *request.Call) error {
	if err := c.CheckKey(); err != nil {
		return err
	}
	body, err := o.body(c)
	if err != nil {
		return err
	}
	return o.respond(c, body, (*responses.API).Create)
}

// open creates a conversation. The body may be absent.
func (o *openai) open(c *request.Call) (err error) {
	var body []byte
	if c.ContentLength != 0 {
		if body, err = o.body(c); err != nil {
			return err
		}
	}
	return o.respond(c, body, (*responses.API).Open)
}

// body returns the body of a request that may have a message's text.
func (o *openai) body(c *request.Call) ([]byte, error) {
	body, err := c.JSON(int64(o.maxBytes)*request.BytesPerEscape + request.BodyOverhead)
	if err == nil {
		// names in metadata may differ in case only
		err = request.NoRepeats(body, func(name string) string { return name })
	}
	return body, err
}

func (o *openai) get(c *request.Call) error {
	var body []byte
	if c.ContentLength != 0 {
		var err error
		if body, err = c.Bytes(request.BodyOverhead); err != nil { // openai-go sends it without a content type
			return err
		}
	}
	return o.respond(c, body, (*responses.API).Get)
}

// with returns a handler of requests without a body.
func (o *openai) with(handle func(*responses.API, responses.Call) error) func(*request.Call) error {
	return func(c *request.Call) error { return o.respond(c, nil, handle) }
}

func (o *openai) respond(c *request.Call, body []byte, handle func(*responses.API, responses.Call) error) error {
	c.PauseTimeout() // the API waits for replies: boundedResponses limits each query
	err := handle(o.api, responses.Call{
		W: c.W, Request: c.Request, Caller: responsesCaller(c.Caller), Body: body, TraceParent: c.TraceParent(),
		OpenStream: c.OpenStream,
	})
	if errors.Is(err, responses.ErrGone) {
		return request.ErrGone
	}
	if refused, ok := errors.AsType[*responses.Error](err); ok {
		p := request.Refuse(refused.Status, "%s", refused.Message)
		p.Param, p.Code = refused.Param, refused.Code
		return p
	}
	return err
}

func responsesCaller(c request.Caller) responses.Caller {
	if c.Token == nil {
		return responses.Caller{Sees: c.Sees, Operates: true}
	}
	return responses.Caller{TokenID: c.Token.ID, User: c.User(), Sees: c.Sees, Operates: slices.Contains(c.Token.Scopes,
		request.ScopeOperate)}
}

// boundedResponses limits the time of each query of the Responses API.
type boundedResponses struct {
	responses.Store
	timeout time.Duration
}

// bounded calls a query within the timeout.
func bounded[T any](ctx context.Context, b boundedResponses,
	query func(context.Context) (T, error)) (result T, err error) {
	err = request.WithinTimeout(ctx, b.timeout, func(ctx context.Context) (err error) {
		result, err = query(ctx)
		return err
	})
	return result, err
}

func (b boundedResponses) AcceptResponse(ctx context.Context, n operate.NewResponse) (turnkeeper.MessageID, error) {
	return bounded(ctx, b, func(ctx context.Context) (turnkeeper.MessageID, error) {
		return b.Store.AcceptResponse(ctx, n)
	})
}

func (b boundedResponses) Response(ctx context.Context, id turnkeeper.MessageID) (operate.Response, error) {
	return bounded(ctx, b, func(ctx context.Context) (operate.Response, error) { return b.Store.Response(ctx, id) })
}

func (b boundedResponses) HeadsWithHistory(ctx context.Context, key turnkeeper.ConversationKey,
	history []byte) ([]operate.Head, error) {
	return bounded(ctx, b, func(ctx context.Context) ([]operate.Head, error) {
		return b.Store.HeadsWithHistory(ctx, key, history)
	})
}

func (b boundedResponses) HeadOf(ctx context.Context, key turnkeeper.ConversationKey) (operate.Head, error) {
	return bounded(ctx, b, func(ctx context.Context) (operate.Head, error) { return b.Store.HeadOf(ctx, key) })
}

func (b boundedResponses) Saids(
	ctx context.Context, key turnkeeper.ConversationKey, ids []turnkeeper.MessageID,
) (map[turnkeeper.MessageID]operate.Said, error) {
	return bounded(ctx, b, func(ctx context.Context) (map[turnkeeper.MessageID]operate.Said, error) {
		return b.Store.Saids(ctx, key, ids)
	})
}

func (b boundedResponses) CreateConversation(ctx context.Context, c operate.Created, token int64,
	user string) (time.Time, error) {
	return bounded(ctx, b, func(ctx context.Context) (time.Time, error) {
		return b.Store.CreateConversation(ctx, c, token, user)
	})
}

func (b boundedResponses) CreatedConversation(ctx context.Context, id string, token int64,
	user string) (operate.Created, error) {
	return bounded(ctx, b, func(ctx context.Context) (operate.Created, error) {
		return b.Store.CreatedConversation(ctx, id, token, user)
	})
}

func (b boundedResponses) CancelMessage(ctx context.Context, id turnkeeper.MessageID,
	reason string) (operate.Ended, error) {
	return bounded(ctx, b, func(ctx context.Context) (operate.Ended, error) {
		return b.Store.CancelMessage(ctx, id, reason)
	})
}

func (b boundedResponses) Agents(ctx context.Context) ([]turnkeeper.AgentRegistration, error) {
	return bounded(ctx, b, b.Store.Agents)
}

// refuseResponse writes a problem in the error format of the Responses API.
func refuseResponse(w http.ResponseWriter, r *http.Request, p *request.Problem) {
	_ = (&responses.Error{Status: p.Status, Message: p.Detail, Param: p.Param, Code: p.Code}).Refuse(w, r)
}
