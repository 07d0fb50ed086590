package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/inference/demo"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
)

// A ProbeFinding is one thing that a probe of a model has found. Its JSON is that of a check of "turnctl doctor".
type ProbeFinding struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"` // ProbeOK, ProbeWarn or ProbeFail
	Found   string `json:"found"`
	Advice  string `json:"advice"` // what to do; empty: nothing
}

// The verdicts of a ProbeFinding.
const (
	ProbeOK   = "ok"
	ProbeWarn = "warn" // a worker copes with it
	ProbeFail = "fail" // agents do not work with this model
)

// Limits of a probe.
const (
	probeTime   = 2 * time.Minute // of one request
	probeTokens = 2000            // of one answer, reasoning included
)

// ProbeModels makes up to three requests to each of the models, as a worker makes them, and says what is wrong with the
// answers. No names: the models of all agents and the default model, without the demo.
func ProbeModels(ctx context.Context, cfg *config.Config, names []string, log *zap.Logger) ([]ProbeFinding, error) {
	if len(names) == 0 {
		names = probedModels(cfg)
	}
	models, err := setup.NewModels(cfg, func(string) (*demo.Script, bool) {
		return nil, false
	}, readers, cfg.Masker(), log)
	if err != nil {
		return nil, err
	}
	findings := []ProbeFinding{}
	for _, name := range names {
		provider, info, err := models.Find(name)
		if err != nil {
			findings = append(findings, ProbeFinding{"probe " + name, ProbeFail, err.Error(), ""})
			continue
		}
		p := &modelProbe{provider: provider, model: info.Model, name: "probe " + name}
		p.run(ctx)
		findings = append(findings, p.findings...)
	}
	return findings, nil
}

