package agentturn

import (
	"fmt"
	"math"
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
)

// recipeVersion is the version of recipes that this program writes: it grows
// when material.request makes another request of the same recipe.
const recipeVersion = 3

// A proposal is all that decides about a request before it is fitted.
type proposal struct {
	material
	provider, model string
	older           int                // turns of the conversation before the history
	summary         turnkeeper.Summary // of the beginning of the conversation; zero: none
	note            string             // follows the system prompt
	tools           *toolset
	readers         *toolset // tools and those that read what is not shown; nil: there are none, or tools has them
	final           bool
	notice          string
	window          split
	limit           int     // room that the provider left, when it had refused a request; 0: it did not
	factor          float64 // corrects estimates
	counts          *tokenMemo
}

// room is what the request may take, in corrected tokens.
func (p proposal) room() int {
	if p.limit > 0 {
		return min(p.limit, p.window.room())
	}
	return p.window.room()
}

// A decision is a proposal that was fitted.
type decision struct {
	blueprint
	tokens int // corrected estimate
	parts  []turnkeeper.RequestPart
}

// decide fits the request into the window, and says whether it does. It is a
// function of the proposal alone. Where results give way, the tools to read them
// again are offered, if there is room for these.
func (p proposal) decide() (decision, bool) {
	d, ok := p.fitted()
	if !ok || d.Dropped == "" || p.final || p.readers == nil {
		return d, ok
	}
	p.tools, p.readers = p.readers, nil
	if with, fits := p.fitted(); fits {
		return with, true
	}
	return d, true
}

func (p proposal) fitted() (decision, bool) {
	d := decision{blueprint: blueprint{note: p.note, tools: p.tools.definitions}}
	d.Recipe = turnkeeper.Recipe{
		Version: recipeVersion, Provider: p.provider, Model: p.model, Tools: p.tools.part.SHA256, Final: p.final, Notice: p.notice,
		Compacted: p.limit,
	}
	load, window := p.load(d.blueprint)
	fitted, ok := fit(int(float64(p.room())/p.factor), load)
	window.History, window.Turn = fitted.history, window.Turn+fitted.turn
	d.Window, d.tokens = window, corrected(fitted.tokens, p.factor)
	d.keep(p, fitted)
	if p.tools.part.SHA256 != "" {
		d.parts = append(d.parts, p.tools.part)
	}
	return d, ok
}

func corrected(estimate int, factor float64) int { return int(math.Ceil(float64(estimate) * factor)) }

// keep writes what was fitted into the recipe.
func (d *decision) keep(p proposal, f fitting) {
	if f.firstPast < len(p.history) {
		d.FirstPast = p.history[f.firstPast].TurnID
	}
	if f.firstWhole > f.firstPast {
		d.LeanPast = p.history[f.firstWhole-1].TurnID
	}
	if f.told {
		d.Omitted = f.firstPast + p.older
		d.summary, d.Summary = p.summary.Text, p.summary.UpTo
	}
	d.Dropped = formatNumbers(slices.Concat(f.dropped...))
}

// load counts what the request would hold.
func (p proposal) load(b blueprint) (load, turnkeeper.Window) {
	s := &scale{p.counts, wording{ids: map[string]bool{}, plain: b.tools == nil, reread: reads(p.final, b.tools), version: recipeVersion}, p.provider}
	window := turnkeeper.Window{
		Size: p.window.size, Answer: p.window.answer, Safety: p.window.safety, Factor: p.factor,
		System: s.message(p.system(b)), Tools: p.tools.tokens(p.counts), Turn: s.message(p.body),
	}
	if p.notice != "" {
		window.Notice = s.message(p.notice)
	}
	l := load{fixed: window.Estimate(), older: p.older > 0}
	for _, past := range p.history {
		l.past = append(l.past, s.past(past))
	}
	if len(p.history)+p.older > 0 {
		l.left = s.prose(leftOut(len(p.history)+p.older, p.summary.Text, recipeVersion))
	}
	for _, round := range p.rounds {
		l.rounds = append(l.rounds, s.round(round))
	}
	return l, window
}

// tooLong is why a request that does not fit is not sent.
func (p proposal) tooLong(d decision) error {
	return &inference.Error{
		Class: inference.ClassContextOverflow, Provider: p.provider, Model: p.model, NoRetry: true,
		Detail: fmt.Sprintf("context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
			d.tokens, p.room(), p.window.size),
	}
}
