package tests_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/storage/storagetest"
)

type sent = storagetest.Sent

// newHouseBehindProxy is newHouse whose programs speak to the database through
// a proxy. The test itself does not.
func newHouseBehindProxy(t testing.TB) (*house, *storagetest.Proxy) {
	t.Helper()
	h := newHouse(t)
	return h, h.behindProxy()
}

func (h *house) behindProxy() *storagetest.Proxy {
	h.t.Helper()
	p, url := storagetest.NewProxy(h.t, h.url)
	h.env["DATABASE_URL"] = url
	return p
}

// A place is a unit of work on a message's way.
type place struct {
	name string
	at   func() func(sent) bool // makes a match for one message
}

// nth matches the n-th unit that executes the query.
func nth(n int64, query string) func() func(sent) bool {
	return func() func(sent) bool {
		var seen atomic.Int64
		return func(s sent) bool { return s.Has("name: "+query+" ") && seen.Add(1) == n }
	}
}

// following matches the first unit that executes the query after one that executes
// an earlier one.
func following(earlier, query string) func() func(sent) bool {
	return func() func(sent) bool {
		var due atomic.Bool
		return func(s sent) bool {
			if s.Has("name: " + earlier + " ") {
				due.Store(true)
				return false
			}
			return s.Has("name: "+query+" ") && due.CompareAndSwap(true, false)
		}
	}
}

// places are where the way of a message with so many journal writes can be cut:
// each of its writes, and the two reads that the others build on.
func places(steps int) []place {
	all := []place{
		{"accept", nth(1, "Enqueue")},
		{"look", nth(1, "Look")},
		{"grant", nth(1, "Grant")},
		{"fetch", following("Grant", "JobGetAvailable")},
		{"load", nth(1, "TurnForWorker")},
	}
	for n := range steps - 1 {
		all = append(all, place{fmt.Sprint("step ", n+1), nth(int64(n+1), "Step")})
	}
	return append(all, place{"finish", nth(1, "EndDispatch")})
}

// The standard turn of these tests: three rounds, with a call of each effect.
func standardTurn(r recorded) reply {
	label := newest(r)
	named := func(tool string) inferencetest.Call {
		c := call("mark_"+tool, label+" "+tool)
		c.ID = "call_" + tool
		return c
	}
	return rounds(calls(named("none"), named("once")), calls(named("keyed")), text("answer to "+label))(r)
}

// standardSteps runs the standard turn uncut and counts its journal writes.
func (h *house) standardSteps(p *storagetest.Proxy) int {
	h.t.Helper()
	var steps atomic.Int64
	p.Plan(func(s sent) storagetest.Cut {
		if s.Has("name: Step ") {
			steps.Add(1)
		}
		return storagetest.Pass
	})
	message, _ := h.accept("clerk", "uncut")
	h.awaitClosed(message)
	h.answered(message, "uncut")
	p.Plan(nil)
	if steps.Load() < 4 {
		h.t.Fatalf("the standard turn made %d writes", steps.Load())
	}
	return int(steps.Load())
}

// accept sends a message as a careful sender does: with a key, and again until
// it is accepted. refusals are what it was told before.
func (h *house) accept(agent, body string) (message int64, refusals []string) {
	h.t.Helper()
	for range 100 {
		r := h.run(body, "enqueue", "--agent", agent, "--key", body, "--json", "-")
		if r.code == 0 {
			var accepted struct {
				MessageID int64 `json:"message_id"`
			}
			if err := json.Unmarshal([]byte(r.stdout), &accepted); err != nil {
				h.t.Fatal(err)
			}
			return accepted.MessageID, refusals
		}
		if r.code != 1 || r.stdout != "" || !plainSentence(r.stderr) {
			h.t.Errorf("enqueue ended with %d and said %q%q", r.code, r.stdout, r.stderr)
		}
		refusals = append(refusals, r.stderr)
	}
	h.t.Fatalf("%q was never accepted: %q", body, refusals)
	return 0, nil
}

// plainSentence says that a person can read it, and that it is one line.
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

// answered fails the test if the message was not answered as the standard turn
// answers it: one reply, and every call's mark made as often as it may be.
func (h *house) answered(message int64, body string) {
	h.t.Helper()
	if got := query[string](h, "select coalesce(string_agg(outcome || ': ' || body, '; '), 'none') from replies where message_id = $1", message); got != "succeeded: answer to "+body {
		h.t.Errorf("%q has the reply %q", body, got)
	}
	if n := query[int](h, "select count(*) from messages where idempotency_key = $1", body); n > 1 {
		h.t.Errorf("%q is %d messages", body, n)
	}
	h.ledger.ran(body+" once", 1)
	for _, label := range []string{body + " none", body + " keyed"} {
		runs := h.ledger.runs(label)
		if len(runs) == 0 {
			h.t.Errorf("%q was never marked", label)
		}
		for _, again := range runs {
			if again.IdempotencyKey != runs[0].IdempotencyKey {
				h.t.Errorf("%q was marked with several keys: %+v", label, runs)
			}
		}
	}
}
