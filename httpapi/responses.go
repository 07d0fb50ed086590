package httpapi

import (
	"errors"
	"net/http"
	"slices"

	"turnkeeper/httpapi/responses"
)

// The Responses API is a package of its own: here is what it shares with the rest.

func (a *API) postResponse(c *call) error {
	if err := c.checkKey(); err != nil {
		return err
	}
	body, err := c.body(int64(a.cfg.MaxMessageBytes)*bytesEscape + aroundBody)
	if err == nil {
		err = once(body, func(name string) string { return name }) // metadata may have an A and an a
	}
	if err != nil {
		return err
	}
	return a.responseTo(c, body, (*responses.API).Create)
}

func (a *API) getResponse(c *call) error {
	var body []byte
	if c.ContentLength != 0 {
		var err error
		if body, err = c.bytes(aroundBody); err != nil { // openai-go sends it with no type
			return err
		}
	}
	return a.responseTo(c, body, (*responses.API).Get)
}

func respond(handle func(*responses.API, responses.Call) error) func(*API, *call) error {
	return func(a *API, c *call) error { return a.responseTo(c, nil, handle) }
}

func (a *API) responseTo(c *call, body []byte, handle func(*responses.API, responses.Call) error) error {
	err := handle(a.openai, responses.Call{
		W: c.w, Request: c.Request, Caller: c.caller.forResponses(), Body: body, TraceParent: traceParent(c.Header),
	})
	if errors.Is(err, responses.ErrGone) {
		return errGone
	}
	if refused, ok := errors.AsType[*responses.Error](err); ok {
		p := refusal(refused.Status, "%s", refused.Message)
		p.param, p.code = refused.Param, refused.Code
		return p
	}
	return err
}

func (c caller) forResponses() responses.Caller {
	if c.token == nil {
		return responses.Caller{Sees: c.sees, Operates: true}
	}
	return responses.Caller{TokenID: c.token.ID, Sees: c.sees, Operates: slices.Contains(c.token.Scopes, ScopeOperate)}
}

// refuseResponse tells a problem in the shape of the Responses API.
func refuseResponse(w http.ResponseWriter, r *http.Request, p *problem) {
	_ = (&responses.Error{Status: p.Status, Message: p.Detail, Param: p.param, Code: p.code}).Refuse(w, r)
}
