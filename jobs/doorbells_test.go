package jobs_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/jobs"
	"turnkeeper/policy"
)

// A house is a site with an agent that asks a person, and a worker that does not poll. Its scheduler is in the same
// process or in another.
type house struct {
	*site
	*edited
	p     *process
	block chan string // receives the conversations whose model call waits for its end; nil: none waits
}

func (h *house) Generate(ctx context.Context, r inference.Request,
	deltas func(inference.Delta)) (inference.Response, error) {
	switch r.Messages[len(r.Messages)-1].Text {
	case "wait":
		h.block <- "asked"
		<-ctx.Done()
		return inference.Response{}, context.Cause(ctx)
	case "wait, then finish", "wait, then retry":
		if h.once(r.Messages[len(r.Messages)-1].Text) {
			h.block <- "asked"
			<-ctx.Done()
			return inference.Response{}, context.Cause(ctx)
		}
	case "hand back":
		if h.once(r.Messages[len(r.Messages)-1].Text) {
			h.p.worker.Stop(agentturn.ErrShutdown)
			<-ctx.Done()
			return inference.Response{}, context.Cause(ctx)
		}
	}
	return h.edited.Generate(ctx, r, deltas)
}

func (h *house) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	_, info, err := h.edited.Find(name)
	return h, info, err
}

// once reports whether it is called with the word for the first time.
func (h *house) once(word string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[word]++
	return h.runs[word] == 1
}

func newHouse(t *testing.T, apart bool) *house {
	s := newSite(t)
	h := &house{site: s, edited: &edited{used: map[string]string{}, runs: map[string]int{}},
		block: make(chan string, 1)}
	s.register("asker",
		"---\ndescription: d\nmodel: script/m\nlane: conversation\ntools: [one]\napprove: {one: always}\n---\nYou ask.\n")
	h.p = s.start(kind{model: echo, slots: 2, scheduler: !apart, change: func(c *jobs.WorkerConfig) {
		c.Runner = agentturn.New(agentturn.Config{
			Models: h, Tools: h.registry(t), Bounds: c.Bounds, Budget: &jobs.Spend{Grants: s.Grants},
			Rules: &policy.Cache{},
		})
	}})
	if apart {
		s.start(kind{scheduler: true})
	}
	return h
}

// fails makes the agents' model down until then.
func (h *house) fails(until string) {
	h.t.Helper()
	h.exec(`insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error, changed_at)
		values ('script/m', now(), ` + until + `, 1, 'overloaded', 'busy', now())
		on conflict (model) do update set down_since = now(), until = excluded.until, failures = 1`)
}

// soon is a moment when no scheduler looks unless it knows that something is due: after a notification it looks once
// more.
const soon = "clock_timestamp() + interval '1 second'"

