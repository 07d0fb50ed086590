package faults_test

import (
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A labelled story is how content with labels reaches a model that obeys it. In each part messages are sent, and
// workers are killed at the points, in order: after each kill another worker goes on to the next point. The labels that
// the model's last calls have come from one place only.
type labelledStory struct {
	name     string
	settings []string // of the clerk
	parts    []labelledPart
}

type labelledPart struct {
	conversation string   // empty: the default
	messages     []string // for env.Gullible
	points       []string
	// onlySummaries removes all labels but those of summaries, before the part.
	onlySummaries bool
}

// page makes a mark whose answer is labelled, and is an injected text.
const page = `mark_none {"label":"page"}`

// asking are the points of a turn that asks: before and after the one write of plan and asks, and before the write that
// notes an answer and starts the call.
var asking = []string{"ask.open.before", "finish.sent", "work.loaded", "ask.seen.before"}

func labelledStories() []labelledStory {
	filler := strings.Repeat("a long word ", 130)
	one := func(points []string, messages ...string) []labelledPart {
		return []labelledPart{{messages: messages, points: append(points, asking...)}}
	}
	far := `mark_far_none {"label":"page"}` + "\nwait_for_tool_output {}\n" +
		`get_tool_output {"id":"$OUTPUT","mode":"raw"}` + "\nobey"
	return []labelledStory{
		{name: "note", parts: []labelledPart{
			{
				messages: []string{page + "\n" + `note_write {"name":"n","text":"$TEXT"}`},
				points: []string{"call.results.sent", "call.transact.before", "call.transact.ran",
					"call.transact.sent", "finish.sent"},
			},
			{conversation: "another", messages: []string{`note_read {"name":"n"}` + "\nobey"},
				points: append([]string{"plan.sent"}, asking...)},
		}},
		{name: "message", settings: []string{"inbox_labels: [untrusted, private]"}, parts: one(
			[]string{"turn.start", "model.after"}, "obey\n"+env.Injected(1))},
		{name: "result", parts: one(
			[]string{"call.reads_done", "call.results.before", "call.results.sent", "model.after"}, page+"\nobey")},
		{name: "history", parts: one(
			[]string{"call.reads_done", "call.results.sent", "finish.before", "finish.sent", "turn.start"},
			page+"\nrepeat", "obey")},
		{name: "reply", parts: one( // the spawn, then the sub-agent, then the parent
			[]string{"call.start.before", "plan.sent", "call.reads_done", "call.results.sent", "finish.before",
				"finish.sent", "call.results.before", "call.results.sent"},
			`spawn_agent {"agent":"scout","task":`+env.Quote(page+"\nrepeat")+"}\nobey")},
		{name: "task", parts: []labelledPart{{
			points: []string{"call.results.sent", "call.start.before", "plan.sent", "ask.open.before",
				"ask.seen.before"},
			messages: []string{page + "\n" + `spawn_agent {"agent":"scout","task":"obey\n$TEXT"}`},
		}}},
		{name: "detached call", parts: one(
			[]string{"call.start.before", "detached.claimed", "detached.ran", "call.results.before",
				"call.results.sent", "call.reads_done"}, far)},
		{name: "detached call that arrives", parts: []labelledPart{{points: []string{"detached.arrive.sent"},
			messages: []string{far}}}},
		{name: "summary", settings: []string{"context_window: 5000", "max_output_tokens: 500"}, parts: []labelledPart{
			{
				messages: append([]string{page + "\nrepeat"}, slices.Repeat([]string{filler}, 6)...),
				points:   append([]string{"finish.sent"}, slices.Repeat([]string{"plan.before", "finish.sent"}, 6)...),
			},
			{onlySummaries: true, messages: []string{"obey"}, points: append([]string{"turn.start"}, asking...)},
		}},
	}
}

// Workers are killed at each point around the writing of labels. In the end the model, which obeys an injected text,
// has run what a person approved, once, and nothing before.
func TestKillsAroundLabels(t *testing.T) {
	t.Parallel()
	for _, story := range testrun.Sample(labelledStories(), 1) {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			e := env.NewCrash(t, env.Crash{Point: "none"})
			e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+env.LabelSettings)
			const tools = "tools: [mark_none, mark_keyed, mark_once, mark_far_none, note_write, note_read]\nnotes: agent\ndurability: step"
			e.WriteAgent("clerk", append(story.settings, tools, "sub_agents: [scout]", "max_rounds: 8")...)
			e.WriteAgent("scout", tools, "description: Reads.")
			e.RegisterFile("clerk")
			e.RegisterFile("scout")
			e.Model.Then(env.Gullible)
			e.Ledger.SetAnswer("page", env.Injected(1))
			person := e.StartPerson()
			var messages []int64
			for _, part := range story.parts {
				e.AwaitClosed(messages...)
				if part.onlySummaries {
					e.Exec("delete from labels where kind in ('call', 'turn')")
				}
				for _, message := range part.messages {
					messages = append(messages, env.Query[int64](e.Env, "select turnkeeper.enqueue('clerk', $1, $2)",
						message, part.conversation))
				}
				for _, point := range part.points {
					if !killAt(e, point) {
						break // what follows says what went wrong
					}
				}
			}
			e.StartWorker(labelFlags...)
			e.AwaitClosed(messages...)
			person.Stop()
			person.WantOnlyApproved("mark_once", "mark_keyed")
			e.Ledger.WantRuns(env.PayLabel(1), 1)
			e.Ledger.WantRuns(env.SendLabel(1), 1)
			if asks := env.Query[int](e.Env, "select count(*) from asks where rule = 'labels'"); asks != 2 {
				t.Errorf("%d asks, want 2", asks)
			}
		})
	}
}

// labelFlags allow any number of kills. With one slot no other turn goes on while one is paused at a point.
var labelFlags = append([]string{"--max-dispatches", "100", "--worker-slots", "1"}, crashFlags...)

// killAt starts a worker, and kills it at a point. It fails the test and returns false if the worker does all the rest
// without reaching the point.
func killAt(e *env.CrashEnv, point string) (reached bool) {
	e.T.Helper()
	hook := env.NewHookServer(e.T, point)
	worker := env.StartProcess(e.T, "worker killed at "+point, e.Dir, append(e.Environ(), hook.Environ()...),
		env.Binary(e.T, "markerworker"), labelFlags...)
	e.Poll("a worker reaches "+point, func() (over bool) {
		sent := strings.HasSuffix(point, ".sent") // its write can be seen before the pause
		over = !sent && env.Query[bool](e.Env, "select not exists (select from messages where closed_at is null)")
		reached = hook.Paused()
		return reached || over
	})
	if !reached {
		e.T.Errorf("all messages are closed, and no worker reached %s", point)
	}
	e.Kill(worker)
	return reached
}
