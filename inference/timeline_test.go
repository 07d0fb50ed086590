package inference_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
)

// A scripted is a model that takes a second for each call, and fails as its script says; then it answers.
type scripted struct {
	name     string
	failures []*inference.Error
	once     bool
	doubtful bool
}

// A timeline records what happens when.
type timeline struct {
	start  time.Time
	events []string
}

func (l *timeline) add(format string, args ...any) {
	l.events = append(l.events, fmt.Sprintf("%s %s", time.Since(l.start), fmt.Sprintf(format, args...)))
}

const callTime = time.Second

// play lets a chain call the models.
func (l *timeline) play(ctx context.Context, models []scripted, most, mostBad int) {
	chain := inference.Chain{
		Retry: inference.Retry{
			MaxAttempts: most, MaxBadOutput: mostBad, Jitter: func() float64 { return 0.5 },
			OnRetry: func(attempt int, err *inference.Error, wait time.Duration) {
				l.add("reported %d %s, wait %s", attempt, err.Class, wait)
			},
		},
		OnGiveUp: func(i int, err *inference.Error) { l.add("given up %d %s", i, err.Class) },
	}
	for _, m := range models {
		calls := 0
		chain.Models = append(chain.Models, inference.Candidate{
			Name: m.name, Model: m.name, Once: m.once, Doubtful: m.doubtful,
			Provider: generate(func(req inference.Request) (inference.Response, error) {
				l.add("asked %s", req.Model)
				time.Sleep(callTime)
				if calls++; calls <= len(m.failures) {
					return inference.Response{}, m.failures[calls-1]
				}
				return inference.Response{Text: "hello"}, nil
			}),
		})
	}
	res, err := chain.Generate(ctx, inference.Request{}, nil)
	attempts := res.Attempts
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		attempts = failure.Attempts
	}
	l.add("%d attempts, %s by %s", attempts, res.Text, res.Model)
}

type generate func(inference.Request) (inference.Response, error)

func (g generate) Generate(_ context.Context, req inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	return g(req)
}

// expected returns the timeline as the documentation has it: each failed attempt that another one follows is reported
// at once, then comes the pause that the report names, then the next attempt; a model that fails for good is given up
// at once and the next is asked without a pause.
func expected(models []scripted, most, mostBad int) []string {
	var now time.Duration
	var events []string
	add := func(format string, args ...any) {
		events = append(events, fmt.Sprintf("%s %s", now, fmt.Sprintf(format, args...)))
	}
	attempts := 0
	for i, m := range models {
		limit := most
		if m.once {
			limit = 1
		}
		for attempt := 1; ; attempt++ {
			add("asked %s", m.name)
			attempts++
			now += callTime
			if attempt > len(m.failures) {
				add("%d attempts, hello by %s", attempts, m.name)
				return events
			}
			f := m.failures[attempt-1]
			bad := 0
			for _, f := range m.failures[:attempt] {
				if f.Class == inference.ClassBadOutput {
					bad++
				}
			}
			worthIt := slices.Contains([]inference.Class{"rate_limited", "overloaded", "transport", "bad_output"},
				f.Class) || m.doubtful &&
				f.ByRequest
			if !worthIt || f.NoRetry || f.Idle || f.RetryAfter > 2*time.Second || attempt == limit || bad > mostBad {
				add("given up %d %s", i, f.Class)
				if i+1 < len(models) {
					add("reported %d %s, wait 0s", attempts, f.Class)
				}
				break
			}
			wait := min(500*time.Millisecond<<(attempt-1), 8*time.Second) / 2
			if f.RetryAfter > 0 {
				wait = f.RetryAfter
			}
			add("reported %d %s, wait %s", attempts, f.Class, wait)
			now += wait
		}
	}
	add("%d attempts,  by ", attempts)
	return events
}

func randomFailure(r *rand.Rand) *inference.Error {
	classes := []inference.Class{"rate_limited", "overloaded", "transport", "bad_output", "bad_output", "auth",
		"invalid", "not_found"}
	return &inference.Error{
		Class: classes[r.IntN(len(classes))], NoRetry: r.IntN(9) == 0, Idle: r.IntN(9) == 0, ByRequest: r.IntN(2) == 0,
		RetryAfter: []time.Duration{0, 0, 0, 1, 1999 * time.Millisecond, 2 * time.Second, 2*time.Second + 1,
			time.Minute}[r.IntN(8)],
	}
}

// A chain asks its models in order, and says what it does before it does it: see expected.
func TestTimelineOfAChain(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		var models []scripted
		for i := range 1 + r.IntN(3) {
			m := scripted{name: string(rune('a' + i)), once: r.IntN(4) == 0, doubtful: r.IntN(3) == 0}
			for range r.IntN(7) {
				m.failures = append(m.failures, randomFailure(r))
			}
			models = append(models, m)
		}
		most, mostBad := 1+r.IntN(6), 1+r.IntN(3)
		synctest.Test(t, func(t *testing.T) {
			l := &timeline{start: time.Now()}
			l.play(t.Context(), models, most, mostBad)
			if diff := cmp.Diff(expected(models, most, mostBad), l.events); diff != "" {
				t.Fatalf("seed %d, at most %d attempts, %d bad (-want +got):\n%s", seed, most, mostBad, diff)
			}
		})
	}
}
