package prompt

import (
	"slices"
	"sync"

	"turnkeeper"
)

// How estimates are corrected by what providers report.
const (
	leastFactor, mostFactor = 0.5, 3.0
	keptRatios              = 8
	// enoughRatios is how many reports it takes to believe that estimates are
	// too high; one is enough to believe that they are too low.
	enoughRatios = 3
	// leastMeasured is the estimate, in tokens, under which what a server adds of
	// its own decides the ratio; lowRatio is what no honest count comes to.
	leastMeasured = 256
	lowRatio      = 0.4
)

// A calibration corrects the estimates for one model. It keeps the newest
// ratios of reported to estimated tokens, and goes by the largest of them: what
// is estimated must fit. It is a value; the zero value corrects nothing.
type calibration struct{ ratios []float64 }

// observe takes in what a provider reported of a request. A report that cannot
// be the count of it changes nothing.
func (c calibration) observe(estimate int, reported int64) calibration {
	ratio := float64(reported) / float64(max(estimate, 1))
	if estimate < leastMeasured || ratio < lowRatio {
		return c
	}
	ratios := append(slices.Clone(c.ratios), ratio)
	return calibration{ratios[max(0, len(ratios)-keptRatios):]}
}

// factor is what estimates are to be multiplied with. prior is what is known
// from other turns; it counts until there are enough reports.
func (c calibration) factor(prior float64) float64 {
	f := prior
	if len(c.ratios) >= enoughRatios {
		f = 0
	}
	for _, ratio := range c.ratios {
		f = max(f, ratio)
	}
	return min(max(f, leastFactor), mostFactor)
}

// A modelKey tells models apart.
type modelKey struct{ provider, model string }

// Calibrations hold what a process has learned of its models. The zero value is empty. They are safe for
// concurrent use.
type Calibrations struct {
	mu     sync.Mutex
	models map[modelKey]learned
}

type learned struct {
	calibration
	most int64 // input tokens that the model is known to have taken
}

func (c *Calibrations) of(model modelKey) learned {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.models[model]
}

func (c *Calibrations) observe(model modelKey, w turnkeeper.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models == nil {
		c.models = map[modelKey]learned{}
	}
	known := c.models[model]
	known.calibration = known.observe(w.Estimate(), w.Reported)
	known.most = max(known.most, w.Reported)
	c.models[model] = known
}

// recipesFor are those of the rounds that a model answered.
func recipesFor(rounds []turnkeeper.Round, model modelKey) (recipes []turnkeeper.Recipe) {
	for _, round := range rounds {
		if r := round.Recipe; r != nil && (modelKey{r.Provider, r.Model}) == model {
			recipes = append(recipes, *r)
		}
	}
	return recipes
}
