package agentturn

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A modelAnswer is what the model answered in a round.
type modelAnswer struct {
	number  int
	latency time.Duration
	sent    prompt.Request
	inference.Response
}

// final reports whether the round was announced as the last one: none of its calls runs.
func (a modelAnswer) final() bool { return a.sent.Recipe.Final }

func allPaging(all []turnkeeper.ToolCall) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(c turnkeeper.ToolCall) bool { return !c.Paging })
}

func cleanRaw(raw json.RawMessage) []byte {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil
	}
	return raw
}

// A planner decides about the calls of one answer, in order. It changes nothing of the turn.
type planner struct {
	task      *task
	calls     *calls.List // before the answer
	rules     *rules
	declared  []string // names of the tools that the request declared
	final     bool
	truncated bool
	doubt     string                // why the answer's calls may not be those of the model; empty: they are
	all       []turnkeeper.ToolCall // calls of earlier rounds, and those decided so far
	first     int                   // index in all of this answer's first call
	made      []*calls.Call         // those of this answer
	wireIDs   map[string]bool       // wire IDs used in the turn
	shows     func(id string) bool  // whether the request shows an earlier turn's call with a wire ID
	executed  int                   // calls that ran or will run
	paged     int
}

func newPlanner(s *turnState, a modelAnswer, shows func(id string) bool) *planner {
	p := &planner{task: s.task, calls: s.calls, rules: s.rules, final: a.final(),
		all: slices.Grow(s.calls.All(), len(a.Calls)), wireIDs: map[string]bool{}, shows: shows}
	p.first = len(p.all)
	for _, tool := range a.sent.Tools {
		p.declared = append(p.declared, tool.Name)
	}
	p.truncated = slices.ContainsFunc(a.Calls, func(c inference.Call) bool { return c.Truncated })
	if p.doubt = doubtAbout(a.Response); p.doubt != "" {
		s.log.Warn("the calls of an answer may not be those of the model; none with an effect runs",
			zap.Int("round", a.number), zap.String("model", a.Model), zap.String("reason", p.doubt))
	}
	for _, call := range p.all {
		p.wireIDs[call.WireID] = true
		p.count(call)
	}
	return p
}

// doubtAbout returns why the calls of an answer may not be those of the model: what the provider says, or the first
// arguments that are not one JSON value. If one call is damaged, parts of it may stand in another.
func doubtAbout(res inference.Response) string {
	if res.Doubt != "" {
		return res.Doubt
	}
	for i, call := range res.Calls {
		if strings.TrimSpace(call.Arguments) != "" && !json.Valid([]byte(call.Arguments)) {
			return fmt.Sprintf("the arguments of call %d (%s) are not whole", i+1, turnevents.CleanName(call.Name))
		}
	}
	return ""
}

// count counts a call that ran or will run.
func (p *planner) count(call turnkeeper.ToolCall) {
	if call.State != turnkeeper.CallPlanned && !call.State.Executed() {
		return
	}
	if call.Paging {
		p.paged++
	} else {
		p.executed++
	}
}

func (p *planner) add(ctx context.Context, key turnkeeper.CallKey, wire inference.Call) {
	call, fault := p.read(key, wire)
	p.decide(ctx, call, fault)
}

// read returns a call of the answer, and what is wrong with it, if anything is.
func (p *planner) read(key turnkeeper.CallKey, wire inference.Call) (call *calls.Call, fault string) {
	call = p.calls.Make(&turnkeeper.ToolCall{
		Key:        key,
		ProviderID: outputs.Clean(wire.ID),
		WireID:     p.wireID(wire.ID, key),
		Name:       turnevents.CleanName(wire.Name),
		State:      turnkeeper.CallPlanned,
		Effect:     turnkeeper.EffectOnce,
	})
	return call, p.check(call, wire)
}

// decide decides about the next call. fault is what is wrong with it.
func (p *planner) decide(ctx context.Context, call *calls.Call, fault string) {
	if state, text := p.verdict(ctx, call, fault); state != turnkeeper.CallPlanned {
		call.State, call.Shown, call.Preview = state, text, outputs.Preview(text)
		call.EndedAt = time.Now()
	}
	if !call.MayRepeat(p.answered()) { // else it is counted if it has to run after all
		p.count(*call.ToolCall)
	}
	p.all, p.made = append(p.all, *call.ToolCall), append(p.made, call)
}

// back yields the calls decided so far and those of earlier rounds, the last first.
func (p *planner) back() iter.Seq[*turnkeeper.ToolCall] {
	return func(yield func(*turnkeeper.ToolCall) bool) {
		for i := range slices.Backward(p.all) {
			if !yield(&p.all[i]) {
				return
			}
		}
	}
}

// answered returns the calls of the answer that were decided so far.
func (p *planner) answered() []turnkeeper.ToolCall { return p.all[p.first:] }