// probedModels returns the models that agents use, sorted.
func probedModels(cfg *config.Config) []string {
	readings, _ := agentdef.ReadAll(cfg.AgentsDir) // doctor reports a file that cannot be read
	used := map[string]bool{cfg.DefaultModel: true}
	for _, r := range readings {
		if r.Definition != nil {
			for _, model := range setup.ModelsOf(r.Definition, cfg) {
				used[model] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(name string) bool {
		return name == "" || strings.HasPrefix(name, demo.Name+"/")
	})
}

// A modelProbe is the probe of one model.
type modelProbe struct {
	provider inference.Provider
	model    string
	name     string // of the findings
	findings []ProbeFinding
	reasoned bool // the server demands reasoning on every answer
	requests int
	tokens   int64
}

func (p *modelProbe) add(verdict, found, advice string) {
	finding := ProbeFinding{p.name, verdict, found, advice}
	if !slices.Contains(p.findings, finding) {
		p.findings = append(p.findings, finding)
	}
}

const probeTool = "probe_add"

func probeRequest(texts ...inference.Message) inference.Request {
	return inference.Request{
		Messages: append([]inference.Message{{Role: inference.RoleSystem,
			Text: "You test tool calls. Do exactly what " +
				"you are asked."}}, texts...),
		Tools: []inference.ToolDefinition{{
			Name: probeTool, Description: "Adds two numbers.",
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`),
		}},
		MaxOutputTokens: probeTokens, User: "turnctl-doctor",
	}
}

func probeSays(text string) inference.Message {
	return inference.Message{Role: inference.RoleUser, Text: text}
}

// run asks for a call, gives its result, and asks for two calls at once.
func (p *modelProbe) run(ctx context.Context) {
	question := probeSays("Call the tool " + probeTool + " once, with a = 2 and b = 3. Say nothing else.")
	res, ok := p.ask(ctx, "a tool call", probeRequest(question))
	if ok && p.called(res) {
		p.goOn(ctx, question, res)
		p.parallel(ctx)
	}
	if !slices.ContainsFunc(p.findings, func(f ProbeFinding) bool { return f.Verdict == ProbeFail }) {
		p.add(ProbeOK, fmt.Sprintf("calls tools and takes their results (%d requests, %d tokens)", p.requests,
			p.tokens), "")
	}
}

// ask makes one request. what says what was asked for.
func (p *modelProbe) ask(ctx context.Context, what string, request inference.Request) (inference.Response, bool) {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	request.Model, request.Reasoned = p.model, p.reasoned
	p.requests++
	res, err := p.provider.Generate(ctx, request, func(inference.Delta) {})
	if err != nil {
		if failure, ok := errors.AsType[*inference.Error](err); ok &&
			failure.Record == inference.RecordLacksReasoning && !p.reasoned {
			p.reasoned = true
			p.add(ProbeWarn, "demands reasoning_content on each earlier answer: "+failure.Detail,
				"nothing needs to be done, "+
					"but each conversation costs "+
					"one refused request; with `reasoning: require` for the provider there is none, if the server takes an empty text")
			return p.ask(ctx, what, request)
		}
		p.refused(what, err)
		return res, false
	}
	p.tokens += res.Usage.Total()
	p.examine(res)
	return res, true
}

// refused reports a request without an answer.
func (p *modelProbe) refused(what string, err error) {
	failure, ok := errors.AsType[*inference.Error](err)
	switch {
	case !ok:
		p.add(ProbeFail, "gave no answer when asked for "+what+": "+err.Error(), "see whether the server works, and "+
			"how fast it is")
	case failure.Code == inference.CodeMarkup:
		p.add(ProbeFail, failure.Detail, "set the server's parser of tool calls as named; the text of such an answer "+
			"is never sent to anybody")
	case failure.Class == inference.ClassBadOutput:
		p.add(ProbeFail, "gave no usable answer when asked for "+what+": "+failure.Detail, parserAdvice)
	default:
		p.add(ProbeFail, "refused the request for "+what+": "+failure.Error(), refusalAdvice(failure))
	}
}

// parserAdvice names the settings of servers that decide about tool calls.
const parserAdvice = "choose a model that is trained for tools, and set the server up for it. vLLM: --enable-auto-tool-choice --tool-call-parser NAME; " +
	"SGLang: --tool-call-parser NAME; llama.cpp: --jinja; Ollama: a model whose template has tools (ollama show MODEL)"

func refusalAdvice(failure *inference.Error) string {
	switch {
	case failure.Class == inference.ClassAuth:
		return "set the right key of the provider"
	case failure.Class == inference.ClassNotFound:
		return "correct the model's name, or base_url"
	case failure.Class == inference.ClassInvalid:
		return "set the keys of the provider's profile for what the server refuses (docs/providers.md); vLLM refuses " +
			"tools without --enable-auto-tool-choice and --tool-call-parser"
	case failure.Class.OfService():
		return "see whether the server runs, and try again"
	default:
		return ""
	}
}

// examine reports what is unusual about an answer to any request.
func (p *modelProbe) examine(res inference.Response) {
	if res.Doubt != "" {
		p.add(ProbeFail, "sends tool calls that cannot be put together with certainty: "+res.Doubt, "update the "+
			"server, or set `stream: false` for the provider: no call with an effect of such an answer runs")
	}
	switch finish := inference.FinishOf(res.FinishReason); {
	case res.FinishReason == "":
		p.add(ProbeWarn, "sends no finish_reason, so that nobody can see whether an answer was cut", "update the "+
			"server, or the proxy before it")
	case finish == inference.FinishUnknown:
		p.add(ProbeFail, "sends the unknown finish_reason "+res.FinishReason, "update the server: no call with an "+
			"effect of such an answer runs")
	case finish == inference.FinishCut:
		p.add(ProbeWarn, fmt.Sprintf("did not end its answer within %d tokens (finish_reason %s)", probeTokens,
			res.FinishReason), "turn the model's reasoning down, or set a greater limit for its answers at the server")
	case len(res.Calls) > 0 && !strings.Contains(res.FinishReason, "tool") &&
		!strings.Contains(res.FinishReason, "function"):
		p.add(ProbeWarn, "sends finish_reason "+res.FinishReason+" with tool calls, in place of tool_calls", "nothing "+
			"must be done")
	}
	if res.Usage.Total() == 0 {
		p.add(ProbeWarn, "reports no usage, so that tokens are estimated",
			"set `stream_usage: true` for the provider if its server supports stream_options")
	}
	if res.Reasoning != "" && !bytes.Contains(res.Raw, []byte("reasoning")) && !bytes.Contains(res.Raw,
		[]byte("thinking")) {
		p.add(ProbeWarn, "leaves reasoning in the text of answers, in tags such as <think>: it is removed, but text "+
			"is not streamed until it ends",
			"set the server's parser of reasoning. vLLM and SGLang: --reasoning-parser NAME; llama.cpp: "+
				"--reasoning-format auto; Ollama: a newer version")
	}
	p.examineIDs(res.Calls)
}

func (p *modelProbe) examineIDs(calls []inference.Call) {
	ids := map[string]bool{}
	for _, c := range calls {
		switch {
		case c.ID == "":
			p.add(ProbeWarn, "sends tool calls without an id", "nothing needs to be done: they get one")
		case ids[c.ID]:
			p.add(ProbeWarn, "sends several tool calls with one id", "nothing needs to be done: they get others")
		}
		ids[c.ID] = true
	}
}

// called reports whether an answer is the one call that was asked for, and what is wrong if not.
func (p *modelProbe) called(res inference.Response) bool {
	if len(res.Calls) == 0 {
		p.add(ProbeFail, fmt.Sprintf("answered with text in place of the tool call that it was asked for: %.100q",
			res.Text), parserAdvice)
		return false
	}
	if n := len(res.Calls); n > 1 {
		p.add(ProbeWarn, fmt.Sprintf("made %d tool calls when asked for one", n), "watch what the model does with "+
			"tools that have an effect")
	}
	return p.right(res.Calls[0], 2, 3)
}

// right reports whether a call has the arguments that were asked for.
func (p *modelProbe) right(call inference.Call, a, b int) bool {
	var got struct{ A, B *int }
	switch err := json.Unmarshal([]byte(call.Arguments), &got); {
	case call.Name != probeTool:
		p.add(ProbeFail, fmt.Sprintf("called the tool %.60q, which it does not have", call.Name), parserAdvice)
	case !json.Valid([]byte(call.Arguments)):
		p.add(ProbeFail, fmt.Sprintf("sends arguments that are not JSON: %.100q", call.Arguments), "update the "+
			"server, or its parser of tool calls: such a call does not run")
	case err != nil || got.A == nil || got.B == nil || *got.A != a || *got.B != b:
		p.add(ProbeFail, fmt.Sprintf("sends other arguments than it was asked for: %.100s", call.Arguments), "choose "+
			"a model that is trained for tools, or another parser of tool calls")
	default:
		return true
	}
	return false
}

// goOn gives the result of a call, as the next round of a turn does.
func (p *modelProbe) goOn(ctx context.Context, question inference.Message, res inference.Response) {
	call := res.Calls[0]
	if call.ID == "" {
		call.ID = "round-1-tool-1"
	}
	request := probeRequest(question,
		inference.Message{Role: inference.RoleAssistant, Text: res.Text, Calls: []inference.Call{call}, Raw: res.Raw,
			RawProvider: res.Provider},
		inference.Message{Role: inference.RoleTool, CallID: call.ID, Tool: probeTool, Text: "5"},
		probeSays("Write the sum in plain words. Call no tool."))
	if len(res.Calls) > 1 { // the provider's own message has calls without a result
		request.Messages[2].Raw = nil
	}
	answer, ok := p.ask(ctx, "an answer to a tool's result", request)
	if ok && inference.Blank(answer.Text) {
		p.add(ProbeFail, "called a tool again in place of an answer to its result",
			"choose a model that is trained for tools")
	}
}

// parallel asks for two calls in one answer.
func (p *modelProbe) parallel(ctx context.Context) {
	res, ok := p.ask(ctx, "two tool calls at once", probeRequest(probeSays(
		"Call the tool "+probeTool+
			" twice in one answer, in parallel: with a = 1 and b = 1, and with a = 2 and b = 2.")))
	switch {
	case !ok:
	case len(res.Calls) < 2:
		p.add(ProbeWarn, "made fewer than two tool calls in one answer when asked for two",
			"nothing needs to be done: "+
				"tools then run one after the other")
	default:
		for i, call := range res.Calls[:2] {
			p.right(call, i+1, i+1)
		}
	}
}
