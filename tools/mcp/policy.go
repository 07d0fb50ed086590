package mcp

import (
	"context"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// What a server may ask for in the middle of a call is answered at once, by what
// the operator allows: nobody is there who could be asked.

// codeDeclined is what the protocol names for a request that a user declined.
const codeDeclined = -1

// decline answers what is not allowed, and was asked for all the same.
func (s *session) decline(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch {
		case method == "elicitation/create" && !s.server.AcceptDefaults:
			s.note("asked for input, which was declined")
			return &sdk.ElicitResult{Action: "decline"}, nil
		case method == "sampling/createMessage":
			s.note("asked for an answer of a model, which was declined")
			return nil, &jsonrpc.Error{Code: codeDeclined, Message: "sampling is declined by the operator's policy"}
		}
		return next(ctx, method, req)
	}
}

// note tells the operators, and the calls that run, what a server asked for.
func (s *session) note(what string) {
	s.log.Info("an MCP server " + what)
	s.tellAll("the server " + what)
}

// elicit answers with the defaults of the form.
func (s *session) elicit(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return s.answerForm(req.Params), nil
}

func (s *session) answerForm(p *sdk.ElicitParams) *sdk.ElicitResult {
	content, ok := defaultsOf(p)
	if !s.server.AcceptDefaults || !ok {
		s.note("asked for input, which was declined")
		return &sdk.ElicitResult{Action: "decline"}
	}
	s.note("asked for input, and was given the form's defaults")
	return &sdk.ElicitResult{Action: "accept", Content: content}
}

// defaultsOf fills in a form with its own defaults. ok is false where a field that
// is required has none, and where it is not a form that is asked for.
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

// answerInput answers what a server asks for by the result of a call. ok is false
// where it asks for what cannot be given or declined in kind.
func (s *session) answerInput(requests sdk.InputRequestMap) (responses sdk.InputResponseMap, ok bool) {
	responses = sdk.InputResponseMap{}
	for id, request := range requests {
		switch p := request.(type) {
		case *sdk.ElicitParams:
			responses[id] = s.answerForm(p)
		case *sdk.ListRootsParams: //nolint:staticcheck // deprecated by the newest protocol, and asked for by the older ones
			responses[id] = &sdk.ListRootsResult{Roots: s.roots()} //nolint:staticcheck // deprecated by the newest protocol, and asked for by the older ones
		default:
			s.note("asked for an answer of a model, which was declined")
			return nil, false
		}
	}
	return responses, true
}

func (s *session) roots() []*sdk.Root { //nolint:staticcheck // deprecated by the newest protocol, and asked for by the older ones
	roots := []*sdk.Root{} //nolint:staticcheck // deprecated by the newest protocol, and asked for by the older ones
	for _, path := range s.server.Roots {
		roots = append(roots, &sdk.Root{URI: (&url.URL{Scheme: "file", Path: path}).String(), Name: path}) //nolint:staticcheck // deprecated by the newest protocol, and asked for by the older ones
	}
	return roots
}

// field names the server in the log.
func field(s Server) zap.Field { return zap.String("mcp_server", s.Name) }
