package prompt

import (
	"fmt"
	"math"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// recipeVersion is the version of the recipes that this program writes. Increase it when
// input.request builds another request from the same recipe: epochs of another version then end.
const recipeVersion = 2

// A plan is a request that is not built yet, with the sizes of its parts.
type plan struct {
	*sizer
	s      *State
	m      Model
	at     Moment
	window turnkeeper.Window
	limit  int // room after a request was refused as too long; 0: none was
	factor float64
	said   said // by the newest notices

	imitating []imitator // calls whose results imitate the program
}

// plan returns the plan of a request to a model in an epoch: its notice, the message and the tools are counted.
func (s *State) plan(m Model, at Moment, e *epoch) *plan {
	p := &plan{sizer: newSizer(m, e), s: s, m: m, at: at, window: splitWindow(m.Window, s.def.MaxOutputTokens),
		limit: e.Room, factor: s.factor(m, at.Rounds), said: s.saidIn(e, at.Rounds)}
	p.imitating = s.imitating(e, at.Rounds)
	p.window.Factor, p.window.Turn = p.factor, p.message(s.body)
	p.window.Tools = p.toolTokens()
	p.setNotice(100)
	return p
}

// setNotice returns the notice of a request that takes this share of the window, in percent, and counts it.
func (p *plan) setNotice(full int) (notice string) {
	if notice = p.notice(full); notice != "" {
		p.window.Notice = p.message(notice)
	}
	return notice
}

// room returns the maximum size of the request, in corrected tokens.
func (p *plan) room() int { return roomIn(p.window, p.limit) }

// roomIn returns the room of a window after a request was refused as too long. limit 0: none was.
func roomIn(w turnkeeper.Window, limit int) int {
	if limit > 0 {
		return min(limit, w.Room())
	}
	return w.Room()
}

// tokens returns the size of the request, in corrected tokens.
func (p *plan) tokens() int { return corrected(p.window.Estimate(), p.factor) }

// full returns the share of the window that the request takes, in percent.
func (p *plan) full() int { return min(100*p.tokens()/max(p.window.Size, 1), 100) }

func corrected(estimate int, factor float64) int { return int(math.Ceil(float64(estimate) * factor)) }

// fit chooses what a new epoch shows of the turns and of this turn. It leaves room for a summary that is still to be
// made, and reports whether the request fits.
func (p *plan) fit(history []turnlog.Past, older int, summary string, summaryRoom int) (fitting, bool) {
	p.window.System = p.message(p.s.systemText())
	l := load{fixed: p.window.Estimate(), older: older > 0}
	for _, past := range history {
		l.past = append(l.past, p.s.pasts.load(p.sizer, past))
	}
	if len(history)+older > 0 {
		l.note = p.prose(omissionNote(len(history)+older, summary)) + summaryRoom
	}
	for i := range p.at.Rounds {
		l.rounds = append(l.rounds, p.round(&p.at.Rounds[i]))
	}
	f, ok := fit(int(float64(p.room())/p.factor), l)
	if f.noted {
		f.history -= summaryRoom
	}
	p.window.History, p.window.Turn = f.history, p.window.Turn+f.turn
	return f, ok
}

// request builds the request. past is what is written of the earlier turns, or nil.
func (p *plan) request(shown []turnlog.Past, past *written) (Request, error) {
	notice := p.setNotice(p.full()) // not longer than with 100
	in := input{source: p.s.source, shown: shown, past: past, rounds: p.at.Rounds, epoch: p.epoch, final: p.at.Final,
		notice: notice}
	request, err := in.request()
	recipe := turnkeeper.Recipe{
		Version: recipeVersion, Provider: p.m.Provider, Model: p.m.Name, Epoch: p.epoch.id, Final: p.at.Final,
		Notice: notice, Running: running(p.at.Rounds), Status: statusKey(p.at.Rounds),
		Imitations: keyOfImitations(p.imitating), Window: p.window,
	}
	if _, on := p.epoch.after(p.s.turn, p.at.Rounds); !on {
		recipe.After = lastOf(shown)
	}
	return Request{Request: request, Recipe: recipe, Tokens: p.tokens(), epoch: p.epoch.Epoch}, err
}

// tooLong returns the error of a request that does not fit.
func (p *plan) tooLong() error {
	return &inference.Error{
		Class: inference.ClassContextOverflow, Provider: p.m.Provider, Model: p.m.Name, NoRetry: true,
		Detail: fmt.Sprintf(
			"context too long: the request takes about %d tokens, and %d of the model's window of %d are left for it",
			p.tokens(), p.room(), p.window.Size),
	}
}

// set sets the epoch's fields from a fitting of the turns.
func (e *epoch) set(f fitting, history []turnlog.Past, older int, summary turnlog.Summary) {
	e.Past = idsOf(history[f.firstPast:])
	if f.firstWhole > f.firstPast {
		e.LeanPast = history[f.firstWhole-1].TurnID
	}
	if f.noted {
		e.Omitted, e.Summary = f.firstPast+older, summary.UpTo
	}
	var dropped []bool
	for _, round := range f.dropped {
		dropped = append(dropped, round...)
	}
	e.Dropped = formatNumbers(dropped)
}
