package prompt

import (
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
