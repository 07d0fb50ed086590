package tokens

import "math"

const (
	maxFactor = 3.0
	// silentCut is the part of the estimate below which reported input says
	// that the provider dropped some of it.
	silentCut = 0.7
	// leastOfHeuristic is what plain English takes of its estimate by
	// characters, which is meant for worse text.
	leastOfHeuristic = 0.65
	window           = 8
)

// A Calibration corrects the estimates for one model by what its provider
// reports: by the largest of the last eight reported/estimated, at least 1 and
// at most 3. It is a value: keep what Observe returns. The zero value corrects
// nothing yet and judges estimates as exact.
type Calibration struct {
	ratios [window]float64
	next   int
	rough  bool
}

// Calibration is a fresh one for the counter's estimates.
func (c Counter) Calibration() Calibration { return Calibration{rough: !c.exact} }

// Observe takes in the reported input tokens of a request and its estimate,
// before correction. truncated says that so few were reported that the
// provider must have cut the request silently: below 0.7 of the least that the
// estimate can mean. Such a report, and one of nothing, corrects nothing.
func (c Calibration) Observe(estimated, reported int64) (next Calibration, truncated bool) {
	if estimated <= 0 || reported <= 0 {
		return c, false
	}
	ratio := float64(reported) / float64(estimated)
	least := silentCut
	if c.rough {
		least *= leastOfHeuristic
	}
	if ratio < least {
		return c, true
	}
	c.ratios[c.next] = ratio
	c.next = (c.next + 1) % window
	return c, false
}

// Factor is what estimates are multiplied with: 1 to 3.
func (c Calibration) Factor() float64 {
	factor := 1.0
	for _, ratio := range c.ratios {
		factor = max(factor, ratio)
	}
	return min(factor, maxFactor)
}

// Correct is the estimate in the light of what was reported, rounded up.
func (c Calibration) Correct(estimate int) int {
	return int(math.Ceil(float64(estimate) * c.Factor()))
}
