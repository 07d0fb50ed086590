// Package demo is a Provider that needs no key and no network: a script in
// place of a language model. It asks for the tools that fit the message,
// answers from their results, and says in every answer that it is a script.
// The same request always gets the same answer. Asked to search a stored tool
// result, it names the lines that hold the query's words.
//
// # Scripts of one's own
//
// Beside the built-in script, demo/script, there are those of the agents
// folder: the model demo/NAME plays the file NAME.demo.yaml (ParseScript, Load).
// Its steps are chosen and worded by what the conversation holds, by templates.
// docs/demo-scripts.md says how they are written.
//
// With demo/script a system prompt, or failing that the message, may hold a fenced block named
// demo with a JSON array of steps:
//
//	```demo
//	[{"calls": [{"name": "clock", "arguments": {"timezone": "UTC"}}]}, {"text": "Done."}]
//	```
//
// The first model call after a message plays the first step, the next call the
// second, and so on. A step has text, calls, or both. Steps without calls, and
// calls where the request allows none, end with the usual answer when they
// have no text; so does everything after the last step.
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

// Name is the provider's name, and Model that of its built-in script. Every
// other model is a script of a file.
const (
	Name  = "demo"
	Model = "script"
)

// Provider is the demo provider. It keeps nothing between calls. The zero value
// has the built-in script only.
type Provider struct {
	// Script finds a script by name, at each call. nil: there are none.
	Script func(name string) (*Script, bool)
}

var _ inference.Provider = Provider{}

// Generate plays the script. It fails only with ClassInvalid, for a script
// that does not exist or cannot be played, and with the cause of ctx.
func (p Provider) Generate(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
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
			ID: callID(len(req.Messages), i, step.number), Name: call.Name, Arguments: string(call.Arguments),
		})
	}
	res.Usage = usage(req, res)
	if err := stream(ctx, res, onDelta); err != nil {
		return inference.Response{}, err
	}
	return res, nil
}

// step is the answer to a request.
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
	return nil, fmt.Errorf("there is no demo script %q: it would be the file %s%s in the agents folder", name, name, Extension)
}

// signed is an answer that says whose it is.
func (s *Script) signed(text string) string {
	between := " "
	if strings.Contains(text, "\n") {
		between = "\n\n"
	}
	return fmt.Sprintf("%s%s[by the demo script %s, not by a language model]", text, between, s.name)
}

// usage is what a model that counts as package tokens does would report.
func usage(req inference.Request, res inference.Response) turnkeeper.Usage {
	counter := tokens.For(req.Model)
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
	}
	return nil
}

// A step is one answer of a script.
type step struct {
	Text  string `json:"text"`
	Calls []call `json:"calls"`

	number   int  // of the script's file, from 1; 0: it is of none
	unsigned bool // the text stands as it is
}

type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func ask(name string, arguments map[string]string) call {
	data, _ := json.Marshal(arguments) //nolint:errchkjson // strings always marshal
	return call{Name: name, Arguments: data}
}
