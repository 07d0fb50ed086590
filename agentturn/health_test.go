package agentturn_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
)

// TestFaultsOfAChain checks that the failures of all models of a chain decide together,
// and that the write that ends the turn reports each model.
func TestFaultsOfAChain(t *testing.T) {
	const up = inference.Class("")
	down := func(model string, probe turnkeeper.GrantID) modelhealth.Health {
		return modelhealth.Health{Model: model, DownSince: time.Now(), Failures: 2, ErrorClass: "quota",
			Error: "no credit", Probe: probe}
	}
	cases := map[string]struct {
		main, other inference.Class // classes of their failures; up: the model answers
		down        []modelhealth.Health
		asked       [2]int

		state    turnkeeper.TurnState
		class    string
		retry    bool
		counted  bool
		waitsFor []string
		failed   []string
		answered []string
	}{
		"the first is away, the second answers": {
			main: inference.ClassAuth, asked: [2]int{1, 1}, state: turnkeeper.TurnSucceeded,
			failed: []string{"main/model"}, answered: []string{"other/big"},
		},
		"both are away": {
			main: inference.ClassAuth, other: inference.ClassQuota, asked: [2]int{1, 1}, state: turnkeeper.TurnFailed,
			class: "auth", retry: true,
			waitsFor: []string{"main/model", "other/big"}, failed: []string{"main/model", "other/big"},
		},
		"the first is away, the second refuses": {
			main: inference.ClassAuth, other: inference.ClassInvalid, asked: [2]int{1, 1}, state: turnkeeper.TurnFailed,
			class: "auth", retry: true,
			waitsFor: []string{"main/model"}, failed: []string{"main/model"}, answered: []string{"other/big"},
		},
		"both refuse": {
			main: inference.ClassInvalid, other: inference.ClassRefused, asked: [2]int{1, 1},
			state: turnkeeper.TurnFailed, class: "refused", counted: true,
			answered: []string{"main/model", "other/big"},
		},
		"the first gives nothing usable, the second is away": {
			main: inference.ClassBadOutput, other: inference.ClassAuth, asked: [2]int{3, 1},
			state: turnkeeper.TurnFailed, class: "bad_output", retry: true, counted: true,
			failed: []string{"other/big"}, answered: []string{"main/model"},
		},
		"one that is down is not asked": {
			main: up, other: up, down: []modelhealth.Health{down("main/model", "")}, asked: [2]int{0, 1},
			state: turnkeeper.TurnSucceeded, answered: []string{"other/big"},
		},
		"one that is down is tried once": {
			main: inference.ClassOverloaded, other: up, down: []modelhealth.Health{down("main/model", "own")},
			asked: [2]int{1, 1},
			state: turnkeeper.TurnSucceeded, failed: []string{"main/model"}, answered: []string{"other/big"},
		},
		"nobody is asked where all are down": {
			main: up, other: up, down: []modelhealth.Health{down("main/model", "another"), down("other/big", "")},
			asked: [2]int{0, 0},
			state: turnkeeper.TurnFailed, class: "quota", retry: true, waitsFor: []string{"main/model", "other/big"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := func(class inference.Class) inferencetest.Step {
					if class == up {
						return says("done")
					}
					return fails(class)
				}
				b := newBench(t)
				b.script.Then(step(c.main))
				other := inferencetest.NewScript().Then(step(c.other))
				b.models["other/big"] = other
				b.def.FallbackModels = []string{"other/big"}
				var failed, answered []string
				record, journal := b.store.dispatch()
				for _, h := range c.down {
					if h.Probe == "own" {
						h.Probe = record.Turn.GrantID
					}
					record.Down = append(record.Down, h)
				}
				journal.before = func(e turnlog.Entry) error {
					for _, f := range e.ModelFailures {
						failed = append(failed, f.Model)
						if f.Seen != len(c.down)*2 {
							t.Errorf("%s: %d failures were known", f.Model, f.Seen)
						}
					}
					answered = append(append(answered, e.Answered...), e.Refused...)
					return nil
				}
				got, err := b.resume(t.Context(), record, journal)
				if err != nil {
					t.Fatal(err)
				}
				if asked := [2]int{len(b.script.Requests()), len(other.Requests())}; asked != c.asked {
					t.Errorf("asked %v times, want %v", asked, c.asked)
				}
				if got.State != c.state || got.ErrorClass != c.class || got.Retry != c.retry ||
					got.Counted != c.counted {
					t.Errorf("%+v", got)
				}
				if strings.Contains(got.Error, "no credit") {
					t.Errorf("the error quotes the request of another message: %s", got.Error)
				}
				if got.Retry && got.Backoff <= 0 {
					t.Error("it would be granted again at once, and fail again")
				}
				for _, diff := range []string{cmp.Diff(c.waitsFor, got.WaitsFor), cmp.Diff(c.failed, failed),
					cmp.Diff(c.answered, answered)} {
					if diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}