// check fills in what the tool's spec and the arguments say, and returns what is wrong
// with the call, if anything.
func (p *planner) check(call *calls.Call, wire inference.Call) (fault string) {
	known := call.Known() && call.Name == wire.Name
	if known {
		call.Effect, call.Paging = call.Spec.Effect, call.Spec.Paging
	}
	args, fault := p.task.offered.Check(wire.Name, wire.Arguments)
	call.Arguments = args.Canonical
	if fault != "" {
		call.Arguments = p.unchecked(wire.Arguments)
	}
	if call.Arguments != wire.Arguments {
		call.RawArgs = outputs.Clean(wire.Arguments[:min(len(wire.Arguments), tools.MaxArgumentBytes)])
	}
	call.ArgsHash = tools.Hash(call.Name, call.Arguments)
	call.Handles = p.task.offered.HasHandles(call.ToolCall)
	if refused := p.task.family().refuse(*call.ToolCall, p.all); refused != "" {
		return refused
	}
	if !known {
		return p.notFound(call.Name)
	}
	return fault
}

// anyObject accepts any JSON object.
var anyObject = func() *tools.Schema {
	schema, err := tools.CompileSchema(json.RawMessage(`{"type":"object"}`))
	if err != nil {
		panic(err)
	}
	return schema
}()

// unchecked returns faulty arguments as they go into the journal and back to the model:
// in canonical form if they are an object, else as an object that quotes them.
func (p *planner) unchecked(raw string) string {
	if args, fault := tools.CheckArguments(anyObject, raw); fault == "" {
		return args.Canonical
	}
	return tools.MalformedPlaceholder(raw)
}

// verdict decides about a call. fault is what is wrong with it.
func (p *planner) verdict(ctx context.Context, call *calls.Call, fault string) (turnkeeper.CallState, string) {
	switch {
	case strings.HasPrefix(fault, turnlog.RefusedUnknown): // first, because replies do not show the name of such a call
		return turnkeeper.CallDenied, fault
	case p.final:
		return turnkeeper.CallDenied, shownFinal
	case p.truncated:
		return turnkeeper.CallDenied, shownTruncated
	case fault != "":
		return turnkeeper.CallDenied, fault
	case p.doubt != "" && call.Effect != turnkeeper.EffectNone:
		return turnkeeper.CallDenied, fmt.Sprintf(shownDoubt, p.doubt)
	}
	if first := call.Repeated(p.back()); first != nil {
		return turnkeeper.CallSkipped, calls.RepeatedResult(*first)
	}
	if text, skip := p.skip(ctx, call); skip {
		return turnkeeper.CallSkipped, text
	}
	if over := p.overCap(call); over != "" && !call.MayRepeat(p.answered()) {
		return turnkeeper.CallDenied, over
	}
	if call.Handles {
		return turnkeeper.CallPlanned, "" // decided when they are resolved
	}
	if d := p.rules.rule(ctx, call); d.Verdict == policy.Deny {
		return turnkeeper.CallDenied, calls.ShownRefused(d)
	}
	return turnkeeper.CallPlanned, ""
}

// Results of calls that are denied because of the answer as a whole.
const (
	shownFinal     = turnlog.Denied + turnlog.RefusedFinal + "."
	shownTruncated = turnlog.Denied + turnlog.RefusedCut + ". None was run. " +
		"Ask for them again, in a shorter answer."
	shownDoubt = turnlog.Denied + turnlog.RefusedPieces +
		" (%s). No call with an effect was run. Ask for this call again."
)

// taken reports whether a wire ID is used in the turn or in an earlier turn that the request shows.
func (p *planner) taken(id string) bool { return p.wireIDs[id] || p.shows(id) }

// wireID returns the ID under which the call is answered: the provider's own ID if it
// is valid and not taken. Servers that count the calls of an answer repeat their IDs in each turn.
func (p *planner) wireID(id string, key turnkeeper.CallKey) string {
	if id == "" || len(id) > maxWireID || outputs.Clean(id) != id || p.taken(id) {
		id = key.String()
	}
	if p.taken(id) {
		id = prompt.RenamedID(p.task.record.Turn.ID, key)
	}
	for n := 2; p.taken(id); n++ {
		id = fmt.Sprintf("%s-%d", prompt.RenamedID(p.task.record.Turn.ID, key), n)
	}
	p.wireIDs[id] = true
	return id
}

const maxWireID = 200 // bytes

// notFound returns the result of a call of an unknown tool. It does not reveal whether
// the tool is missing or the agent may not use it, and names what was offered.
func (p *planner) notFound(name string) string {
	names := p.declared
	text := turnlog.RefusedUnknown + ": " + name
	if len(names) == 0 {
		return text + "\nThere are no tools. Nothing was run."
	}
	text += "\nNothing was run. Available tools: " + strings.Join(names, ", ") + "."
	if near := p.task.offered.Nearest(name); slices.Contains(names, near) {
		text += fmt.Sprintf(" Did you mean %q?", near)
	}
	return text
}
