package prompt

import (
	"fmt"
	"math"
	"slices"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// recipeVersion is the version of the recipes that this program writes. Increase it when
// Input.request builds another request from the same recipe.
const recipeVersion = 1

// An Input holds everything that a request depends on: the state of a turn before a round,
// and the model. Rebuild needs the first five fields only.
type Input struct {
	turn    turnkeeper.TurnID
	def     *agentdef.Definition
	body    string         // of the message
	history []turnlog.Past // oldest first
	rounds  []turnkeeper.Round

	sizes   pastSizes       // of the history
	older   int             // number of turns of the conversation before the history
	summary turnlog.Summary // of the beginning of the conversation; zero: none
	model   Model
	window  turnkeeper.Window // its size, and the reserves for answer and safety
	limit   int               // room after a request was refused as too long; 0: none was
	factor  float64           // corrects estimates
	note    string            // follows the system prompt
	tools   *toolset
	record  recordForm
	final   bool
	notice  string
}

// room returns the maximum size of the request, in corrected tokens.
func (in Input) room() int {
	if in.limit > 0 {
		return min(in.limit, in.window.Room())
	}
	return in.window.Room()
}

// A Plan is a recipe with the texts that it names, and the size of the request.
type Plan struct {
	turnkeeper.Recipe
	note    string // follows the system prompt
	tools   []inference.ToolDefinition
	summary string // of the turns that are not shown; empty: none

	tokens int // corrected estimate
	parts  []turnlog.RequestPart
}

// full returns the share of the window that the request takes, in percent.
func (p Plan) full() int { return min(100*p.tokens/max(p.Window.Size, 1), 100) }

// plan fits the request into the window, and reports whether it fits.
func (in Input) plan() (Plan, bool) {
	p := Plan{note: in.note, tools: in.tools.definitions}
	p.Recipe = turnkeeper.Recipe{
		Version: recipeVersion, Provider: in.model.Provider, Model: in.model.Name, Tools: in.tools.part.SHA256,
		Final: in.final, Notice: in.notice,
		Compacted: in.limit,
	}
	in.record.store(&p.Recipe)
	load, window := in.load(p)
	fitted, ok := fit(int(float64(in.room())/in.factor), load)
	window.History, window.Turn = fitted.history, window.Turn+fitted.turn
	p.Window, p.tokens = window, corrected(fitted.tokens, in.factor)
	p.setFitting(in, fitted)
	if in.tools.part.SHA256 != "" {
		p.parts = append(p.parts, in.tools.part)
	}
	return p, ok
}

func corrected(estimate int, factor float64) int { return int(math.Ceil(float64(estimate) * factor)) }

// setFitting sets the recipe's fields from a fitting.
func (p *Plan) setFitting(in Input, f fitting) {
	if f.firstPast < len(in.history) {
		p.FirstPast = in.history[f.firstPast].TurnID
	}
	if f.firstWhole > f.firstPast {
		p.LeanPast = in.history[f.firstWhole-1].TurnID
	}
	if f.noted {
		p.Omitted = f.firstPast + in.older
		p.summary, p.Summary = in.summary.Text, in.summary.UpTo
	}
	p.Dropped = formatNumbers(slices.Concat(f.dropped...))
}

// load counts the tokens of everything that the request could contain.
func (in Input) load(p Plan) (load, turnkeeper.Window) {
	w := messageWriter{ids: map[string]bool{}, plain: p.tools == nil, reread: reads(in.final, p.tools),
		record: in.record, turn: in.turn}
	s := &sizer{in.model.Tokens, w, in.model.Provider}
	window := in.window
	window.Factor, window.System, window.Turn = in.factor, s.message(in.system(p)), s.message(in.body)
	window.Tools = in.tools.tokens(in.model.Tokens)
	if in.notice != "" {
		window.Notice = s.message(in.notice)
	}
	l := load{fixed: window.Estimate(), older: in.older > 0}
	for _, past := range in.history {
		l.past = append(l.past, in.sizes.of(s, past))
	}
	if len(in.history)+in.older > 0 {
		l.note = s.prose(omissionNote(len(in.history)+in.older, in.summary.Text))
	}
	for _, round := range in.rounds {
		l.rounds = append(l.rounds, s.round(round))
	}
	return l, window
}

// tooLong returns the error of a request that does not fit.
func (in Input) tooLong(p Plan) error {
	return &inference.Error{
		Class: inference.ClassContextOverflow, Provider: in.model.Provider, Model: in.model.Name, NoRetry: true,
		Detail: fmt.Sprintf(
			"context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
			p.tokens, in.room(), in.window.Size),
	}
}
