package mcp

import (
	"context"
	"fmt"
	"net/url"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// Requests of a server during a call are answered at once, by the operator's
// policy: nobody can be asked while a call runs. See input.go for forms in the
// result of a call.

// codeDeclined is the protocol's error code for a request that the user
// declined.
const codeDeclined = -1

// answerAsked is a middleware that declines requests that are not allowed, and
// answers those that belong to a running call.
func (s *session) answerAsked(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch {
		case method == "elicitation/create" && !s.server.AcceptDefaults:
			s.note(s.whyDeclined())
			return &sdk.ElicitResult{Action: actionDecline}, nil
		case method == "sampling/createMessage":
			return s.createMessage(ctx, req)
		}
		return next(ctx, method, req)
	}
}

// loggedNotes is how many requests of a session's server are logged at level
// info. Later ones are logged at level debug.
const loggedNotes = 100

// note logs what a server asked for, and reports it as progress of the running
// calls.
func (s *session) note(what string) {
	level := zap.InfoLevel
	if s.noted.Add(1) > loggedNotes {
		level = zap.DebugLevel
	}
	s.log.Log(level, "an MCP server "+what)
	s.tellAll("the server " + what)
}

// elicit answers a form with its defaults, or declines it.
func (s *session) elicit(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return s.answerForm(req.Params), nil
}

func (s *session) answerForm(p *sdk.ElicitParams) *sdk.ElicitResult {
	content, ok := defaultsOf(p)
	if !s.server.AcceptDefaults || !ok {
		s.note("asked for input, which was declined")
		return &sdk.ElicitResult{Action: actionDecline}
	}
	s.note("asked for input, and was given the form's defaults")
	return &sdk.ElicitResult{Action: "accept", Content: content}
}

// defaultsOf returns the defaults of a form. ok is false if a required field
// has none, or if the request is not for a form.
func defaultsOf(p *sdk.ElicitParams) (content map[string]any, ok bool) {
	if p.Mode != "" && p.Mode != "form" {
		return nil, false
	}
	content = map[string]any{}
	schema, _ := p.RequestedSchema.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if p, isObject := property.(map[string]any); isObject && p["default"] != nil {
			content[name] = p["default"]
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if text, isText := name.(string); !isText || content[text] == nil {
			return nil, false
		}
	}
	return content, true
}

// answerInput answers the requests for input in the result of a call, except for
// the forms that a person must fill in. It returns an error for a request that
// can be neither answered nor declined.
func (s *session) answerInput(ctx context.Context, requests sdk.InputRequestMap,
	asker *sampler) (responses sdk.InputResponseMap, forms map[string]form, err error) {
	responses, forms = sdk.InputResponseMap{}, map[string]form{}
	for id, request := range requests {
		switch p := request.(type) {
		case *sdk.ElicitParams:
			if !s.server.AskForInput {
				responses[id] = s.answerForm(p)
			} else if f, fault := s.server.formOf(p); fault == "" {
				forms[id] = f
			} else {
				s.note("asked for input, which was declined: " + fault)
				responses[id] = &sdk.ElicitResult{Action: actionDecline}
			}
		case *sdk.ListRootsParams: //nolint:staticcheck // older protocols use it
			responses[id] = &sdk.ListRootsResult{Roots: s.roots()} //nolint:staticcheck // older protocols use it
		case *sdk.CreateMessageWithToolsParams: //nolint:staticcheck // older protocols use it
			if asker == nil {
				s.noteSampling("which was declined")
				return nil, nil, errAsksModel
			}
			answer, refused := s.sampleFor(ctx, asker, p)
			if refused != nil {
				return nil, nil, fmt.Errorf("the server asked for an answer of a model, and got none: %s",
					refused.Message)
			}
			responses[id] = answer
		default:
			return nil, nil, fmt.Errorf("the server asked for what is not known here: %T", request)
		}
	}
	return responses, forms, nil
}

func (s *session) roots() []*sdk.Root { //nolint:staticcheck // older protocols use it
	roots := []*sdk.Root{} //nolint:staticcheck // older protocols use it
	for _, path := range s.server.Roots {
		uri := url.URL{Scheme: "file", Path: path}
		roots = append(roots, &sdk.Root{URI: uri.String(), Name: path}) //nolint:staticcheck // older protocols use it
	}
	return roots
}

// field returns the log field with the server's name.
func field(s Server) zap.Field { return zap.String("mcp_server", s.Name) }
