package core_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// An ask is what turnctl prints of one.
type ask struct {
	ID        int64
	State     string
	Kind      string
	Tool      string
	Hash      string
	Arguments map[string]any
	Reason    string
	Answered  string `json:"answered_by"`
	Channel   string
	Path      []struct {
		Agent string
		Call  string
	}
}

const askRule = `approve: {mark_once: 'args.label != "free" ? ask("the label is not free") : allow'}`

// awaitAsk waits until exactly one ask is open, and its turn waits, and returns it.
func awaitAsk(e *env.Env) ask {
	e.T.Helper()
	e.Await("one ask is open",
		"select count(*) = 1 from asks a join turns t on t.id = a.turn_id where a.state = 'open' and t.state = 'waiting'")
	return env.Turnctl[[]ask](e, "asks")[0]
}

// answerSQL answers an ask with the documented SQL function.
const answerSQL = "select turnkeeper.answer_ask($1, $2, 'bob')"

// A turn asks, its worker is killed, other conversations go on, and two channels answer at once after a restart. The
// call runs once.
func TestACallWaitsForAPerson(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if !strings.HasPrefix(env.NewestMessage(r), "Pay") {
			return inferencetest.Text("Yes.")
		}
		return env.Rounds(env.MarkerReply("mark_once", "invoice"), inferencetest.Text("Paid."))(r)
	})
	w := e.StartWorker("--worker-slots", "1")
	paid := e.Enqueue("clerk", "Pay it.")
	a := awaitAsk(e)
	if a.Kind != "approve" || a.Tool != "mark_once" || a.Arguments["label"] != "invoice" ||
		a.Reason != "the label is not free" {
		t.Errorf("the ask is %+v", a)
	}
	wantNothingHeld(e)
	later := e.Enqueue("clerk", "Later in the same conversation.")
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Hello?", "--conversation", "other")), "succeeded", "none", 1)
	e.Kill(w)
	e.StartWorker("--worker-slots", "1")
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Still there?", "--conversation", "third")), "succeeded", "none", 1)
	if state := env.Query[string](e, "select state from messages where id = $1", later); state != "waiting" {
		t.Errorf("the next message of the conversation is %s", state)
	}
	e.Ledger.WantRuns("invoice", 0)
	for message, want := range map[int64]string{
		paid:  "turn 1 waits for a person to answer 1 ask",
		later: "turn 1, of the same conversation, waits for a person",
	} {
		if r := e.Turnctl("explain", "--message", fmt.Sprint(message)); !strings.Contains(r.Stdout, want) {
			t.Errorf("turnctl explain --message %d prints\n%s%s", message, r.Stdout, r.Stderr)
		}
	}

	var both sync.WaitGroup
	var bySQL error
	both.Go(func() { _, bySQL = env.TryQuery[string](e, answerSQL, a.ID, "approved") })
	byTurnctl := e.Turnctl("asks", "approve", fmt.Sprint(a.ID), "--as", "ann", "--hash", a.Hash)
	both.Wait()
	switch { // the second one learns who was first
	case bySQL == nil:
		if byTurnctl.Code != 6 || !strings.Contains(byTurnctl.Stderr, "the ask is closed: it was approved by bob") {
			t.Errorf("the second answer exits with %d\n%s", byTurnctl.Code, byTurnctl.Stderr)
		}
	case byTurnctl.Code != 0 || !strings.Contains(bySQL.Error(), "the ask is closed: it was approved by ann"):
		t.Errorf("answering by SQL: %v; by turnctl: %d\n%s", bySQL, byTurnctl.Code, byTurnctl.Stderr)
	}
	turn := e.TurnOf(paid)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "Paid.")
	e.Ledger.WantRuns("invoice", 1)
	e.WantEnd(e.TurnOf(later), "succeeded", "none", 1)
	if r := e.Turnctl("asks", "deny", fmt.Sprint(a.ID)); r.Code != 6 || !strings.Contains(r.Stderr,
		"the ask is closed: it was approved by ") {
		t.Errorf("another answer exits with %d\n%s", r.Code, r.Stderr)
	}
}

