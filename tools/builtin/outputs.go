package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// NewReaders returns the tools that read stored results, get_continuation and
// get_tool_output, and wait_for_tool_output, which waits for background calls. They
// run no tool again.
func NewReaders() []tools.Tool { return []tools.Tool{continuation(), toolOutput(), waitForOutput()} }

// The schemas accept most of what models send, so the tool itself can explain a fault.
const (
	continuationSchema = `{"type": "object", "properties": {
		"tool_call_id": {"type": ["string", "integer"], "description": "the id in the marker at the end of the cut result; or the call's number in this turn"},
		"id": {"type": ["string", "integer"], "description": "another name for tool_call_id"},
		"offset": {"type": ["integer", "number", "string", "null"], "description": "the first character to read, from 0; when left out, reading goes on where it ended"}
	}, "additionalProperties": false}`
	toolOutputSchema = `{"type": "object", "properties": {
		"id": {"type": ["string", "integer"], "description": "the id of the output, or of the tool call"},
		"mode": {"type": "string", "enum": ["raw", "slice", "extract"], "description": "raw: the whole text, if it is not too long; slice: a part of it; extract: the passages that answer a query"},
		"query": {"type": ["string", "null"], "description": "of mode extract: what to look for, in plain words"},
		"slice": {"type": "object", "description": "which part, in characters", "properties": {
			"start": {"type": "integer", "minimum": 0},
			"length": {"type": "integer", "minimum": 0, "description": "default 1000"},
			"anchor": {"type": "string", "description": "a plain string: the part around it is read"},
			"window": {"type": "integer", "minimum": 0, "description": "characters around the anchor, default 1000"},
			"match_index": {"type": "integer", "minimum": 0, "description": "which match of the anchor, from 0"}
		}, "additionalProperties": false}
	}, "required": ["id", "mode"], "additionalProperties": false}`
)

func continuation() tools.Tool {
	spec := tools.Spec{
		Name: turnkeeper.ToolGetContinuation, Effect: turnkeeper.EffectNone, Paging: true,
		Parameters:  json.RawMessage(continuationSchema),
		Description: "Reads on in a tool result that was cut. The tool is not run again.",
	}
	return tools.New(spec, func(ctx context.Context, call tools.Call, _ any) (tools.Result, error) {
		text, err := readOn(ctx, call)
		return refusals(tools.Result{Text: text}, err)
	})
}

func readOn(ctx context.Context, call tools.Call) (string, error) {
	asked, err := outputs.ParseContinuation(call.Arguments)
	if err != nil {
		return "", err
	}
	o, err := find(ctx, call, asked.ID)
	if err != nil {
		return "", err
	}
	offset := o.Unseen
	if asked.Offset != nil {
		offset = *asked.Offset
	}
	page, err := outputs.PageAt(ctx, source{o}, offset, o.MaxChars)
	if err != nil {
		return "", err
	}
	return page.Render(o.CallID), o.Retrieved(ctx)
}

type outputArgs struct {
	ID    outputs.ID `json:"id"`
	Mode  string     `json:"mode"`
	Query string     `json:"query"`
	Slice struct {
		Start  int64  `json:"start"`
		Length int64  `json:"length"`
		Anchor string `json:"anchor"`
		Window int64  `json:"window"`
		Match  int64  `json:"match_index"`
	} `json:"slice"`
}

func toolOutput() tools.Tool {
	spec := tools.Spec{
		Name: turnkeeper.ToolGetToolOutput, Effect: turnkeeper.EffectNone, Paging: true,
		Parameters:  json.RawMessage(toolOutputSchema),
		Description: "Reads a stored tool result: the whole of it, a part, or the passages that answer a query. The tool is not run again.",
	}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args outputArgs) (tools.Result, error) {
		return refusals(readOutput(ctx, call, args))
	})
}

func readOutput(ctx context.Context, call tools.Call, args outputArgs) (tools.Result, error) {
	o, err := find(ctx, call, string(args.ID))
	if err != nil {
		return tools.Result{}, err
	}
	if o.Failure != "" {
		return tools.Result{}, refused(o.Failure)
	}
	var result tools.Result
	if args.Mode == "extract" {
		result, err = o.extract(ctx, args.Query)
	} else {
		result.Text, err = o.part(ctx, args)
	}
	if err != nil {
		return tools.Result{}, err
	}
	return result, o.Retrieved(ctx)
}

// maxQueryChars is the maximum length of a query in extract mode.
const maxQueryChars = 4000

// extract validates the query and asks a model for its answer in the output.
func (o output) extract(ctx context.Context, query string) (tools.Result, error) {
	query = strings.TrimSpace(query)
	switch n := utf8.RuneCountInString(query); {
	case query == "":
		return tools.Result{}, refused("Query required for extract mode.")
	case n > maxQueryChars:
		return tools.Result{}, refused(fmt.Sprintf("query must be at most %d characters, and has %d", maxQueryChars, n))
	case o.Binary:
		return tools.Result{}, refused("extract mode searches text, and this output is binary")
	case o.Extract == nil:
		return tools.Result{}, refused("extract mode is not available here. Use slice mode.")
	}
	return o.Extract(ctx, query)
}

// part returns the requested part of an output, in raw or slice mode.
func (o output) part(ctx context.Context, args outputArgs) (string, error) {
	if args.Mode == "raw" {
		if o.Tokens > o.MaxTokens {
			return "", refused(fmt.Sprintf("Response too large (%d bytes). Use extract or slice mode.", o.Bytes))
		}
		return o.Read(ctx, 0, o.Chars)
	}
	s := args.Slice
	span, err := outputs.Slice(ctx, source{o}, outputs.SliceRequest{
		Start: s.Start, Length: s.Length, Anchor: s.Anchor, Window: s.Window, Match: s.Match,
	})
	if err != nil {
		return "", err
	}
	return span.Render(), nil
}

// An output is a stored result that find returned.
type output struct{ tools.Output }

func find(ctx context.Context, call tools.Call, id string) (output, error) {
	if call.Outputs == nil {
		return output{}, refused("Unknown tool ID: " + id)
	}
	o, found, err := call.Outputs.Find(ctx, id)
	if err == nil && !found {
		err = refused("Unknown tool ID: " + id)
	}
	if err == nil && o.Running {
		err = refused("Tool not ready. Use wait_for_tool_output.")
	}
	if err == nil && o.Expired {
		err = refused("expired: the output of " + id + " is no longer stored")
	}
	return output{o}, err
}

// source adapts an output to outputs.Source.
type source struct{ output }

func (s source) Chars() int64 { return s.Output.Chars }

func (s source) Read(ctx context.Context, from, to int64) (string, error) {
	return s.Output.Read(ctx, from, to)
}

// A refused error is a request that the tool refuses; its text is for the model.
type refused string

func (r refused) Error() string { return string(r) }

// refusals turns a refusal into a JSON result for the model. Any other error fails
// the call.
func refusals(result tools.Result, err error) (tools.Result, error) {
	var words string
	if r, ok := errors.AsType[*outputs.Refusal](err); ok {
		words = r.Error()
	} else if r, ok := errors.AsType[refused](err); ok {
		words = r.Error()
	} else {
		return result, err
	}
	body, err := json.Marshal(map[string]string{"error": words})
	return tools.Result{Text: string(body), MediaType: "application/json", IsError: true}, err
}
