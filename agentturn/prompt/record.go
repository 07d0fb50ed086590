package prompt

import (
	"errors"
	"reflect"
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
)

// A recordForm says how a request writes the record of the conversation: answers of models, their calls and the
// results. The zero value is the usual form. A provider may refuse the record; it then gets another form, and the
// requests after it keep that form: of what was on record at the refusal, or, if the provider demands something, of
// everything.
type recordForm struct {
	reasoned bool
	bare     string // bareReasoning or bareCalls; empty: nothing is left out
	turn     turnkeeper.TurnID
	round    int
}

// The values of Recipe.Bare.
const (
	bareReasoning = "reasoning" // providers' own messages are left out, with reasoning and signatures
	bareCalls     = "calls"     // these, and calls and results are text, without ids and names
)

func formOf(r turnkeeper.Recipe) recordForm {
	return recordForm{reasoned: r.Reasoned, bare: r.Bare, turn: r.BareTurn, round: r.BareRound}
}

func (f recordForm) store(r *turnkeeper.Recipe) {
	r.Reasoned, r.Bare, r.BareTurn, r.BareRound = f.reasoned, f.bare, f.turn, f.round
}

// of returns what is left out of a round.
func (f recordForm) of(turn turnkeeper.TurnID, round int) string {
	if turn < f.turn || turn == f.turn && round <= f.round {
		return f.bare
	}
	return ""
}

// record returns the form of requests to a model: that of the newest request it has answered, or a later one.
func (s *State) record(m Model, rounds []turnkeeper.Round) recordForm {
	if form, known := s.records[m.key()]; known {
		return form
	}
	if form, ok := newestForm(rounds, m.key()); ok {
		return form
	}
	for _, past := range slices.Backward(s.history) {
		if form, ok := newestForm(past.Rounds, m.key()); ok {
			return form
		}
	}
	return recordForm{}
}

func newestForm(rounds []turnkeeper.Round, model modelKey) (recordForm, bool) {
	recipes := recipesFor(rounds, model)
	if len(recipes) == 0 {
		return recordForm{}, false
	}
	return formOf(recipes[len(recipes)-1]), true
}

// Rewrite returns a request with the record in another form, after the provider has refused it for its record, or may
// have. ok is false if err is another error, or if no other form is left.
func (s *State) Rewrite(m Model, at Moment, refused Request, err error) (rewritten Request, ok bool) {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Record == "" && failure.Class != inference.ClassInvalid {
		return Request{}, false
	}
	before := s.record(m, at.Rounds)
	for _, form := range s.formsAfter(before, failure.Record, at) {
		s.records[m.key()] = form
		rewritten, err := s.Build(m, at)
		if err == nil && !reflect.DeepEqual(rewritten.Request, refused.Request) && hasAnswer(refused.Request) {
			return rewritten, true
		}
	}
	s.records[m.key()] = before
	return Request{}, false
}

// formsAfter returns the forms to try after a refusal, the mildest first.
func (s *State) formsAfter(form recordForm, why inference.Record, at Moment) (forms []recordForm) {
	all := func(bare string) recordForm {
		return recordForm{reasoned: form.reasoned, bare: bare, turn: s.turn, round: len(at.Rounds)}
	}
	switch why {
	case inference.RecordLacksReasoning:
		reasoned := form
		reasoned.reasoned = true
		forms = append(forms, reasoned)
	case inference.RecordReasoning:
		forms = append(forms, all(bareReasoning))
	}
	return append(forms, all(bareCalls))
}

func hasAnswer(r inference.Request) bool {
	return slices.ContainsFunc(r.Messages, func(m inference.Message) bool { return m.Role == inference.RoleAssistant })
}
