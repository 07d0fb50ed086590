package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/operate"
)

// enqueueIn runs enqueue in a fixed time zone, so the result does not depend on the machine.
func enqueueIn(t *testing.T, zone string, env map[string]string, args ...string) ran {
	t.Helper()
	place, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code := enqueue.Program().Run(t.Context(), context.WithoutCancel(t.Context()), shell.Environment{
		Args: append([]string{"--agent", "echo"}, args...), Stdin: strings.NewReader(""), Stdout: &stdout,
		Stderr: &stderr, Zone: place,
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	return ran{code, stdout.String(), stderr.String()}
}

func TestEnqueueForLater(t *testing.T) {
	env, store := somewhere(t)
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tomorrow := now.In(time.UTC).AddDate(0, 0, 1).Format(time.DateOnly)
	at := func(text string) time.Time {
		due, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	for name, c := range map[string]struct {
		flag, value string
		from, to    time.Time // range of the due time; zero: refused
		stdout      string
		stderr      string
	}{
		"local": {"--at", tomorrow + "T09:00", at(tomorrow + "T09:00:00+05:30"),
			at(tomorrow + "T09:00:00+05:30"), ", due " + tomorrow + " 09:00:00 +05:30 (in ", ""},
		"local, by a space": {"--at", tomorrow + " 09:00:30", at(tomorrow + "T09:00:30+05:30"),
			at(tomorrow + "T09:00:30+05:30"), ", due " + tomorrow + " 09:00:30 +05:30 (in ", ""},
		"with an offset": {"--at", tomorrow + "T09:00:00Z", at(tomorrow + "T09:00:00Z"),
			at(tomorrow + "T09:00:00Z"), ", due " + tomorrow + " 14:30:00 +05:30 (in ", ""},
		"past": {"--at", "2020-05-17T09:00", now.Add(-time.Second), now.Add(time.Hour), ", due ",
			"--at is in the past (2020-05-17 09:00:00 +05:30 ("},
		"after":         {"--delay", "2h", now.Add(2 * time.Hour), now.Add(3 * time.Hour), ", due ", ""},
		"after seconds": {"--delay", "7200", now.Add(2 * time.Hour), now.Add(3 * time.Hour), ", due ", ""},
		"at once":       {"--delay", "0", now.Add(-time.Second), now.Add(time.Hour), ", due ", ""},
		"no time": {flag: "--at", value: "tomorrow",
			stderr: `--at is "tomorrow": write a time as 2006-01-02T15:04 (local time, Asia/Kolkata)`},
		"no time at all": {flag: "--at", value: "", stderr: `--at is "": write a time`},
		"no day":         {flag: "--at", value: "2026-02-30T09:00", stderr: "write a time as"},
		"negative":       {flag: "--delay", value: "-1s", stderr: "--delay is -1s: it must not be negative"},
		"far too late":   {flag: "--delay", value: "90000h", stderr: "it must be at most ten years"},
		"far too late a day": {flag: "--at", value: "2999-01-01T00:00",
			stderr: "its time is more than ten years ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			got := enqueueIn(t, "Asia/Kolkata", env, "--json", c.flag, c.value, "hi")
			if !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("stderr is %q, want %q", got.stderr, c.stderr)
			}
			if c.from.IsZero() {
				if got.code != 2 || got.stdout != "" {
					t.Errorf("%+v", got)
				}
				return
			}
			var view struct {
				MessageID turnkeeper.MessageID `json:"message_id"`
				DueAt     time.Time            `json:"due_at"`
			}
			if err := json.Unmarshal([]byte(got.stdout), &view); err != nil {
				t.Fatalf("%v: %+v", err, got)
			}
			if view.DueAt.Before(c.from) || view.DueAt.After(c.to) {
				t.Errorf("due at %v, want %v to %v", view.DueAt, c.from, c.to)
			}
			if m, err := store.Message(t.Context(), view.MessageID); err != nil || !m.DueAt.Equal(view.DueAt) {
				t.Errorf("the message is due at %v, error %v", m.DueAt, err)
			}
			if got := enqueueIn(t, "Asia/Kolkata", env, c.flag, c.value, "hi"); !strings.Contains(
				got.stdout, c.stdout) {
				t.Errorf("it says %q, want %q", got.stdout, c.stdout)
			}
		})
	}
	if got := enqueueIn(t, "UTC", env, "--at", tomorrow+"T09:00", "--delay", "2h", "hi"); got.code != 2 ||
		!strings.Contains(got.stderr, "give --at or --delay, not both") {
		t.Errorf("%+v", got)
	}
	if got := enqueueIn(t, "Europe/Berlin", env, "--at", "2027-03-28T02:30", "hi"); got.code != 2 ||
		!strings.Contains(got.stderr, "the clocks of Europe/Berlin skip that time") {
		t.Errorf("%+v", got)
	}
	// A repeated message shows the due time of the first one, or that it is closed.
	first := enqueueIn(t, "UTC", env, "--key", "once", "--delay", "2h", "hi")
	if again := enqueueIn(t, "UTC", env, "--key", "once", "hi"); !strings.Contains(again.stdout, ", due ") {
		t.Errorf("the first says %q, the repeat %q", first.stdout, again.stdout)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(first.stdout, "message "), " ")
	run(t, turnctl.Program(), env, "", "cancel", "--message", id)
	if again := enqueueIn(t, "UTC", env, "--key", "once", "hi"); !strings.Contains(again.stdout,
		"accepted, now closed: cancelled") {
		t.Errorf("the repeat of a cancelled message says %q, %s", again.stdout, again.stderr)
	}
	if got := run(t, turnctl.Program(), env, "", "inbox", "--limit", "100"); !strings.Contains(got.stdout,
		"waiting, due in ") {
		t.Errorf("the inbox shows\n%s", got.stdout)
	}
}

func TestRetiredAgents(t *testing.T) {
	env, store := somewhere(t)
	for range 3 {
		if got := run(t, enqueue.Program(), env, "", "--agent", "watcher", "hi"); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	turnctl := func(code int, want string, args ...string) {
		t.Helper()
		got := run(t, turnctl.Program(), env, "", args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("turnctl %s: %+v\nwant %d and %q", strings.Join(args, " "), got, code, want)
		}
	}
	turnctl(3, `there is no agent "nobody"`, "agents", "retire", "nobody")
	turnctl(2, "agent name", "agents", "retire", "../x")
	turnctl(0, "watcher is retired: it refuses new messages, and its schedules do not run\n3 messages still waiting",
		"agents", "retire", "watcher")
	turnctl(0, "3 messages waiting", "agents")
	turnctl(0, `"left_waiting": 3`, "agents", "-o", "json")
	turnctl(0, "agent retired", "schedules")
	if got := run(t, enqueue.Program(), env, "", "--agent", "watcher", "hi"); got.code != 2 ||
		got.stderr != "enqueue: agent 'watcher' is retired and takes no new messages\n" {
		t.Errorf("%+v", got)
	}
	turnctl(0, "3 messages cancelled", "agents", "retire", "watcher", "--cancel-waiting")
	if all, err := store.Messages(t.Context(), operate.Page{State: "cancelled"}); err != nil || len(all) != 3 {
		t.Errorf("%d messages are cancelled, error %v", len(all), err)
	}
	turnctl(6, "is retired", "retry", "1", "--anyway")
	turnctl(0, "watcher accepts messages", "agents", "restore", "watcher")
	turnctl(0, "watcher accepts messages", "agents", "restore", "watcher")
	if got := run(t, enqueue.Program(), env, "", "--agent", "watcher", "hi"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestNamesThatHoldASecret checks that names containing a secret are refused before they are stored, with an error that
// does not repeat the secret.
func TestNamesThatHoldASecret(t *testing.T) {
	const secret = "xq-0123456789-hunter2"
	env, store := somewhere(t)
	env["OPENAI_API_KEY"] = secret
	for _, flag := range []string{"--conversation", "--key"} {
		if got := run(t, enqueue.Program(), env, "", "--agent", "echo", flag, "a "+secret, "hi"); got.code != 2 ||
			!strings.Contains(got.stderr, "has a secret in it") || strings.Contains(got.stderr, secret) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	if all, err := store.Messages(t.Context(), operate.Page{}); err != nil || len(all) != 0 {
		t.Errorf("%d messages, error %v", len(all), err)
	}
	for _, key := range []string{"name", "conversation"} {
		file := filepath.Join(t.TempDir(), "x.md")
		text := "---\nschedule: {cron: \"@daily\", " + key + ": " + secret + "}\n---\nHello.\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := run(t, turnctl.Program(), env, "", "agents", "check", file); got.code != 1 ||
			!strings.Contains(got.stdout, "x.md:2: schedule."+key+" contains a secret") ||
			strings.Contains(got.stdout, secret) {
			t.Errorf("%s: %+v", key, got)
		}
	}
}
