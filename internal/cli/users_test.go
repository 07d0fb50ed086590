package cli_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/storagetest"
)

// TestUsersOnTheCommandLine sends as two users, lists and purges one of them, and binds a token to him.
func TestUsersOnTheCommandLine(t *testing.T) {
	env, store := somewhere(t)
	ctl := func(args ...string) ran { return run(t, turnctl.Program(), env, "", args...) }
	for _, user := range []string{"anna", "bert", "anna"} {
		got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--user", user, "--key", "k", "--json", "hi")
		if got.code != 0 || !strings.Contains(got.stdout, `"user": "`+user+`"`) && !strings.Contains(got.stdout,
			`"user":"`+user+`"`) {
			t.Errorf("%s: %+v", user, got)
		}
	}
	if n := storagetest.One[int](store, "select count(*) from turnkeeper.messages"); n != 2 {
		t.Errorf("there are %d messages", n)
	}
	for _, c := range []struct {
		args  []string
		code  int
		shows string
		hides string
	}{
		{[]string{"inbox", "--user", "anna"}, 0, "main of anna", "bert"},
		{[]string{"inbox", "--user", "bert", "-o", "json"}, 0, `"user": "bert"`, "anna"},
		{[]string{"inbox", "--user", "anna", "--agent", "watcher"}, 0, "", "anna"},
		{[]string{"inbox", "--user", ""}, 2, "it is empty", ""},
		{[]string{"inbox", "--user", "a\nb"}, 2, "control character", ""},
		{[]string{"purge", "--user", ""}, 2, "it is empty", ""},
		{[]string{"purge"}, 2, "give --agent, --user", ""},
		{[]string{"purge", "--user", "anna", "--conversation", "main"}, 2, "--conversation needs --agent", ""},
		{[]string{"purge", "--agent", "echo", "--user", "anna", "--notes"}, 2, "--notes goes only with --agent", ""},
		{[]string{"tokens", "create", "phone", "--scopes", "send,read", "--user", "anna"}, 0, "tk_", ""},
		{[]string{"tokens"}, 0, "anna", ""},
		{[]string{"cancel", "1"}, 0, "", ""},
		{[]string{"outbox", "--user", "bert"}, 0, "", "anna"},
		{[]string{"outbox", "--user", "anna"}, 0, "main of anna", ""},
		{[]string{"turns", "--user", "anna"}, 0, "main of anna", ""},
		{[]string{"show", "latest"}, 0, "conversation main of anna", ""},
		{[]string{"purge", "--user", "anna", "--dry-run"}, 0, "1 message", ""},
		{[]string{"purge", "--user", "anna"}, 0, "token phone is bound to the user and stays", ""},
		{[]string{"inbox"}, 0, "main of bert", "anna"},
	} {
		args := c.args
		if args[0] == "cancel" {
			args = []string{"cancel", "--message", "1"}
		}
		got := ctl(args...)
		if text := got.stdout + got.stderr; got.code != c.code || !strings.Contains(text, c.shows) || c.hides != "" &&
			strings.Contains(text, c.hides) {
			t.Errorf("%q: %+v, want %d with %q", args, got, c.code, c.shows)
		}
	}
	got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--user", "", "hi")
	if got.code != 2 || !strings.Contains(got.stderr, "--user is empty") {
		t.Errorf("an empty user: %+v", got)
	}
	got = run(t, enqueue.Program(), env, "", "--agent", "echo", "--user",
		strings.Repeat("a", turnkeeper.MaxKeyLength+1), "hi")
	if got.code == 0 || !strings.Contains(got.stderr, "the user's name is longer") {
		t.Errorf("a long name: %+v", got)
	}
}
