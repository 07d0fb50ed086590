package env

import (
	"context"
	"encoding/json"
	"fmt"

	"turnkeeper/inference/inferencetest"
)

// A Turn is the part of the output of "turnctl show" that tests use.
type Turn struct {
	ID         int64   `json:"id"`
	State      string  `json:"state"`
	StopReason *string `json:"continuation_stop_reason"`
	Rounds     int     `json:"inference_round_count"`
	Charged    int     `json:"charged_round_count"`
	Executed   int     `json:"executed_tool_call_count"`
	Dispatches int     `json:"dispatch_count"`
	Losses     int     `json:"lost_worker_count"`
	DurationMs *int64  `json:"turn_duration_ms"`
	ErrorClass string  `json:"error_class"`
	Error      string  `json:"error"`
	Message    struct {
		ID       int64  `json:"id"`
		State    string `json:"state"`
		Attempts int    `json:"attempts"`
	} `json:"message"`
	Reply *struct {
		Outcome string `json:"outcome"`
		Body    string `json:"body"`
	} `json:"reply"`
	DispatchLog []struct {
		Outcome  *string `json:"outcome"`
		WorkerID string  `json:"worker_id"`
	} `json:"dispatches"`
	Tokens Usage `json:"tokens"`
	Failed []struct {
		Round int    `json:"round"`
		Class string `json:"error_class"`
		Text  string `json:"text"`
		Usage Usage  `json:"usage"`
	} `json:"failed_attempts"`
	RoundLog []struct {
		Round int        `json:"round"`
		Text  string     `json:"text"`
		Usage Usage      `json:"usage"`
		Calls []ToolCall `json:"tool_calls"`
	} `json:"rounds"`
}

// A Usage is the token usage of model calls.
type Usage struct {
	Input     int64 `json:"input_tokens"`
	Output    int64 `json:"output_tokens"`
	Estimated bool  `json:"estimated"`
}

// A ToolCall is a call in the output of "turnctl show".
type ToolCall struct {
	ID         string `json:"id"`
	WireID     string `json:"tool_call_id"`
	Name       string `json:"name"`
	Arguments  string `json:"arguments"`
	Planned    string `json:"planned_arguments"`
	State      string `json:"state"`
	Starts     int    `json:"starts"`
	Result     string `json:"result"`
	LateResult string `json:"late_result"`
}

// TurnOf waits until a message is closed and returns its newest turn.
func (e *Env) TurnOf(message int64) Turn {
	e.T.Helper()
	e.AwaitClosed(message)
	return e.Show(Query[int64](e, "select turn_id from messages where id = $1", message))
}

// AwaitClosed waits until all of the messages are closed.
func (e *Env) AwaitClosed(ids ...int64) {
	e.T.Helper()
	if len(ids) == 0 {
		return
	}
	e.Await(fmt.Sprintf("the messages %v are closed", ids),
		"select count(*) = cardinality($1::bigint[]) from messages where id = any($1::bigint[]) and closed_at is not null", ids)
}

// Show returns the current state of a turn, as turnctl prints it.
func (e *Env) Show(turn int64) (v Turn) {
	e.T.Helper()
	if !direct(e) {
		return Turnctl[Turn](e, "show", fmt.Sprint(turn))
	}
	text, err := e.store.show(context.Background(), turn)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		e.T.Fatalf("turn %d cannot be shown: %v", turn, err)
	}
	return v
}

// Calls returns the calls of all rounds.
func (turn Turn) Calls() (all []ToolCall) {
	for _, r := range turn.RoundLog {
		all = append(all, r.Calls...)
	}
	return all
}

// CallsByWireID returns the calls by the ID that the model gave them.
func (turn Turn) CallsByWireID() map[string]ToolCall {
	all := map[string]ToolCall{}
	for _, c := range turn.Calls() {
		all[c.WireID] = c
	}
	return all
}

// WantEnd fails the test unless the turn ended like this. stop "null" means no stop reason.
func (e *Env) WantEnd(turn Turn, state, stop string, rounds int) {
	e.T.Helper()
	reason := "null"
	if turn.StopReason != nil {
		reason = *turn.StopReason
	}
	if turn.State != state || reason != stop || turn.Rounds != rounds {
		e.T.Errorf("turn %d ended %s, %s after %d rounds (%s %s); want %s, %s after %d",
			turn.ID, turn.State, reason, turn.Rounds, turn.ErrorClass, turn.Error, state, stop, rounds)
	}
}

// WantReply fails the test unless the reply has exactly this body.
func (e *Env) WantReply(turn Turn, body string) {
	e.T.Helper()
	if turn.Reply == nil || turn.Reply.Body != body {
		e.T.Errorf("turn %d has the reply %+v, want %q", turn.ID, turn.Reply, body)
	}
}

// An Event is an event of a turn, as turnctl and the API print it.
type Event struct {
	Seq  int64
	Type string
	Data struct{ Text, Kind string }
}

// JournalOf returns the journal of a turn as text, except late results.
func (e *Env) JournalOf(turn int64) string {
	e.T.Helper()
	return Query[string](e, `
		select t::text || coalesce((select string_agg(r::text, E'\n' order by r.round) from rounds r where r.turn_id = t.id), '')
			|| coalesce((select string_agg(c.state || c.shown || c.nonce, E'\n' order by c.round, c.ordinal) from calls c where c.turn_id = t.id), '')
			|| coalesce((select string_agg(e::text, E'\n' order by e.seq) from turn_events e where e.turn_id = t.id), '')
			|| coalesce((select string_agg(r::text, E'\n') from replies r where r.turn_id = t.id), '')
		from turns t where t.id = $1`, turn)
}

// WantNothingMore fails the test if a closed message is handled again. It sends a second message to
// clerk and checks that the model gets only its request after the requests so far.
func (e *Env) WantNothingMore(requests int) {
	e.T.Helper()
	e.Model.Then(Rounds(inferencetest.Text("later")))
	e.Exec("update leases set not_before = null")
	later := e.TurnOf(e.Enqueue("clerk", "And now?"))
	e.WantReply(later, "later")
	probes := 0 // the worker asks a model that failed a lane's message with a request of its own first
	for _, r := range e.Model.Requests()[requests:] {
		if NewestMessage(r) == "Reply with ok." {
			probes++
		}
	}
	e.WantRequests(requests + probes + 1)
	if n := Query[int](e, "select count(*) from turns"); n != 2 {
		e.T.Errorf("%d turns, want 2", n)
	}
}
