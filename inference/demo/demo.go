// Package demo is a Provider that needs no key and no network: a script instead of a language
// model. It calls the tools that fit the message, answers from their results, and says in every
// answer that it is a script. The same request always gets the same answer. To search a stored
// tool result, it returns the lines that contain words of the query.
//
// # Custom scripts
//
// In addition to the built-in script, demo/script, there are the scripts of the agents folder:
// the model demo/NAME plays the file NAME.demo.yaml (ParseScript, Load). Templates over the
// conversation select and fill its steps. docs/demo-scripts.md describes the format.
//
// With demo/script, the system prompt or else the message may contain a fenced block named demo
// with a JSON array of steps:
//
//	```demo
//	[{"calls": [{"name": "clock", "arguments": {"timezone": "UTC"}}]}, {"text": "Done."}]
//	```
//
// The first model call after a message plays the first step, the next call the second, and so
// on. A step has text, calls, or both. If the request allows no calls, they are dropped. An
// empty step, and every call after the last step, gives the default answer.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/tokens"
)

// Name is the provider's name, and Model that of its built-in script. Every other model is a
// script from a file.
const (
	Name  = "demo"
	Model = "script"
)

// A Provider is the demo provider. It has no state between calls. The zero value has only the
// built-in script.
type Provider struct {
	// Script returns a script by name. It is called for each request. nil: there are none.
	Script func(name string) (*Script, bool)
}

var _ inference.Provider = Provider{}

// Generate plays the script. Its errors are ClassInvalid, for a script that does not exist or
// cannot be played, and the cause of ctx.
func (p Provider) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if ctx.Err() != nil {
		return inference.Response{}, context.Cause(ctx)
	}
	step, err := p.step(req)
	if err != nil {
		return inference.Response{}, &inference.Error{
			Class: inference.ClassInvalid, Provider: Name, Model: req.Model, Detail: err.Error(),
		}
	}
	res := inference.Response{
		ID: fmt.Sprintf("demo-%d", len(req.Messages)), Provider: Name, Model: req.Model,
		Text: step.Text, FinishReason: "stop",
	}
	for i, call := range step.Calls {
		res.FinishReason = "tool_calls"
		res.Calls = append(res.Calls, inference.Call{
			ID: callID(req, i, step.number), Name: call.Name, Arguments: string(call.Arguments),
		})
	}
	res.Usage = usage(req, res)
	if err := stream(ctx, res, onDelta); err != nil {
		return inference.Response{}, err
	}
	return res, nil
}

// step returns the answer to a request.
func (p Provider) step(req inference.Request) (step, error) {
	if answer, ok := Extraction(req); ok {
		return step{Text: answer}, nil
	}
	c := read(req)
	if req.Model == "" || req.Model == Model {
		next, err := c.planned()
		return c.orAnswer(next), err
	}
	script, err := p.find(req.Model)
	if err != nil {
		return step{}, err
	}
	next, err := script.play(c)
	if len(c.tools) == 0 {
		next.Calls = nil
	}
	if next.Text != "" && len(next.Calls) == 0 && !next.unsigned {
		next.Text = script.signed(next.Text)
	}
	return c.orAnswer(next), err
}

func (p Provider) find(name string) (*Script, error) {
	if p.Script != nil {
		if script, ok := p.Script(name); ok && script != nil {
			return script, nil
		}
	}
	return nil, fmt.Errorf("there is no demo script %q: create the file %s%s in the agents folder", name,
		name, Extension)
}

// signed returns an answer with a note that a script made it.
func (s *Script) signed(text string) string {
	between := " "
	if strings.Contains(text, "\n") {
		between = "\n\n"
	}
	return fmt.Sprintf("%s%s[by the demo script %s, not by a language model]", text, between, s.name)
}

// usage returns the usage, counted by characters.
func usage(req inference.Request, res inference.Response) turnkeeper.Usage {
	var counter tokens.Counter
	in := counter.CountTools(req.Tools)
	for _, m := range req.Messages {
		in += counter.CountMessage(m)
	}
	out := counter.CountMessage(inference.Message{Text: res.Text, Calls: res.Calls})
	return turnkeeper.Usage{InputTokens: int64(in), OutputTokens: int64(out)}
}

// stream sends the text word by word, and each call.
func stream(ctx context.Context, res inference.Response, onDelta func(inference.Delta)) error {
	if onDelta == nil {
		return nil
	}
	for word := range strings.SplitAfterSeq(res.Text, " ") {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if word != "" {
			onDelta(inference.Delta{Kind: inference.DeltaText, Text: word})
		}
	}
	for i, call := range res.Calls {
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Name: call.Name})
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Text: call.Arguments})
		onDelta(inference.Delta{Kind: inference.DeltaTool, Index: i, Done: true})
	}
	return nil
}

// A step is one answer of a script.
type step struct {
	Text  string `json:"text"`
	Calls []call `json:"calls"`

	number   int  // in the script's file, from 1; 0: not from a file
	unsigned bool // no note is added to the text
}

type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func ask(name string, arguments map[string]string) call {
	data, _ := json.Marshal(arguments) //nolint:errchkjson // strings always marshal
	return call{Name: name, Arguments: data}
}
