package prompt

import (
	"fmt"

	"turnkeeper"
)

// A request counts as cut by the provider if the reported count is below a share of the
// estimate.
const (
	minCut        = 2000 // estimated tokens: a smaller request fits every window
	cutShare      = 0.5  // of an estimate by characters
	cutShareExact = 0.7  // of a count by the model's own tokenizer
)

// A report is a provider's count of a request, with what is known from other requests. All
// numbers are input tokens.
type report struct {
	estimate int   // corrected by other requests
	tools    int   // of the estimate: the definitions of tools, which some providers do not count
	reported int64 // 0: nothing was reported
	cached   int64 // read from a cache or written to it; a server may leave them out of reported
	exact    bool  // the model's own tokenizer made the estimate
	largest  int64 // largest other count of the model; 0: unknown
	grown    int   // growth of the estimate since the previous request to the model; 0: unknown
}

// counted returns the count with what may be missing from it.
func (r report) counted() int64 { return r.reported + r.cached }

// share returns the part of the estimate that must be counted.
func (r report) share() float64 {
	if r.exact {
		return cutShareExact
	}
	return cutShare
}

// isLow reports whether the count is so low that the request may have been cut.
func (r report) isLow() bool {
	return r.reported > 0 && r.estimate >= minCut && float64(r.counted()) < r.share()*float64(r.estimate)
}

// cut reports whether the provider must have left out a part of the request silently, as a
// server with a smaller window does. It returns false if the count may just omit the tools, being
// about the size of the messages, or cached tokens: if an earlier count was larger, or if the count
// is about the growth since then.
func (r report) cut() bool {
	counted := r.counted()
	if !r.isLow() || r.largest > counted+counted/4 {
		return false
	}
	return !isAbout(counted, r.grown, 0.5) && !isAbout(counted, r.estimate-r.tools, r.share())
}

// isAbout reports whether a count is between a share and one and a half of an estimate. A small
// estimate has no lower bound.
func isAbout(counted int64, estimate int, share float64) bool {
	return estimate > 0 && counted <= int64(estimate+estimate/2) &&
		(estimate < minMeasured || float64(counted) >= share*float64(estimate))
}

// reportedTokens returns the provider's count of a request, or 0 if it gave none.
func reportedTokens(u turnkeeper.Usage) int64 {
	if u.Estimated {
		return 0
	}
	return u.InputTokens
}

// largestOf returns the largest count among requests that were not cut.
func largestOf(recipes []turnkeeper.Recipe) (largest int64) {
	for _, r := range recipes {
		if !r.Cut {
			largest = max(largest, r.Window.Reported)
		}
	}
	return largest
}

// withCutWarning adds to a notice that the previous request was cut, if it was.
func withCutWarning(notice string, rounds []turnkeeper.Round) string {
	n := len(rounds)
	if n == 0 || rounds[n-1].Recipe == nil || !rounds[n-1].Recipe.Cut {
		return notice
	}
	w := rounds[n-1].Recipe.Window
	text := fmt.Sprintf("The provider seems to have cut the last request: it counted %d tokens of about %d. "+
		"What you were told first may be missing from what you see; do not rely on having seen all of it, and say so in your answer.",
		w.Reported, w.Corrected())
	return withParagraph(notice, text)
}
