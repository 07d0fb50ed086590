package agentturn

import (
	"errors"

	"go.uber.org/zap"

	"turnkeeper/inference"
)

// compactShare is the part of a refused request that another try may take where
// the provider does not say how much it takes: three quarters.
const compactShare = 4

// A refusal is a request that a provider refused as too long. There is one a
// turn: the next goes by the rules for failures.
type refusal struct {
	modelKey
	room int // what requests to it may take from then on
}

// limit is the room that a refusal left; 0: none was. A turn that goes on
// elsewhere knows it from its journal.
func (t *turn) limit(c *candidate) int {
	if t.refused == nil {
		for _, round := range t.rounds {
			if r := round.Recipe; r != nil && r.Compacted > 0 {
				t.refused = &refusal{modelKey{r.Provider, r.Model}, r.Compacted}
			}
		}
	}
	if t.refused == nil || t.refused.modelKey != c.key() {
		return 0
	}
	return t.refused.room
}

// compact makes a smaller request of one that was refused as too long; ok is
// false where err is something else, where it was done before in this turn, or
// where no smaller one can be made.
func (a *attempt) compact(refused composed, err error) (smaller composed, ok bool) {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Class != inference.ClassContextOverflow || a.t.limit(a.model) > 0 || a.t.refused != nil {
		return composed{}, false
	}
	a.t.refused = &refusal{a.model.key(), roomAfter(*failure, refused)}
	smaller, tooLong := a.t.compose(a.model, a.final)
	a.t.log.Warn("the provider refused the request as too long; it is cut down and sent once more",
		zap.Int("round", a.number), zap.String("model", a.model.info.Provider+"/"+a.model.info.Model),
		zap.Int("context_window", refused.recipe.Window.Size), zap.Int("their_window", failure.Limit), zap.Int("tokens", refused.tokens), zap.Int("room", a.t.refused.room), zap.Int("tokens_then", smaller.tokens),
		zap.NamedError("refusal", err), zap.NamedError("too_long_still", tooLong))
	return smaller, tooLong == nil && smaller.tokens < refused.tokens
}

// roomAfter is what a request may take, in corrected tokens, after one was
// refused: what the provider's numbers leave, at most nine tenths of what it
// refused; three quarters of it where there are no numbers.
func roomAfter(failure inference.Error, refused composed) int {
	if failure.Limit <= 0 {
		return refused.tokens - refused.tokens/compactShare
	}
	room := splitWindow(failure.Limit, refused.recipe.Window.Answer).room()
	if failure.Have > 0 { // its count of what was sent, by which ours can be held
		room = int(float64(room) * float64(refused.tokens) / float64(failure.Have))
	}
	return max(1, min(room, refused.tokens-refused.tokens/10))
}
