package agentturn_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// The error says why a request cannot be rebuilt.
func TestWhyARequestCannotBeRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newEnv(t, says("done")).with(read("look"))
		b.run(t.Context())
		whole := map[string]string{}
		for _, part := range b.store.entries[0].Parts {
			whole[part.SHA256] = part.Content
		}
		recipe := *b.store.rounds[0].Recipe
		for name, c := range map[string]struct {
			number int
			change func(r *turnkeeper.Recipe, parts map[string]string)
			is     error
			says   string
		}{
			"nothing":        {1, func(*turnkeeper.Recipe, map[string]string) {}, nil, ""},
			"no such round":  {2, func(*turnkeeper.Recipe, map[string]string) {}, prompt.ErrNoRound, "there is no such round: turn 7 has 1"},
			"a newer recipe": {1, func(r *turnkeeper.Recipe, _ map[string]string) { r.Version++ }, prompt.ErrNewerRecord, "newer release"},
			"a part is gone": {1, func(r *turnkeeper.Recipe, parts map[string]string) { delete(parts, r.Tools) }, nil, "a part of the request is not stored: " + recipe.Tools},
			"a secret was masked": {1, func(r *turnkeeper.Recipe, parts map[string]string) {
				parts[r.Tools] = strings.Replace(parts[r.Tools], "test", "[redacted]", 1)
			}, nil, "not stored as it was sent, perhaps because a secret was masked"},
			"a summary is gone":  {1, func(r *turnkeeper.Recipe, _ map[string]string) { r.Summary = 5 }, nil, "the summary of the turns up to 5 is not stored"},
			"a list of nonsense": {1, func(r *turnkeeper.Recipe, _ map[string]string) { r.Dropped = "x" }, nil, `"x" is not a list of numbers`},
			"the frame is broken": {1, func(r *turnkeeper.Recipe, parts map[string]string) {
				part := turnkeeper.NewRequestPart("{")
				r.Frame, parts[part.SHA256] = part.SHA256, part.Content
			}, nil, "cannot read the request's frame"},
		} {
			record, changed, parts := b.store.reload(), recipe, map[string]string{}
			for hash, content := range whole {
				parts[hash] = content
			}
			c.change(&changed, parts)
			record.Rounds[0].Recipe = &changed
			_, err := prompt.Rebuild(record, b.def, c.number, parts)
			if c.is != nil && !errors.Is(err, c.is) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		record := b.store.reload()
		record.Rounds[0].Recipe = nil
		if _, err := prompt.Rebuild(record, b.def, 1, whole); !errors.Is(err, prompt.ErrNoRecipe) {
			t.Errorf("without a recipe: %v", err)
		}
	})
}

// The results and the summary of a request without tools are quoted.
func TestARebuiltRequestWithoutTools(t *testing.T) {
	b := newEnv(t, says("done"))
	b.store.history = []turnkeeper.Past{past(1, "one", "c1", "first", "first")}
	b.run(t.Context())
	parts := map[string]string{}
	for _, part := range b.store.entries[0].Parts {
		parts[part.SHA256] = part.Content
	}
	record := b.store.reload()
	recipe := *record.Rounds[0].Recipe
	recipe.Omitted, recipe.Summary = 1, 5
	record.Rounds[0].Recipe, record.Summary = &recipe, turnkeeper.Summary{UpTo: 5, Text: "They spoke.\nLong."}
	rebuilt, err := prompt.Rebuild(record, b.def, 1, parts)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rebuilt.Messages[0].Text, "Each line of it begins with \"> \".\n\n> They spoke.\n> Long."; !strings.HasSuffix(got, want) {
		t.Errorf("the system message is %q, want it to end with %q", got, want)
	}
	if got, want := rebuilt.Messages[3].Text, "# Tool results\n\nEach line of a result begins with \"> \".\n\nlook:\n> seen one"; got != want {
		t.Errorf("the results are %q, want %q", got, want)
	}
}
