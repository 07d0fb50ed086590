package agentdef_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/agentdef"
	"turnkeeper/internal/survival"
)

func TestRulesOfLevels(t *testing.T) {
	for name, c := range map[string]struct {
		front string
		want  survival.Rules
		chain []string // at level low
	}{
		"none":       {"model: a/main", survival.Rules{}, []string{"a/main"}},
		"empty ones": {"model: a/main\nlevels: {low: {}, critical: {}}", survival.Rules{}, []string{"a/main"}},
		"all": {
			"model: a/main\nfallback_models: [a/spare, a/cheap]\nlevels: {low: {model: a/cheap, schedules: false, min_priority: 3}, critical: {schedules: true}}",
			survival.Rules{
				survival.Low:      {Models: []string{"a/cheap", "a/spare"}, NoSchedules: true, MinPriority: new(3)},
				survival.Critical: {},
			},
			[]string{"a/cheap", "a/spare"},
		},
		"no model": {"fallback_models: [a/spare]\nlevels: {low: {min_priority: 0}}",
			survival.Rules{survival.Low: {MinPriority: new(0)}}, []string{"a/default", "a/spare"}},
	} {
		def, err := agentdef.Parse("x.md", []byte("---\n"+c.front+"\n---\nYou test."))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, def.Rules("a/default")); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff(c.chain, def.ChainAt(survival.Low, "a/default")); diff != "" {
			t.Errorf("%s at level low:\n%s", name, diff)
		}
		if diff := cmp.Diff(def.Chain("a/default"), def.ChainAt(survival.Normal, "a/default")); diff != "" {
			t.Errorf("%s at level normal:\n%s", name, diff)
		}
	}
}
