package prompt

import (
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

func TestCalibrationFactor(t *testing.T) {
	type seen struct {
		estimate int
		reported int64
	}
	for name, c := range map[string]struct {
		prior float64
		seen  []seen
		want  float64
	}{
		"nothing reported":                   {1, nil, 1},
		"known from elsewhere":               {1.4, nil, 1.4},
		"one report of more":                 {1, []seen{{1000, 1500}}, 1.5},
		"one report of less is not believed": {1, []seen{{1000, 700}}, 1},
		"nor are two":                        {1, []seen{{1000, 700}, {1000, 600}}, 1},
		"three are, by the largest":          {1, []seen{{1000, 700}, {1000, 600}, {1000, 650}}, 0.7},
		"and outweigh what is known":         {2, []seen{{1000, 900}, {1000, 900}, {1000, 900}}, 0.9},
		"never below a half":                 {1, []seen{{1000, 410}, {1000, 410}, {1000, 410}}, 0.5},
		"never above three":                  {1, []seen{{1000, 9000}}, 3},
		"what no honest count comes to":      {1, []seen{{1000, 100}, {1000, 100}, {1000, 100}}, 1},
		"small requests say nothing":         {1, []seen{{200, 600}}, 1},
		"the ninth report forgets the first": {1, []seen{{1000, 2000}, {1000, 1100}, {1000, 1100}, {1000, 1100},
			{1000, 1100}, {1000, 1100}, {1000, 1100}, {1000, 1100}, {1000, 1100}}, 1.1},
		"a count of nothing is none":           {1, []seen{{1000, 0}}, 1},
		"no estimate is nothing to hold it to": {1, []seen{{0, 100}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var got calibration
			for _, s := range c.seen {
				got = got.observe(s.estimate, s.reported)
			}
			if f := got.factor(c.prior); f != c.want {
				t.Errorf("factor %v, want %v", f, c.want)
			}
		})
	}
}

func TestSilentlyCut(t *testing.T) {
	for name, c := range map[string]struct {
		report
		want bool
	}{
		"Ollama with a window of 4096":              {report{estimate: 63019, reported: 4096}, true},
		"half of a rough estimate":                  {report{estimate: 10000, reported: 5000}, false},
		"less than half":                            {report{estimate: 10000, reported: 4999}, true},
		"seven tenths of an exact one":              {report{estimate: 10000, reported: 7000, exact: true}, false},
		"less than that":                            {report{estimate: 10000, reported: 6999, exact: true}, true},
		"too small to be cut":                       {report{estimate: 1999, reported: 10}, false},
		"nothing reported":                          {report{estimate: 63019}, false},
		"what was cached is not counted":            {report{estimate: 63019, reported: 1019, cached: 62000}, false},
		"what was cached is counted too":            {report{estimate: 63019, reported: 60000, cached: 59000}, false},
		"cached, and cut all the same":              {report{estimate: 63019, reported: 4096, cached: 2048}, true},
		"cached without a word: more was taken":     {report{estimate: 63019, reported: 4096, largest: 50000}, false},
		"the same window cut one before":            {report{estimate: 63019, reported: 4000, largest: 4090}, true},
		"cached without a word: what is new counts": {report{estimate: 30000, reported: 3000, grown: 2900}, false},
		"only the messages are counted":             {report{estimate: 4000, tools: 3000, reported: 1000}, false},
		"messages of few tokens":                    {report{estimate: 4000, tools: 3900, reported: 31}, false},
		"less than half of the messages":            {report{estimate: 14000, tools: 3000, reported: 4096}, true},
		"more than the messages: some tools, cut":   {report{estimate: 6000, tools: 5000, reported: 2048}, true},
		"it grew by much more than was counted":     {report{estimate: 63019, reported: 4096, grown: 40000}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.cut(); got != c.want {
				t.Errorf("cut: %v", got)
			}
		})
	}
}

func TestCountOfUsage(t *testing.T) {
	for name, c := range map[string]struct {
		used turnkeeper.Usage
		want int64
	}{
		"plain":               {turnkeeper.Usage{InputTokens: 100}, 100},
		"cached within":       {turnkeeper.Usage{InputTokens: 100, CachedTokens: 90}, 100},
		"written within":      {turnkeeper.Usage{InputTokens: 100, CachedTokens: 40, CacheWriteTokens: 59}, 100},
		"an estimate of ours": {turnkeeper.Usage{InputTokens: 100, Estimated: true}, 0},
	} {
		if got := reportedTokens(c.used); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestWhatIsWrittenToACacheIsNotMissing checks that a request is not taken for cut by a server whose count leaves out
// what it wrote to its cache, and that one is whose count does not.
func TestWhatIsWrittenToACacheIsNotMissing(t *testing.T) {
	for name, c := range map[string]struct {
		used turnkeeper.Usage
		cut  bool
	}{
		"left out":    {turnkeeper.Usage{InputTokens: 3000, CachedTokens: 1000, CacheWriteTokens: 1900}, false},
		"nothing was": {turnkeeper.Usage{InputTokens: 3000}, true},
	} {
		s := NewState(&turnlog.Record{}, &agentdef.Definition{}, Offer{Registry: &tools.Registry{}}, &Memory{})
		r := turnkeeper.Recipe{Window: turnkeeper.Window{Turn: 10_000, Factor: 1}}
		if got := s.report(Model{Tokens: &Counts{Counter: HeuristicTokens{}}}, nil, r, c.used).cut(); got != c.cut {
			t.Errorf("%s: cut %v", name, got)
		}
	}
}

func TestRoomAfterARefusal(t *testing.T) {
	refused := Request{Tokens: 10_000, Recipe: turnkeeper.Recipe{Window: turnkeeper.Window{Answer: 1000}}}
	for name, c := range map[string]struct {
		have, limit, want int
	}{
		"no numbers":              {0, 0, 7500},
		"only what it counted":    {12_000, 0, 7500},
		"only the window":         {0, 8000, 6600},
		"both":                    {12_000, 8000, 5500},
		"a window that is larger": {0, 100_000, 9000},
		"a window of nearly none": {10_000, 1, 1},
	} {
		if got := roomAfter(inferenceError(c.have, c.limit), refused); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func inferenceError(have, limit int) inference.Error {
	return inference.Error{Class: inference.ClassContextOverflow, Have: have, Limit: limit}
}

// TestTurnsCalibrateBesideEachOther lets turns of a process read and report the counts of models at the same time. With
// the race detector it also shows that both hold the lock.
func TestTurnsCalibrateBesideEachOther(t *testing.T) {
	var c calibrations
	var all sync.WaitGroup
	models := []modelKey{{"main", "small"}, {"main", "large"}}
	for turn := range 8 {
		all.Go(func() {
			for n := range 50 {
				model := models[(turn+n)%2]
				c.observe(model, turnkeeper.Window{Turn: 1000, Factor: 1, Reported: int64(1000 + 50*turn + n)})
				if got := c.of(model); got.largest < int64(1000+50*turn+n) {
					t.Errorf("turn %d has reported %d tokens; the largest known is %d", turn, 1000+50*turn+n,
						got.largest)
				}
			}
		})
	}
	all.Wait()
	one, other := c.of(models[0]).largest, c.of(models[1]).largest
	if max(one, other) != 1399 || min(one, other) != 1398 {
		t.Errorf("the largest are %d and %d", one, other)
	}
}
