package faults_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// newEnvBehindProxy is like env.New, but the programs connect to the database through a proxy. The test itself
// does not.
func newEnvBehindProxy(t testing.TB) (*env.Env, *storagetest.Proxy) {
	t.Helper()
	e := env.New(t)
	return e, behindProxy(e)
}

func behindProxy(e *env.Env) *storagetest.Proxy {
	e.T.Helper()
	p, url := storagetest.NewProxy(e.T, e.DatabaseURL)
	e.Vars["DATABASE_URL"] = url
	return p
}

// A place is a unit of work in the handling of a message, where the connection can be cut.
type place struct {
	name string
	at   func() func(storagetest.Sent) bool // returns a new match function for one message
}

// nth matches the n-th unit that executes the query.
func nth(n int64, query string) func() func(storagetest.Sent) bool {
	return func() func(storagetest.Sent) bool {
		var seen atomic.Int64
		return func(s storagetest.Sent) bool { return s.Has("name: "+query+" ") && seen.Add(1) == n }
	}
}

// places returns where the handling of a message with this number of journal writes can be cut: each of its
// writes, and the look that the others depend on. The grant hands the turn over, with its record.
func places(steps int) []place {
	all := []place{
		{"accept", nth(1, "Enqueue")},
		{"snapshot", nth(1, "Snapshot")},
		{"grant", nth(1, "Grant")},
	}
	for n := range steps - 1 {
		all = append(all, place{fmt.Sprint("step ", n+1), nth(int64(n+1), "AppendMany")})
	}
	return append(all, place{"finish", nth(1, "EndMany")})
}

// standardTurn is the model of these tests: three rounds, with a call of each effect.
func standardTurn(r inferencetest.Recorded) inferencetest.Reply {
	label := env.NewestMessage(r)
	named := func(tool string) inferencetest.Call {
		c := env.MarkerCall("mark_"+tool, label+" "+tool)
		c.ID = "call_" + tool
		return c
	}
	return env.Rounds(inferencetest.Calls(named("none"), named("once")), inferencetest.Calls(named("keyed")),
		inferencetest.Text("answer to "+label))(r)
}

// countStandardSteps runs the standard turn uncut and counts its journal writes.
func countStandardSteps(e *env.Env, p *storagetest.Proxy) int {
	e.T.Helper()
	var steps atomic.Int64
	p.Plan(func(s storagetest.Sent) storagetest.Cut {
		if s.Has("name: AppendMany ") {
			steps.Add(1)
		}
		return storagetest.Pass
	})
	message, _ := acceptMessage(e, "clerk", "uncut")
	e.AwaitClosed(message)
	wantAnswered(e, message, "uncut")
	p.Plan(nil)
	if steps.Load() < 4 {
		e.T.Fatalf("the standard turn made %d writes", steps.Load())
	}
	return int(steps.Load())
}

// acceptMessage sends a message with a key, and retries until it is accepted. refusals are the errors before
// that.
func acceptMessage(e *env.Env, agent, body string) (message int64, refusals []string) {
	e.T.Helper()
	for range 100 {
		r := e.Run(body, "enqueue", "--agent", agent, "--key", body, "--json", "-")
		if r.Code == 0 {
			var accepted struct {
				MessageID int64 `json:"message_id"`
			}
			if err := json.Unmarshal([]byte(r.Stdout), &accepted); err != nil {
				e.T.Fatal(err)
			}
			return accepted.MessageID, refusals
		}
		if r.Code != 1 || r.Stdout != "" || !plainSentence(r.Stderr) {
			e.T.Errorf("enqueue ended with %d and printed %q%q", r.Code, r.Stdout, r.Stderr)
		}
		refusals = append(refusals, r.Stderr)
	}
	e.T.Fatalf("%q was never accepted: %q", body, refusals)
	return 0, nil
}

// plainSentence reports whether an error is one readable line.
func plainSentence(said string) bool {
	line, rest, _ := strings.Cut(said, "\n")
	if rest != "" || !strings.HasPrefix(line, "enqueue: ") {
		return false
	}
	for _, jargon := range []string{"EOF", "failed to", "panic", "context", "pgconn", "goroutine", "%!"} {
		if strings.Contains(line, jargon) {
			return false
		}
	}
	return true
}

// wantAnswered fails the test unless the message has one reply, that of the standard turn, and every call ran
// as often as its effect allows.
func wantAnswered(e *env.Env, message int64, body string) {
	e.T.Helper()
	if got := env.Query[string](e,
		"select coalesce(string_agg(outcome || ': ' || body, '; '), 'none') from replies where message_id = $1",
		message); got != "succeeded: answer to "+body {
		e.T.Errorf("%q has the reply %q", body, got)
	}
	if n := env.Query[int](e, "select count(*) from messages where idempotency_key = $1", body); n > 1 {
		e.T.Errorf("%q is %d messages", body, n)
	}
	e.Ledger.WantRuns(body+" once", 1)
	for _, label := range []string{body + " none", body + " keyed"} {
		runs := e.Ledger.Runs(label)
		if len(runs) == 0 {
			e.T.Errorf("%q has no mark", label)
		}
		for _, again := range runs {
			if again.IdempotencyKey != runs[0].IdempotencyKey {
				e.T.Errorf("%q has marks with several keys: %+v", label, runs)
			}
		}
	}
}