// Of two different answers at once, one is refused, and the call does what the other said.
func TestTwoPeopleDisagree(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule, "lane: conversation")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
	e.StartWorker()
	const turns = 10
	for i := range turns {
		e.Enqueue("clerk", "Do it.", "--conversation", fmt.Sprint("c", i))
	}
	e.Await("all ask",
		"select count(*) = $1 from turns t where state = 'waiting' and exists (select from asks where turn_id = t.id and state = 'open')", turns)
	wins := 0
	for _, a := range env.Turnctl[[]ask](e, "asks") {
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i, decision := range []string{"approved", "denied"} {
			both.Go(func() { _, errs[i] = env.TryQuery[string](e, answerSQL, a.ID, decision) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("both answers of ask %d gave %v", a.ID, errs)
		}
		if errs[0] == nil {
			wins++
		}
	}
	e.Await("all are answered", "select count(*) = $1 from replies", turns)
	e.Ledger.WantRuns("a", wins)
}

// An answer counts when the application's transaction commits.
func TestAnAnswerInATransaction(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
	e.StartWorker()
	message := e.Enqueue("clerk", "Do it.")
	a := awaitAsk(e)
	ctx := context.Background()
	tx, err := e.DB.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, answerSQL, a.ID, "approved"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	// A later tick grants another turn, and not this one.
	other := e.Enqueue("clerk", "Do it too.", "--conversation", "other")
	e.Await("both ask",
		"select count(*) = 2 from asks a join turns t on t.id = a.turn_id where a.state = 'open' and t.state = 'waiting'")
	e.Ledger.WantRuns("a", 0)
	e.Exec("select turnkeeper.answer_ask(id, 'denied', 'bob') from asks where state = 'open'")
	e.AwaitClosed(message, other)
	e.Ledger.WantRuns("a", 0)
}

// The arguments that a person puts in are those that run, and the model is told.
func TestAPersonEditsACall(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule)
	e.Model.Then(env.ReportResult(env.MarkerReply("mark_once", "a")))
	e.StartWorker()
	message := e.Enqueue("clerk", "Do it.")
	a := awaitAsk(e)
	id := fmt.Sprint(a.ID)
	for _, args := range []string{"", "-"} { // nothing is on standard input
		if r := e.Turnctl("asks", "approve", id, "--arguments", args); r.Code != 2 || !strings.Contains(r.Stderr,
			"--arguments: they are empty") {
			t.Fatalf("--arguments %q: %d %s", args, r.Code, r.Stderr)
		}
	}
	if r := e.Turnctl("asks", "answer", id, "b"); r.Code != 6 || !strings.Contains(r.Stderr,
		"an ask of kind approve can be approved or denied, not answered") {
		t.Fatalf("%d %s", r.Code, r.Stderr)
	}
	if r := e.Turnctl("asks", "approve", id, "--arguments", `{"label":7}`); r.Code != 2 {
		t.Errorf("arguments of another type exit with %d\n%s", r.Code, r.Stderr)
	}
	r := e.Turnctl("asks", "approve", id, "--as", "ann", "--arguments", `{"label":"b"}`, "--comment", "b is better")
	if r.Code != 0 || !strings.Contains(r.Stdout, `-   "label": "a"`) || !strings.Contains(r.Stdout,
		`+   "label": "b"`) {
		t.Errorf("approving exits with %d and prints\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.Ledger.WantRuns("a", 0)
	e.Ledger.WantRuns("b", 1)
	for _, want := range []string{`It ran with: {"label":"b"}]`, "Comment: b is better", "marked b"} {
		if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
			t.Errorf("the model was not told %q: %+v", want, turn.Reply)
		}
	}
	if shown := e.Turnctl("asks", "show", id).Stdout; !strings.Contains(shown, "by ann (turnctl)") ||
		!strings.Contains(shown, `+   "label": "b"`) {
		t.Errorf("turnctl asks show prints\n%s", shown)
	}
}

// A worker is killed while a call runs with the arguments that a person put in. Whatever reports the call of unknown
// outcome reports them, with the plan beside them.
func TestAPersonEditsACallOfALostWorker(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule, "max_rounds: 5")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Pay it." {
			return env.Rounds(env.MarkerReply("mark_once", "900"), inferencetest.Text("Done."))(r)
		}
		return env.Rounds(env.MarkerReply("mark_once", "900"), env.MarkerReply("mark_once", "90"),
			inferencetest.Text("Done again."))(r)
	})
	e.Ledger.Hold("90")
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Pay it.")
	e.Exec("select turnkeeper.answer_ask($1, 'approved', 'bob', edited => '{ \"label\": \"90\" }')", awaitAsk(e).ID)
	e.Ledger.Await("90", 1)
	e.Kill(w)
	e.Ledger.Release()
	w = e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 2)
	call := turn.Calls()[0]
	if call.State != "unknown" || call.Arguments != `{"label":"90"}` || call.Planned != `{"label":"900"}` ||
		!strings.Contains(call.Result, `It ran with: {"label":"90"}]`) {
		t.Errorf("turnctl show: %+v", call)
	}
	if text := e.Turnctl("show", fmt.Sprint(turn.ID), "-o", "text").Stdout; !strings.Contains(text,
		`mark_once {"label":"90"}`) || !strings.Contains(text, `planned: {"label":"900"}`) {
		t.Errorf("turnctl show prints\n%s", text)
	}
	for path, want := range map[string]string{
		"/v1/turns/": `"arguments":"{\"label\":\"90\"}","planned_arguments":"{\"label\":\"900\"}"`,
		"/turns/":    `<pre class="said-text code">{&#34;label&#34;:&#34;90&#34;}</pre>`,
	} {
		if body := get(t, w.APIURL()+path+fmt.Sprint(turn.ID)); !strings.Contains(body, want) {
			t.Errorf("%s lacks %s:\n%s", path, want, body)
		}
	}
	documented := unknownCallsSQL(t)
	got := env.Query[string](e, "select arguments || ' ' || planned_args from ("+documented+") q")
	if want := `{"label":"90"} {"label":"900"}`; got != want {
		t.Errorf("the documented SQL gives %s, want %s", got, want)
	}

	// The same call that ran is a repeat, and the planned one is not.
	again := e.Enqueue("clerk", "Pay it again.")
	e.Exec("select turnkeeper.answer_ask($1, 'approved', 'bob', edited => '{\"label\":\"90\"}')", awaitAsk(e).ID)
	turn = e.TurnOf(again)
	e.WantEnd(turn, "succeeded", "none", 3)
	if calls := turn.Calls(); calls[0].State != "succeeded" || calls[1].State != "skipped" {
		t.Errorf("the calls are %+v", calls)
	}
	e.Ledger.WantRuns("90", 2)
	e.Ledger.WantRuns("900", 0)
}

