package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
)

// TestPolicyTest evaluates rules against a journal of three calls, the last two after a private result.
func TestPolicyTest(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	s.registerFile(env["TURNKEEPER_AGENTS_DIR"], "echo", "---\nmodel: demo/script\n---\nYou echo.\n", "demo/script")
	a := s.turn("hello")
	a.round(1, turnkeeper.EffectNone, "read_file").write(turnlog.Entry{Results: []turnlog.CallResult{{
		Key: first(1), State: turnkeeper.CallSucceeded, Shown: "text", Labels: []policy.Mark{{Label: policy.Private,
			Source: "a file"}},
	}}})
	a.round(2, turnkeeper.EffectOnce, "send", "pay")
	const rule = `tool == "pay" ? deny("no money") : "private" in labels ? ask("private content") : allow`
	file := filepath.Join(t.TempDir(), "rule.cel")
	if err := os.WriteFile(file, []byte(rule+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--rule", rule}, {"--file", file, "--since", "1h"}} {
		got := run(t, worker.Program(), env, "", append([]string{"policy", "test", "-o", "json"}, args...)...)
		var view struct {
			Rule             string
			Allow, Ask, Deny int
			Calls            []struct {
				Round, Ordinal         int
				Tool, Decision, Reason string
				Labels                 []string
			}
		}
		if err := json.Unmarshal([]byte(got.stdout), &view); err != nil || got.code != 0 {
			t.Fatalf("%v: %+v", err, got)
		}
		if view.Rule != rule || view.Allow != 1 || view.Ask != 1 || view.Deny != 1 || len(view.Calls) != 3 {
			t.Errorf("%+v", view)
		}
		if c := view.Calls[1]; c.Tool != "send" || c.Decision != "ask" || c.Reason != "private content" ||
			len(c.Labels) != 1 {
			t.Errorf("the second call: %+v", c)
		}
	}
	got := run(t, worker.Program(), env, "", "policy", "test", "--rule", rule)
	golden.File(t, "testdata/policy-test.txt", got.stdout)
	got = run(t, worker.Program(), env, "", "policy", "test", "--rule", "always")
	if got.code != 0 || !strings.Contains(got.stdout, "3 calls: 0 allowed, 3 asked, 0 denied") {
		t.Errorf("as text: %+v", got)
	}
	for fault, args := range map[string][]string{
		"the rule is not valid CEL": {"--rule", "args."},
		"there is no rule":          {},
		`--since is "soon"`:         {"--rule", "always", "--since", "soon"},
		"no such file":              {"--file", filepath.Join(t.TempDir(), "none")},
	} {
		if got := run(t, worker.Program(), env, "", append([]string{"policy", "test"}, args...)...); got.code != 2 ||
			!strings.Contains(got.stderr, fault) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := run(t, turnctl.Program(), env, "", "policy", "test", "--since", "7d"); got.code != 2 ||
		!strings.Contains(got.stderr, `run "worker policy test"`) {
		t.Errorf("turnctl: %+v", got)
	}
}
