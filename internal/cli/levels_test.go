package cli_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/storagetest"
)

// TestLevels pins survival levels and looks at them with all commands that show them.
func TestLevels(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	env["USER"] = "ada"
	s := &stage{DB: db, t: t}
	a := storagetest.Registration("clerk", false, turnkeeper.Schedule{Name: "s", Cron: "@every 1h", TimeZone: "UTC",
		Conversation: "main", Message: "look"})
	a.DayCalls, a.Levels = 100, []byte(`{"low": {"models": ["p/cheap"], "no_schedules": true, "min_priority": 5}}`)
	desk := storagetest.Registration("desk", false)
	if err := db.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{a, desk}); err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) string {
		t.Helper()
		got := run(t, turnctl.Program(), env, "", args...)
		if got.code != 0 {
			t.Errorf("%v: %+v", args, got)
		}
		return got.stdout
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
	}
	has(ctl("levels"), "clerk", "normal", "100 %", "0 of 100")
	if d := diagnose(t, env); strings.Contains(strings.Join(namesOf(d), " "), "level ") {
		t.Errorf("doctor reports a normal level: %q", namesOf(d))
	}
	has(ctl("levels", "-o", "json"), `"left_percent": 100`, `"min_priority": 5`, `"all": null`)

	s.exec(`insert into turnkeeper.spend (scope, period, tokens, calls, level)
		values ('agent:clerk', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD'), 0, 85, 'low')`)
	s.exec(
		"update turnkeeper.schedules set skipped_slot = now(), skipped_why = 'the agent''s survival level is low', skipped = 3")
	id, err := db.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "work"})
	if err != nil {
		t.Fatal(err)
	}
	s.exec("select turnkeeper.move_levels(100)")
	has(ctl("levels"), "low", "15 %", "85 of 100", "asks p/cheap, no schedules, priority 5 or more")
	has(ctl("top", "--once"), "levels   clerk is at survival level low: 15 % of its budget of the day is left")
	has(ctl("top", "--once", "-o", "json"), `"level": "low"`)
	has(ctl("schedules"), "3 slots not run", "the agent's survival level is low")
	has(ctl("explain", "--message", "1"),
		"agent clerk serves only messages of priority 5 or more at its survival level low", "pin normal --agent clerk")
	has(ctl("inbox"), "level low: priority below 5")
	diagnose(t, env).wants(t, "warn", "level clerk", "15 % of its budget of the day is left", "1 message waits",
		"1 schedule did not run",
		"raise day_tokens or day_calls in the file of clerk")
	_ = id

	has(ctl("levels", "pin", "critical", "--for", "1h", "--reason", "costs"),
		"all agents without a pin of their own: critical, by ada", "until", "costs", "desk")
	diagnose(t, env).wants(t, "warn", "level desk", "critical", "by ada", "turnctl levels unpin")
	has(ctl("levels", "pin", "normal", "--agent", "clerk", "--by", "bob"), "normal, by bob")
	diagnose(t, env).wants(t, "warn", "level clerk", "normal, pinned: normal, by bob",
		"turnctl levels unpin --agent clerk")
	if got := storagetest.One[string](db,
		"select turnkeeper.level_of('clerk') || turnkeeper.level_of('desk')"); got != "normalcritical" {
		t.Errorf("the levels are %s", got)
	}
	ctl("levels", "unpin")
	has(ctl("levels", "unpin", "--agent", "clerk"), "low")

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"levels", "pin", "high"}, 2, "LEVEL"},
		{[]string{"levels", "pin"}, 2, ""},
		{[]string{"levels", "pin", "low", "--for", "-1h"}, 2, "--for"},
		{[]string{"levels", "pin", "low", "--agent", "clark"}, 3, `there is no agent "clark" (did you mean "clerk"?)`},
		{[]string{"levels", "unpin", "--agent", "nobody"}, 3, `there is no agent "nobody"`},
	} {
		if got := run(t, turnctl.Program(), env, "", c.args...); got.code != c.code ||
			!strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}

func namesOf(d diagnosis) (names []string) {
	for _, f := range d.Checks {
		names = append(names, f.Name)
	}
	return names
}

// TestExplainTellsOfTheLevel checks that explain says of an open turn at which level its agent is.
func TestExplainTellsOfTheLevel(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	s := &stage{DB: db, t: t}
	s.registerFile(env["TURNKEEPER_AGENTS_DIR"], "echo", "---\nmodel: demo/script\n---\nYou answer.\n")
	s.turn("Hello.")
	run(t, turnctl.Program(), env, "", "levels", "pin", "critical", "--agent", "echo", "--by", "ada",
		"--reason", "costs")
	got := run(t, turnctl.Program(), env, "", "explain", "latest")
	if !strings.Contains(strings.Join(strings.Fields(got.stdout), " "),
		"Echo is at survival level critical, pinned: critical, by ada") &&
		!strings.Contains(strings.Join(strings.Fields(got.stdout), " "),
			"echo is at survival level critical, pinned: critical, by ada") {
		t.Errorf("%+v", got)
	}
}
