package prompt

import (
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/internal/kept"
)

// Parameters of the correction of estimates.
const (
	minFactor, maxFactor = 0.5, 3.0
	maxRatios            = 8
	// minRatios is the number of reports needed to lower estimates. One report is
	// enough to raise them.
	minRatios = 3
	// minMeasured is the smallest estimate, in tokens, that is compared: below it, text
	// that a server adds decides the ratio. A smaller ratio than minRatio cannot be an
	// honest count.
	minMeasured = 256
	minRatio    = 0.4
)

// A calibration corrects the estimates for one model. It holds the newest ratios of
// reported to estimated tokens, and uses the largest, because a request must fit. The zero
// value corrects nothing.
type calibration struct{ ratios []float64 }

// observe returns the calibration with the ratio of one request added. It ignores a report
// that cannot be a count of the whole request.
func (c calibration) observe(estimate int, reported int64) calibration {
	ratio := float64(reported) / float64(max(estimate, 1))
	if estimate < minMeasured || ratio < minRatio {
		return c
	}
	ratios := append(slices.Clone(c.ratios), ratio)
	return calibration{ratios[max(0, len(ratios)-maxRatios):]}
}

// factor returns the factor for estimates. prior is the factor from other turns, and counts
// until there are enough reports.
func (c calibration) factor(prior float64) float64 {
	f := prior
	if len(c.ratios) >= minRatios {
		f = 0
	}
	for _, ratio := range c.ratios {
		f = max(f, ratio)
	}
	return min(max(f, minFactor), maxFactor)
}

// A modelKey identifies a model.
type modelKey struct{ provider, model string }

// A Memory is what a process remembers of requests for later turns. The zero value is empty. It is safe for concurrent
// use.
type Memory struct {
	calibrations calibrations
	toolsets     toolsets
	histories    kept.Map[historyKey, written] // the newest of each chain
}

// calibrations hold the calibrations of a process, by model. The zero value is empty. It is
// safe for concurrent use.
type calibrations struct {
	mu     sync.Mutex
	models map[modelKey]modelCalibration
}

type modelCalibration struct {
	calibration
	largest int64 // largest number of input tokens that the model has reported
}

func (c *calibrations) of(model modelKey) modelCalibration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.models[model]
}

func (c *calibrations) observe(model modelKey, w turnkeeper.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models == nil {
		c.models = map[modelKey]modelCalibration{}
	}
	known := c.models[model]
	known.calibration = known.observe(w.Estimate(), w.Reported)
	known.largest = max(known.largest, w.Reported)
	c.models[model] = known
}

// recipesFor returns the recipes of the rounds that a model answered.
func recipesFor(rounds []turnkeeper.Round, model modelKey) (recipes []turnkeeper.Recipe) {
	for _, round := range rounds {
		if r := round.Recipe; r != nil && (modelKey{r.Provider, r.Model}) == model {
			recipes = append(recipes, *r)
		}
	}
	return recipes
}
