package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// NewReaders are the tools that read more of stored results, get_continuation
// and get_tool_output, and the one that waits for those that are not there yet,
// wait_for_tool_output. They run no tool again.
func NewReaders() []tools.Tool { return []tools.Tool{continuation(), toolOutput(), waitForOutput()} }

// The schemas take what models send, so that what is wrong is said in words.
const (
	continuationSchema = `{"type": "object", "properties": {
		"tool_call_id": {"type": ["string", "integer"], "description": "the id in the marker at the end of the cut result; or the call's number in this turn"},
		"id": {"type": ["string", "integer"], "description": "another name for tool_call_id"},
		"offset": {"type": ["integer", "number", "string", "null"], "description": "the first character to read, from 0; when left out, reading goes on where it ended"}
	}, "additionalProperties": false}`
	toolOutputSchema = `{"type": "object", "properties": {
		"id": {"type": ["string", "integer"], "description": "the id of the output, or of the tool call"},
		"mode": {"type": "string", "enum": ["raw", "slice"], "description": "raw: the whole text, if it is not too long; slice: a part of it"},
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
		Name: turnkeeper.ToolGetContinuation, Effect: turnkeeper.EffectNone, Paging: true, Parameters: json.RawMessage(continuationSchema),
		Description: "Reads on in a tool result that was cut. The tool is not run again.",
	}
	return tools.New(spec, func(ctx context.Context, call tools.Call, _ any) (tools.Result, error) {
		return refusals(readOn(ctx, call))
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
	ID    any    `json:"id"`
	Mode  string `json:"mode"`
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
		Name: turnkeeper.ToolGetToolOutput, Effect: turnkeeper.EffectNone, Paging: true, Parameters: json.RawMessage(toolOutputSchema),
		Description: "Reads a stored tool result: the whole of it, or a part. The tool is not run again.",
	}
	return tools.New(spec, func(ctx context.Context, call tools.Call, args outputArgs) (tools.Result, error) {
		return refusals(readOutput(ctx, call, args))
	})
}

func readOutput(ctx context.Context, call tools.Call, args outputArgs) (string, error) {
	o, err := find(ctx, call, fmt.Sprint(args.ID))
	if err != nil {
		return "", err
	}
	if o.Failure != "" {
		return "", refused(o.Failure)
	}
	text, err := o.part(ctx, args)
	if err != nil {
		return "", err
	}
	return text, o.Retrieved(ctx)
}

// part is what was asked for of an output.
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
	return span.Text, err
}

// An output that was found.
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
	return output{o}, err
}

// source makes an output one that is read in parts.
type source struct{ output }

func (s source) Chars() int64 { return s.Output.Chars }

func (s source) Read(ctx context.Context, from, to int64) (string, error) {
	return s.Output.Read(ctx, from, to)
}

// A refused request is told in these words.
type refused string

func (r refused) Error() string { return string(r) }

// refusals tells the model what it asked wrongly as JSON; other errors fail the
// call.
func refusals(text string, err error) (tools.Result, error) {
	var words string
	if r, ok := errors.AsType[*outputs.Refusal](err); ok {
		words = r.Error()
	} else if r, ok := errors.AsType[refused](err); ok {
		words = r.Error()
	} else {
		return tools.Result{Text: text}, err
	}
	told, err := json.Marshal(map[string]string{"error": words})
	return tools.Result{Text: string(told), MediaType: "application/json", IsError: true}, err
}
