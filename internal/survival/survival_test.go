package survival_test

import (
	"testing"

	"turnkeeper/internal/survival"
	"turnkeeper/internal/survival/survivaltest"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range survivaltest.Cases {
		if got := survival.Next(c.Before, c.Left, c.Limit); got != c.Want {
			t.Errorf("%s: %d of %d left after %q: %q, want %q", c.Name, c.Left, c.Limit, c.Before, got, c.Want)
		}
	}
}

// TestALevelStays checks that a level that was just decided stays while nothing is spent, and that less left is never
// better.
func TestALevelStays(t *testing.T) {
	t.Parallel()
	for _, before := range survival.Levels {
		last := survival.Critical
		for left := int64(-3); left <= 1003; left++ {
			level := survival.Next(before, left, 1000)
			if again := survival.Next(level, left, 1000); again != level {
				t.Errorf("%d of 1000 left after %s: %s, and then %s", left, before, level, again)
			}
			if survival.Worse(level, last) != last {
				t.Errorf("%d of 1000 left after %s: %s, which is worse than with less left", left, before, level)
			}
			last = level
		}
	}
}

func TestDay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		day  survival.Day
		want survival.Level
		left int
		ok   bool
	}{
		"no budget":     {survival.Day{Tokens: 1000, Calls: 1000}, survival.Normal, 100, false},
		"tokens alone":  {survival.Day{Tokens: 81, TokenLimit: 100, Calls: 7}, survival.Low, 19, true},
		"calls alone":   {survival.Day{Tokens: 81, Calls: 96, CallLimit: 100}, survival.Critical, 4, true},
		"the worse one": {survival.Day{Tokens: 81, TokenLimit: 100, Calls: 10, CallLimit: 100}, survival.Low, 19, true},
		"overdrawn":     {survival.Day{Tokens: 300, TokenLimit: 100}, survival.Critical, 0, true},
		"a part of one": {survival.Day{Tokens: 801, TokenLimit: 1000}, survival.Low, 19, true},
	} {
		left, ok := c.day.Left()
		if got := c.day.Next(""); got != c.want || left != c.left || ok != c.ok {
			t.Errorf("%s: %s, %d %% left (%v), want %s, %d %% (%v)", name, got, left, ok, c.want, c.left, c.ok)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	least := 5
	rules := survival.Rules{survival.Low: {MinPriority: &least}, survival.Critical: {NoSchedules: true}}
	for _, c := range []struct {
		level    survival.Level
		priority int
		waits    bool
	}{
		{survival.Low, 4, true}, {survival.Low, 5, false}, {survival.Low, 6, false},
		{survival.Normal, -1000, false}, {survival.Critical, -1000, false},
	} {
		if got := rules.Waits(c.level, c.priority); got != c.waits {
			t.Errorf("priority %d at %s waits: %v", c.priority, c.level, got)
		}
	}
	var none survival.Rules
	if none.Waits(survival.Critical, -1000) {
		t.Error("a message of an agent without rules waits")
	}
}