// unknownCallsSQL returns the statement of docs/sql.md that lists calls of unknown outcome.
func unknownCallsSQL(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "Calls of unknown outcome:")
	_, rest, begins := strings.Cut(rest, "```sql\n")
	statement, _, ends := strings.Cut(rest, ";\n```")
	if !found || !begins || !ends {
		t.Fatal("docs/sql.md has no statement for calls of unknown outcome")
	}
	return statement
}

// get returns the body of a page or an object of the API.
func get(t testing.TB, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", url, res.Status, err, body)
	}
	return string(body)
}

// A model that repeats its call with one byte changed is stopped again.
func TestAnApprovalIsForOneCall(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, askRule, "max_rounds: 5")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), env.MarkerReply("mark_once", "b"),
		inferencetest.Text("Done.")))
	e.StartWorker()
	message := e.Enqueue("clerk", "Do it.")
	first := awaitAsk(e)
	e.Exec(answerSQL, first.ID, "approved")
	e.Ledger.Await("a", 1)
	second := awaitAsk(e)
	if second.ID == first.ID || second.Arguments["label"] != "b" {
		t.Errorf("the second ask is %+v", second)
	}
	if r := e.Turnctl("asks", "deny", fmt.Sprint(second.ID), "--comment", "not twice"); r.Code != 0 {
		t.Errorf("denying exits with %d\n%s", r.Code, r.Stderr)
	}
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	if result := turn.Calls()[1].Result; !strings.Contains(result, "Comment: not twice") {
		t.Errorf("the model was told %q", result)
	}
	e.Ledger.WantRuns("a", 1)
	e.Ledger.WantRuns("b", 0)
}

// An ask of a sub-agent's sub-agent names the agents above it, and its parents wait.
func TestAGrandchildAsks(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("boss", "sub_agents: [scout]", "sub_agent_timeout: 1m")
	e.WriteAgent("scout", "sub_agents: [runner]", "sub_agent_timeout: 1m")
	e.WriteAgent("runner", env.MarkerTools, askRule)
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":   env.ReportResult(env.Spawn("scout find it")),
		"scout":  env.ReportResult(env.Spawn("runner fetch it")),
		"runner": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("fetched")),
	}))
	e.StartWorker("--worker-slots", "1")
	message := e.Enqueue("boss", "Get it done.")
	e.AwaitWaiting(3)
	a := awaitAsk(e)
	var path []string
	for _, step := range a.Path {
		path = append(path, step.Agent+" "+step.Call)
	}
	if got := strings.Join(path, ", "); got != "boss round-1-tool-1, scout round-1-tool-1, runner " {
		t.Errorf("the path is %s", got)
	}
	if soon := env.Query[int](e,
		"select count(*) from spawned_calls where deadline < clock_timestamp() + interval '72 hours'"); soon != 0 {
		t.Errorf("%d parents give up before the ask expires", soon)
	}
	e.Exec(answerSQL, a.ID, "approved")
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	if turn.Reply == nil || !strings.HasSuffix(turn.Reply.Body, "fetched") {
		t.Errorf("the reply is %+v", turn.Reply)
	}
	e.Ledger.WantRuns("a", 1)
}

