package agentturn_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/survival"
	"turnkeeper/tools"
)

// A tank is a Budget of an agent whose survival level runs through levels, one a reservation.
type tank struct {
	till
	levels []survival.Level
	chosen []survival.Level // as the turn took them
}

func (b *tank) Reserve(ctx context.Context, s agentturn.Spender,
	estimate turnkeeper.Usage) (agentturn.Reservation, error) {
	b.chosen = append(b.chosen, s.Level)
	if s.Level != "" && s.Level != b.levels[0] {
		return agentturn.Reservation{Level: b.levels[0]}, nil
	}
	r, err := b.till.Reserve(ctx, s, estimate)
	r.Level = b.levels[0]
	if len(b.levels) > 1 {
		b.levels = b.levels[1:]
	}
	return r, err
}

func modelsOf(b *bench) (models []string) {
	for _, round := range b.store.record().Rounds {
		models = append(models, round.Provider+"/"+round.Model)
	}
	return models
}

// TestALevelChoosesTheModel runs turns of an agent whose level changes before its model calls. Each round is asked of
// the level's model, and its request can be made again from the record.
func TestALevelChoosesTheModel(t *testing.T) {
	levels := agentdef.Levels{
		Low:      agentdef.LevelEffect{Model: "cheap/model"},
		Critical: agentdef.LevelEffect{Model: "free/model"},
	}
	for name, c := range map[string]struct {
		levels []survival.Level
		rules  agentdef.Levels
		models []string
		asked  int // reservations
	}{
		"normal":                 {[]survival.Level{"normal"}, levels, []string{"main/model", "main/model"}, 2},
		"low from the beginning": {[]survival.Level{"low"}, levels, []string{"cheap/model", "cheap/model"}, 3},
		"low in the middle": {[]survival.Level{"normal", "low"}, levels, []string{"main/model",
			"cheap/model"}, 3},
		"low, then critical": {[]survival.Level{"low", "critical"}, levels, []string{"cheap/model",
			"free/model"}, 4},
		"back": {[]survival.Level{"critical", "normal"}, levels, []string{"free/model",
			"main/model"}, 4},
		"a level without a model": {[]survival.Level{"low"}, agentdef.Levels{Critical: levels.Critical},
			[]string{"main/model", "main/model"}, 3},
		"an agent without levels": {[]survival.Level{"critical"}, agentdef.Levels{}, []string{"main/model",
			"main/model"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("look"), says("done")).with(read("look"))
				for _, model := range []string{"cheap/model", "free/model"} {
					b.models[model], b.windows[model] = b.script, 20_000
				}
				budget := &tank{till: till{n: 9}, levels: c.levels}
				b.budget, b.def.Levels = budget, c.rules
				if got := b.run(t.Context()); got.Reply != "done" {
					t.Errorf("%+v", got)
				}
				if got := modelsOf(b); !slices.Equal(got, c.models) {
					t.Errorf("the rounds were asked of %q, want %q", got, c.models)
				}
				if len(budget.chosen) != c.asked || len(budget.reserved) != 2 || len(budget.settled) != 2 {
					t.Errorf("%d reservations were asked for (%q), %d made and %d settled; want %d, 2 and 2",
						len(budget.chosen), budget.chosen, len(budget.reserved), len(budget.settled), c.asked)
				}
			})
		})
	}
}

// TestALevelsModelIsDown checks that the agent's fallbacks stand in for the model of a level.
func TestALevelsModelIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, says("done"))
		broken := inferencetest.NewScript(fails(inference.ClassAuth))
		b.models["cheap/model"], b.models["spare/model"] = broken, b.script
		b.def.FallbackModels = []string{"spare/model"}
		b.def.Levels.Low.Model = "cheap/model"
		b.budget = &tank{till: till{n: 9}, levels: []survival.Level{"low"}}
		b.run(t.Context())
		if got := modelsOf(b); !slices.Equal(got, []string{"spare/model"}) || len(broken.Requests()) != 1 {
			t.Errorf("the round was asked of %q, after %d requests to the level's model", got, len(broken.Requests()))
		}
	})
}

