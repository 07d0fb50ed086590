package prompt

import (
	"errors"
	"reflect"
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
)

// compactShare: if the provider reports no limit, the next request is smaller than the
// refused one by one part in compactShare.
const compactShare = 4

// A refusal is a provider's refusal of a request as too long. Only the first one of a turn
// is handled; the next is a failure.
type refusal struct {
	modelKey
	room int // maximum size of later requests to the model, in corrected tokens
}

// refusals are what a provider has refused in this execution.
type refusals struct {
	// of a request that was too long for its model; nil: none, or not read from the journal yet
	tooLong   *refusal
	rewritten map[modelKey]*rewriting
}

// roomAfter returns the maximum size of a request, in corrected tokens, after one was
// refused: by the provider's limit, at most nine tenths of the refused request; without a
// limit, three quarters of it.
func roomAfter(failure inference.Error, refused Request) int {
	if failure.Limit <= 0 {
		return refused.Tokens - refused.Tokens/compactShare
	}
	room := Room(failure.Limit, refused.Recipe.Window.Answer)
	if failure.Have > 0 { // the provider's count of the request calibrates ours
		room = int(float64(room) * float64(refused.Tokens) / float64(failure.Have))
	}
	return max(1, min(room, refused.Tokens-refused.Tokens/10))
}

// A recordForm says how an epoch writes the record of the conversation after the provider has refused it. The reasoning
// of earlier epochs is left out in any case. The zero value is the usual form.
type recordForm struct {
	reasoned  bool // answers without reasoning have a text in its place
	bareTurn  turnkeeper.TurnID
	bareRound int // calls up to this round of bareTurn are text
}

func formOf(e turnkeeper.Epoch) recordForm { return recordForm{e.Reasoned, e.BareTurn, e.BareRound} }

// A rewriting is a form that the next epoch takes, because the provider refused the record before a round.
type rewriting struct {
	recordForm
	turn  turnkeeper.TurnID
	round int
}

// wanted reports whether the epoch began before the refusal.
func (w *rewriting) wanted(e *epoch) bool {
	return w != nil && (e.id.Turn != w.turn || e.id.Round < w.round)
}

// form returns how the next epoch with a model writes the record: as was decided after a refusal, or as the newest one.
func (s *State) form(m Model, rounds []turnkeeper.Round) recordForm {
	if w := s.refusals.rewritten[m.key()]; w != nil {
		return w.recordForm
	}
	recipes := recipesFor(rounds, m.key())
	for _, past := range slices.Backward(s.history) {
		if len(recipes) > 0 {
			break
		}
		recipes = recipesFor(past.Rounds, m.key())
	}
	if len(recipes) == 0 {
		return recordForm{}
	}
	if e := s.epoch(recipes[len(recipes)-1].Epoch, rounds); e != nil {
		return formOf(e.Epoch)
	}
	return recordForm{}
}

// Rewrite returns a request with the record in another form, in an epoch of its own, after the provider has refused it
// for its record, or may have. ok is false if err is another error, or if no other form is left.
func (s *State) Rewrite(m Model, at Moment, refused Request, err error) (rewritten Request, ok bool) {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Record == "" && failure.Class != inference.ClassInvalid || !hasAnswer(refused.Request) {
		return Request{}, false
	}
	before := s.refusals.rewritten[m.key()]
	for _, form := range s.formsAfter(refused, failure.Record, at) {
		s.refusals.rewritten[m.key()] = &rewriting{form, s.turn, len(at.Rounds) + 1}
		rewritten, err := s.Build(m, at)
		if err == nil && !reflect.DeepEqual(rewritten.Request, refused.Request) {
			return rewritten, true
		}
	}
	s.refusals.rewritten[m.key()] = before
	return Request{}, false
}

// formsAfter returns the forms to try after a refusal, the mildest first.
func (s *State) formsAfter(refused Request, why inference.RecordPart, at Moment) (forms []recordForm) {
	form := formOf(refused.epoch)
	switch {
	case why == inference.RecordLacksReasoning:
		form.reasoned = true
		forms = append(forms, form)
	case slices.ContainsFunc(refused.Messages, func(m inference.Message) bool { return m.Raw != nil }):
		forms = append(forms, form)
	}
	form.bareTurn, form.bareRound = s.turn, len(at.Rounds)
	return append(forms, form)
}

func hasAnswer(r inference.Request) bool {
	return slices.ContainsFunc(r.Messages, func(m inference.Message) bool { return m.Role == inference.RoleAssistant })
}
