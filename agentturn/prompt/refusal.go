package prompt

import (
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

// roomAfter is what a request may take, in corrected tokens, after one was
// refused: what the provider's numbers leave, at most nine tenths of what it
// refused; three quarters of it where there are no numbers.
func roomAfter(failure inference.Error, refused Request) int {
	if failure.Limit <= 0 {
		return refused.Tokens - refused.Tokens/compactShare
	}
	room := Room(failure.Limit, refused.Recipe.Window.Answer)
	if failure.Have > 0 { // its count of what was sent, by which ours can be held
		room = int(float64(room) * float64(refused.Tokens) / float64(failure.Have))
	}
	return max(1, min(room, refused.Tokens-refused.Tokens/10))
}
