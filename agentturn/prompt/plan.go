package prompt

import (
	"fmt"
	"math"
	"slices"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
)

// recipeVersion is the version of recipes that this program writes: it grows
// when material.request makes another request of the same recipe.
const recipeVersion = 1

// An Input is all that decides about a request: a turn as it is before a round, and the
// model. A request that is made again needs the first five fields only.
type Input struct {
	turn    turnkeeper.TurnID
	def     *agentdef.Definition
	body    string            // the message
	history []turnkeeper.Past // oldest first
	rounds  []turnkeeper.Round

	older   int                // turns of the conversation before the history
	summary turnkeeper.Summary // of the beginning of the conversation; zero: none
	model   Model
	window  turnkeeper.Window // its size and what no request may take of it
	limit   int               // room that the provider left, when it had refused a request; 0: it did not
	factor  float64           // corrects estimates
	note    string            // follows the system prompt
	tools   *toolset
	readers *toolset // tools and those that read what is not shown; nil: there are none, or tools has them
	final   bool
	notice  string
}

// room is what the request may take, in corrected tokens.
func (in Input) room() int {
	if in.limit > 0 {
		return min(in.limit, in.window.Room())
	}
	return in.window.Room()
}

// A Plan is a recipe with the texts that it names, and what they take.
type Plan struct {
	turnkeeper.Recipe
	note    string // follows the system prompt
	tools   []inference.ToolDefinition
	summary string // of what is not shown; empty: none

	tokens int // corrected estimate
	parts  []turnkeeper.RequestPart
}

// full returns how many hundredths of the window the request takes.
func (p Plan) full() int { return min(100*p.tokens/max(p.Window.Size, 1), 100) }

// plan fits the request into the window, and reports whether it fits. It is a function
// of the input alone. Where results give way, the tools to read them again are offered,
// if there is room for these.
func (in Input) plan() (Plan, bool) {
	p, ok := in.fitted()
	if !ok || p.Dropped == "" || in.final || in.readers == nil {
		return p, ok
	}
	in.tools, in.readers = in.readers, nil
	if with, fits := in.fitted(); fits {
		return with, true
	}
	return p, true
}

func (in Input) fitted() (Plan, bool) {
	p := Plan{note: in.note, tools: in.tools.definitions}
	p.Recipe = turnkeeper.Recipe{
		Version: recipeVersion, Provider: in.model.Provider, Model: in.model.Name, Tools: in.tools.part.SHA256, Final: in.final, Notice: in.notice,
		Compacted: in.limit,
	}
	load, window := in.load(p)
	fitted, ok := fit(int(float64(in.room())/in.factor), load)
	window.History, window.Turn = fitted.history, window.Turn+fitted.turn
	p.Window, p.tokens = window, corrected(fitted.tokens, in.factor)
	p.keep(in, fitted)
	if in.tools.part.SHA256 != "" {
		p.parts = append(p.parts, in.tools.part)
	}
	return p, ok
}

func corrected(estimate int, factor float64) int { return int(math.Ceil(float64(estimate) * factor)) }

// keep writes what was fitted into the recipe.
func (p *Plan) keep(in Input, f fitting) {
	if f.firstPast < len(in.history) {
		p.FirstPast = in.history[f.firstPast].TurnID
	}
	if f.firstWhole > f.firstPast {
		p.LeanPast = in.history[f.firstWhole-1].TurnID
	}
	if f.told {
		p.Omitted = f.firstPast + in.older
		p.summary, p.Summary = in.summary.Text, in.summary.UpTo
	}
	p.Dropped = formatNumbers(slices.Concat(f.dropped...))
}

// load counts what the request would hold.
func (in Input) load(p Plan) (load, turnkeeper.Window) {
	s := &scale{in.model.Tokens, wording{ids: map[string]bool{}, plain: p.tools == nil, reread: reads(in.final, p.tools)}, in.model.Provider}
	window := in.window
	window.Factor, window.System, window.Turn = in.factor, s.message(in.system(p)), s.message(in.body)
	window.Tools = in.tools.tokens(in.model.Tokens)
	if in.notice != "" {
		window.Notice = s.message(in.notice)
	}
	l := load{fixed: window.Estimate(), older: in.older > 0}
	for _, past := range in.history {
		l.past = append(l.past, s.past(past))
	}
	if len(in.history)+in.older > 0 {
		l.left = s.prose(leftOut(len(in.history)+in.older, in.summary.Text))
	}
	for _, round := range in.rounds {
		l.rounds = append(l.rounds, s.round(round))
	}
	return l, window
}

// tooLong returns why a request that does not fit is not sent.
func (in Input) tooLong(p Plan) error {
	return &inference.Error{
		Class: inference.ClassContextOverflow, Provider: in.model.Provider, Model: in.model.Name, NoRetry: true,
		Detail: fmt.Sprintf("context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
			p.tokens, in.room(), in.window.Size),
	}
}
