package prompt

import (
	"fmt"

	"turnkeeper"
)

// When a provider counts as having cut a request silently.
const (
	leastCut     = 2000 // estimated tokens: a smaller request fits everywhere
	cutShare     = 0.5  // of an estimate by characters
	cutShareFine = 0.7  // of a count by the model's own tokenizer
)

// A report is a provider's count of a request, beside what else is known. All
// are input tokens.
type report struct {
	estimate int   // as corrected by other requests
	reported int64 // 0: nothing was
	cached   int64 // read from a cache; some providers count these as reported too, some do not
	fine     bool  // the model's own tokenizer made the estimate
	most     int64 // the largest other count of the model; 0: not known
	grown    int   // by what the estimate is above that of the request before, to the same model; 0: not known
}

// cut says that so little was reported that a part of the request was left out
// without a word, as by a server with a smaller window. It is no sign of that
// when the count leaves out what was cached: when more was counted before, or
// when just what is new was counted.
func (r report) cut() bool {
	share := cutShare
	if r.fine {
		share = cutShareFine
	}
	counted := r.reported + r.cached
	switch {
	case r.reported <= 0, r.estimate < leastCut, float64(counted) >= share*float64(r.estimate):
		return false
	case r.most > counted+counted/4:
		return false
	case r.grown > 0 && counted >= int64(r.grown)/2 && counted <= int64(r.grown)+int64(r.grown)/2:
		return false
	}
	return true
}

// reportedTokens returns what a provider counted of a request. Where more was cached than
// counted, what was cached was not counted.
func reportedTokens(u turnkeeper.Usage) int64 {
	switch {
	case u.Estimated:
		return 0
	case u.CachedTokens > u.InputTokens:
		return u.InputTokens + u.CachedTokens
	default:
		return u.InputTokens
	}
}

// mostOf is the largest count among requests that were not cut.
func mostOf(recipes []turnkeeper.Recipe) (most int64) {
	for _, r := range recipes {
		if !r.Cut {
			most = max(most, r.Window.Reported)
		}
	}
	return most
}

// withCut adds to a notice that the request before was cut, if it was.
func withCut(notice string, rounds []turnkeeper.Round) string {
	n := len(rounds)
	if n == 0 || rounds[n-1].Recipe == nil || !rounds[n-1].Recipe.Cut {
		return notice
	}
	w := rounds[n-1].Recipe.Window
	text := fmt.Sprintf("The provider seems to have cut the last request: it counted %d tokens of about %d. "+
		"What you were told first may be missing from what you see; do not rely on having seen all of it, and say so in your answer.",
		w.Reported, w.Corrected())
	if notice == "" {
		return "# System Notice\n\n" + text
	}
	return notice + "\n\n" + text
}