// must fails the test if something fails.
func must(s *site, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// deferred returns a message whose turn waits for its time.
func (h *house) deferred(body string) turnkeeper.MessageID {
	h.t.Helper()
	id := h.enqueue("desk", body, body)
	<-h.block
	must(h.site, h.PauseScheduler(h.t.Context(), "test"))
	h.p.worker.Stop(agentturn.ErrShutdown)
	h.await("exists (select from turnkeeper.turns where message_id = $1 and state = 'queued')", id)
	h.exec("update turnkeeper.turns set due_at = now() + interval '1 hour' where message_id = $1", id)
	must(h.site, h.ResumeScheduler(h.t.Context()))
	return id
}

// ready are things that make a message's turn go on. Each prepares a message that waits, and returns what makes it go
// on.
var ready = map[string]func(h *house) (id turnkeeper.MessageID, happen func()){
	"a message comes": func(h *house) (id turnkeeper.MessageID, _ func()) {
		return h.enqueue("clerk", "", "hello"), func() {}
	},
	"a lane is free": func(h *house) (turnkeeper.MessageID, func()) {
		h.enqueue("clerk", "", "first")
		return h.enqueue("clerk", "", "second"), func() {}
	},
	"a slot is free": func(h *house) (id turnkeeper.MessageID, _ func()) {
		for n := range 9 {
			id = h.enqueue("desk", fmt.Sprint(n), "hello")
		}
		return id, func() {}
	},
	"an ask is answered": func(h *house) (turnkeeper.MessageID, func()) {
		id := h.enqueue("asker", "", "ask")
		h.await(
			"exists (select from turnkeeper.asks where state = 'open') and exists (select from turnkeeper.turns where state = 'waiting')")
		return id, func() {
			_, err := h.AnswerAsk(h.t.Context(), one[asks.ID](h.site,
				"select id from turnkeeper.asks where state = 'open'"),
				asks.Answer{Decision: asks.Approved, By: "ann", Channel: "test"})
			must(h.site, err)
		}
	},
	"an ask expires": func(h *house) (turnkeeper.MessageID, func()) {
		id := h.enqueue("asker", "", "ask again")
		h.await(
			"exists (select from turnkeeper.asks where state = 'open') and exists (select from turnkeeper.turns where state = 'waiting')")
		return id, func() {
			h.exec("update turnkeeper.asks set expires_at = " + soon + " where state = 'open'; notify turnkeeper_inbox")
		}
	},
	"a running turn is cancelled": func(h *house) (turnkeeper.MessageID, func()) {
		id := h.enqueue("desk", "wait", "wait")
		<-h.block
		return id, func() { _, err := h.CancelMessage(h.t.Context(), id, "enough"); must(h.site, err) }
	},
	"a turn is handed back": func(h *house) (turnkeeper.MessageID, func()) {
		return h.enqueue("desk", "handed back", "hand back"), func() {}
	},
	"a model's pause ends": func(h *house) (turnkeeper.MessageID, func()) {
		h.fails(soon)
		return h.enqueue("desk", "fails", "hello"), func() {}
	},
	"a model's pause is ended": func(h *house) (turnkeeper.MessageID, func()) {
		h.fails("now() + interval '1 hour'")
		id := h.enqueue("desk", "down", "hello")
		return id, func() { _, err := h.Retry(h.t.Context(), id, false); must(h.site, err) }
	},
	"a turn that waits for its time is to finish": func(h *house) (turnkeeper.MessageID, func()) {
		id := h.deferred("wait, then finish")
		return id, func() { _, err := h.FinishMessage(h.t.Context(), id, "enough"); must(h.site, err) }
	},
	"a turn that waits for its time is retried now": func(h *house) (turnkeeper.MessageID, func()) {
		id := h.deferred("wait, then retry")
		return id, func() { _, err := h.Retry(h.t.Context(), id, false); must(h.site, err) }
	},
	"a message is due": func(h *house) (turnkeeper.MessageID, func()) {
		id, err := h.Enqueue(h.t.Context(), turnkeeper.Submission{Agent: "desk", Conversation: "due", Body: "hello",
			DueAt: time.Now().Add(time.Hour)})
		must(h.site, err)
		return id, func() {
			h.exec("update turnkeeper.messages set due_at = "+soon+", accepted_at = now() where id = $1", id)
			h.exec("notify turnkeeper_inbox")
		}
	},
	"a later message is retried now": func(h *house) (turnkeeper.MessageID, func()) {
		id, err := h.Enqueue(h.t.Context(), turnkeeper.Submission{Agent: "desk", Conversation: "now", Body: "hello",
			DueAt: time.Now().Add(time.Hour)})
		must(h.site, err)
		return id, func() { _, err := h.Retry(h.t.Context(), id, false); must(h.site, err) }
	},
	"an agent is restored": func(h *house) (turnkeeper.MessageID, func()) {
		must(h.site, h.PauseScheduler(h.t.Context(), "test"))
		id := h.enqueue("desk", "retired", "hello")
		must(h.site, h.RetireAgent(h.t.Context(), "desk"))
		must(h.site, h.ResumeScheduler(h.t.Context()))
		return id, func() { must(h.site, h.RestoreAgent(h.t.Context(), "desk")) }
	},
	"the scheduler is resumed": func(h *house) (turnkeeper.MessageID, func()) {
		must(h.site, h.PauseScheduler(h.t.Context(), "test"))
		return h.enqueue("desk", "paused", "hello"), func() { must(h.site, h.ResumeScheduler(h.t.Context())) }
	},
	"an agent's lanes change": func(h *house) (turnkeeper.MessageID, func()) {
		h.enqueue("clerk", "wait", "wait")
		<-h.block
		id := h.enqueue("clerk", "behind", "hello")
		return id, func() {
			h.register("clerk", "---\ndescription: d\nmodel: script/m\nlane: conversation\n---\nYou are the clerk.\n")
			h.exec("select turnkeeper.ask_end(id, 'cancel', '') from turnkeeper.turns where state = 'running'")
		}
	},
}

// Whatever makes a turn go on does so at once, in the same process and in another: neither polls.
func TestWithoutPolls(t *testing.T) {
	for name, apart := range map[string]bool{"one process": false, "two processes": true} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, apart)
			for _, name := range slices.Sorted(maps.Keys(ready)) {
				t.Run(name, func(t *testing.T) {
					defer func(all *testing.T) { h.t = all }(h.t)
					h.t = t
					id, happen := ready[name](h)
					happen()
					h.reply(id)
				})
			}
		})
	}
}