// TestNoModelAtALevel checks that a turn waits if the model of its level is not configured.
func TestNoModelAtALevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, says("done"))
		b.def.Levels.Low.Model = "cheap/model"
		b.budget = &tank{till: till{n: 9}, levels: []survival.Level{"low"}}
		if got := b.run(t.Context()); !got.Retry || got.Reply != "" || !slices.Equal(got.WaitsFor,
			[]string{"cheap/model"}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestASummaryIsOfTheLevelsModel checks that the summary of older turns is not asked of a model that the level rules
// out.
func TestASummaryIsOfTheLevelsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := talk(t, 12, summarises("a summary"), says("done"))
		dear := inferencetest.NewScript()
		b.models["main/model"], b.models["cheap/model"] = dear, b.script
		b.windows["cheap/model"] = b.def.ContextWindow
		b.def.Levels.Low.Model = "cheap/model"
		b.budget = &tank{till: till{n: 9}, levels: []survival.Level{"low"}}
		if got := b.run(t.Context()); got.Reply != "done" || b.store.entries[0].Summary == nil {
			t.Errorf("%+v, with the summary %v", got, b.store.entries[0].Summary)
		}
		if n := len(dear.Requests()); n != 0 {
			t.Errorf("the model of the normal level got %d requests", n)
		}
	})
}

// TestALevelLeadsAroundAModel begins turns of an agent whose level is known, while a model of another level is down.
func TestALevelLeadsAroundAModel(t *testing.T) {
	for level, down := range map[survival.Level]string{survival.Low: "main/model", survival.Normal: "cheap/model"} {
		t.Run(string(level), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, says("done"))
				b.models["main/model"], b.models["cheap/model"] = b.script, b.script
				b.models[down] = inferencetest.NewScript()
				b.def.Levels.Low.Model = "cheap/model"
				budget := &tank{till: till{n: 9}, levels: []survival.Level{level}}
				b.budget = budget
				record, journal := b.store.dispatch()
				record.Level, record.Down = level, []modelhealth.Health{{Model: down, DownSince: time.Now(),
					ErrorClass: "overloaded"}}
				got, err := b.resume(t.Context(), record, journal)
				if err != nil || got.Reply != "done" || len(budget.chosen) != 1 {
					t.Errorf("%+v, error %v, after %d reservations", got, err, len(budget.chosen))
				}
			})
		})
	}
}

// TestNoModelAtALevelAfterAnEffect checks that a turn whose level changes to one without a model that is configured,
// after an effect, names that model.
func TestNoModelAtALevelAfterAnEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("order")).with(once("order"))
		b.def.Levels.Low.Model = "cheap/model"
		b.budget = &tank{till: till{n: 9}, levels: []survival.Level{"normal", "low"}}
		got := b.run(t.Context())
		if got.State != turnkeeper.TurnDegraded || !strings.Contains(got.Error, "cheap/model") {
			t.Errorf("%+v", got)
		}
	})
}

// TestAToolsQuestionIsOfTheLevelsModel checks that a question of a tool is asked of the model of the level that the
// agent has then.
func TestAToolsQuestionIsOfTheLevelsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer tools.Sampled
		b := newBench(t, asks("asker")).with(sampling(question("moon"), func(a tools.Sampled, _ error) { answer = a }))
		b.models["cheap/small"] = inferencetest.NewScript(says("a rhyme"), says("Done."))
		b.def.Levels.Low.Model = "cheap/small"
		budget := &tank{till: till{n: 9}, levels: []survival.Level{"normal", "low"}}
		b.budget = budget
		if got := b.run(t.Context()); got.Reply != "Done." || answer.Text != "a rhyme" || answer.Model != "small" {
			t.Errorf("%+v; the tool was answered %+v", got, answer)
		}
		if want := []survival.Level{"normal", "normal", "low", "low"}; !slices.Equal(budget.chosen, want) ||
			len(budget.settled) != 3 {
			t.Errorf("the models were chosen for %q, want %q; %d calls were settled", budget.chosen, want,
				len(budget.settled))
		}
	})
}