// A person answers a question of the model.
func TestAModelAsksAPerson(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [ask_person]")
	question := inferencetest.Call{ID: "call_q", Name: "ask_person",
		Arguments: `{"question":"Which colour?","options":["blue","red"]}`}
	e.Model.Then(env.ReportResult(inferencetest.Calls(question)))
	e.StartWorker()
	message := e.Enqueue("clerk", "Choose.")
	a := awaitAsk(e)
	if a.Kind != "question" || a.Reason != "Which colour?" {
		t.Errorf("the ask is %+v", a)
	}
	if r := e.Turnctl("asks", "answer", fmt.Sprint(a.ID), "green"); r.Code != 2 {
		t.Errorf("an answer that is no option exits with %d\n%s", r.Code, r.Stderr)
	}
	if r := e.Turnctl("asks", "answer", fmt.Sprint(a.ID), "blue"); r.Code != 0 {
		t.Errorf("the answer exits with %d\n%s", r.Code, r.Stderr)
	}
	e.WantReply(e.TurnOf(message), "I heard: blue")
}

// After a worker is lost during a call of effect once, a person says whether the call happened.
func TestAPersonSettlesALostCall(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		state, stop, call string
		runs              int
	}{
		"happened":       {"succeeded", "none", "succeeded", 1},
		"did_not_happen": {"succeeded", "none", "succeeded", 2},
		"unknown":        {"degraded", "worker_lost", "unknown", 1},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, "on_unknown: ask")
			e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
			e.Ledger.Hold("a")
			w := e.StartWorker()
			message := e.Enqueue("clerk", "Do it.")
			e.Ledger.Await("a", 1)
			e.Kill(w)
			e.Ledger.Release()
			e.StartWorker()
			a := awaitAsk(e)
			if a.Kind != "settle" || a.Tool != "mark_once" || a.Arguments["label"] != "a" {
				t.Errorf("the ask is %+v", a)
			}
			wantNothingHeld(e)
			if r := e.Turnctl("asks", "deny", fmt.Sprint(a.ID)); r.Code == 0 {
				t.Error("the ask was denied")
			}
			if r := e.Turnctl("asks", "answer", fmt.Sprint(a.ID), answer, "--comment", "I looked"); r.Code != 0 {
				t.Errorf("the answer exits with %d\n%s", r.Code, r.Stderr)
			}
			turn := e.TurnOf(message)
			e.WantEnd(turn, want.state, want.stop, 2)
			if call := turn.Calls()[0]; call.State != want.call {
				t.Errorf("the call is %s, want %s", call.State, want.call)
			}
			e.Ledger.WantRuns("a", want.runs)
			if starts := env.Query[int](e, "select count(*) from call_starts"); starts != want.runs {
				t.Errorf("%d starts are on record, want %d", starts, want.runs)
			}
		})
	}
}

// A person lets a turn go on after its budget, or not. Each approval allows as much again.
func TestAPersonDecidesAboutABudget(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		state, stop string
		rounds      int
		runs        int
	}{
		"approve": {"succeeded", "none", 3, 2},
		"deny":    {"degraded", "budget", 1, 1},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 5", "budget: {turn_calls: 1, on_limit: ask}")
			e.Model.Then(env.Rounds(env.MarkerReply("mark_keyed", "a"), env.MarkerReply("mark_keyed", "b"),
				inferencetest.Text("Done.")))
			e.StartWorker()
			message := e.Enqueue("clerk", "Do it.")
			asked := 0
			for e.Ledger.Await("a", 1); asked < 2; {
				a := awaitAsk(e)
				asked++
				if a.Kind != "budget" || a.Reason == "" {
					t.Errorf("the ask is %+v", a)
				}
				if r := e.Turnctl("asks", answer, fmt.Sprint(a.ID)); r.Code != 0 {
					t.Fatalf("%s exits with %d\n%s", answer, r.Code, r.Stderr)
				}
				if answer == "deny" {
					break
				}
			}
			e.WantEnd(e.TurnOf(message), want.state, want.stop, want.rounds)
			e.Ledger.WantRuns("a", 1)
			e.Ledger.WantRuns("b", want.runs-1)
		})
	}
}
