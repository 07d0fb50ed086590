package agentturn

import (
	"turnkeeper"
	"turnkeeper/inference"
)

// A composed request fits the window of the model it is for.
type composed struct {
	inference.Request
	recipe turnkeeper.Recipe
	note   string                   // that the request was made with
	parts  []turnkeeper.RequestPart // that the recipe names
	tokens int                      // corrected estimate of its input
}

// compose builds the request of a round for one model: system prompt, earlier
// conversation as far as there is room, the message, this turn's rounds so far,
// and the notice. What does not fit is an error of class context_overflow.
func (t *turn) compose(c *candidate, final bool) (composed, error) {
	p := t.proposal(c, final, t.withCut(t.notice(final, 100)))
	d, ok := p.decide()
	if p.notice != "" {
		p.notice = t.withCut(t.notice(final, d.full())) // no longer than the one before it
		d, ok = p.decide()
	}
	if !ok {
		return composed{}, p.tooLong(d)
	}
	request, err := p.request(d.blueprint)
	return composed{Request: request, recipe: d.Recipe, note: d.note, parts: d.parts, tokens: d.tokens}, err
}

// proposal is what there is to say to a model now.
func (t *turn) proposal(c *candidate, final bool, notice string) proposal {
	p := proposal{
		material: t.material(), provider: c.info.Provider, model: c.info.Model, older: t.record.Older, summary: t.record.Summary,
		note: t.standingNote(), tools: t.tools(false), final: final, notice: notice,
		window: splitWindow(c.window, t.def.MaxOutputTokens), limit: t.limit(c), factor: t.factor(c), counts: c.tokens,
	}
	if n := len(p.history) - maxTold; n > 0 && t.bounds.Summarise {
		p.history, p.older = p.history[n:], p.older+n
	}
	if t.pages() && !t.useful(turnkeeper.ToolGetContinuation) {
		p.readers = t.tools(true)
	}
	return p
}

func (t *turn) material() material {
	return material{
		turn: t.record.Turn.ID, def: t.def, body: t.record.Message.Body, history: t.record.History, rounds: t.rounds,
	}
}

// full is how many hundredths of the window the request takes.
func (d decision) full() int { return min(100*d.tokens/max(d.Window.Size, 1), 100) }
