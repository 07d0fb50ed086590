package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// rebuiltRequest returns the request of a round from "turnctl show --request".
func rebuiltRequest(e *env.Env, turn int64, round int) env.Result {
	e.T.Helper()
	return e.Turnctl("show", fmt.Sprint(turn), "--request", fmt.Sprint(round))
}

// Every request of a conversation, with pages, dropped results, earlier turns and an announced last round, is
// rebuilt from the database exactly as the endpoint got it.
func TestRequestsAreRebuiltByteForByte(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 8", "max_tool_calls: 100", "max_tool_result_chars: 3000",
		"context_window: 8000", "summarise: false", "max_output_tokens: 500", "temperature: 0.5")
	odd := "<a href=\"x\">&amp;</a> \u2028 日本語 👩‍👩‍👧 \\ \"quoted\" \t"
	for i, label := range []string{"a", "b", "c", "d"} {
		e.Ledger.SetAnswer(label, strings.Repeat(fmt.Sprintf("%d %s ", i, odd), 150))
	}
	e.Ledger.SetAnswer("small", "{\"n\": 1, \"z\": \"<&>\"}")
	page := func(id string) inferencetest.Call {
		return inferencetest.Call{ID: "page_" + id, Name: "get_continuation",
			Arguments: `{"tool_call_id":"call_` + id + `"}`}
	}
	say := inferencetest.Message
	script := env.Rounds(
		say("I look <first> & then "+odd, inferencetest.Call{ID: "call_a", Name: "mark_none",
			Arguments: `{"label":"a"}`}, inferencetest.Call{ID: "call_s", Name: "mark_once",
			Arguments: `{ "label" : "small" }`}),
		inferencetest.Calls(page("a")),
		inferencetest.Calls(inferencetest.Call{ID: "call_b", Name: "mark_none", Arguments: `{"label":"b"}`},
			inferencetest.Call{ID: "call_x", Name: "no_such_tool", Arguments: `{"q":[1,`}),
		inferencetest.Calls(inferencetest.Call{ID: "call_c", Name: "mark_keyed", Arguments: `{"label":"c"}`}),
		inferencetest.Calls(inferencetest.Call{ID: "call_d", Name: "mark_none", Arguments: `{"label":"d"}`}),
		inferencetest.Calls(inferencetest.Call{ID: "call_e", Name: "mark_none", Arguments: `{"label":"a"}`}),
		inferencetest.Calls(inferencetest.Call{ID: "call_f", Name: "mark_none", Arguments: `{"label":"small"}`}),
		inferencetest.Calls(inferencetest.Call{ID: "call_g", Name: "mark_none", Arguments: `{"label":"b"}`}),
		inferencetest.Text("That is "+odd),
	)
	e.Model.Then(script)
	e.StartWorker()

	var sent []inferencetest.Recorded
	var turns []env.Turn
	for _, body := range []string{"First, " + odd, "Second.", strings.Repeat("Third. ", 300)} {
		before := len(e.Model.Requests())
		turn := e.TurnOf(e.Enqueue("clerk", body))
		turns = append(turns, turn)
		asked := e.Model.Requests()[before:]
		if len(asked) != turn.Rounds || turn.Rounds < 8 {
			t.Fatalf("turn %d had %d rounds, and %d requests were sent", turn.ID, turn.Rounds, len(asked))
		}
		sent = append(sent, asked...)
	}
	all := ""
	for _, turn := range turns {
		for round := 1; round <= turn.Rounds; round++ {
			got := rebuiltRequest(e, turn.ID, round)
			if got.Code != 0 || !bytes.Equal([]byte(got.Stdout), sent[0].Body) {
				t.Fatalf("round %d of turn %d: exit code %d\n%s\nrebuilt %s\nsent    %s", round, turn.ID, got.Code,
					got.Stderr, got.Stdout, sent[0].Body)
			}
			all += got.Stdout
			sent = sent[1:]
		}
	}
	for what, sign := range map[string]string{
		"a page":                   "chars remaining",
		"a result that gave way":   "dropped to fit the context window; to read it again call get_tool_output",
		"turns that are not shown": "of this conversation", "the last round": "tools can no longer be called",
		"an id for a repeated one": "round-1-tool-1",
	} {
		if !strings.Contains(all, sign) {
			t.Errorf("no request had %s", what)
		}
	}
	checkUnavailableRequests(e, turns[0].ID)
}

// checkUnavailableRequests fails the test unless turnctl reports the requests that it cannot rebuild, with an
// exit code.
func checkUnavailableRequests(e *env.Env, turn int64) {
	e.T.Helper()
	id := fmt.Sprint(turn)
	for _, c := range []struct {
		what, sql string
		args      []string
		code      int
		says      string
	}{
		{"another result",
			`update turnkeeper.journal set results = (select json_agg(case when r ->> 'round' = '1' and r ->> 'ordinal' = '1'
			then (r::jsonb || '{"shown": "[redacted]"}')::json else r end) from json_array_elements(results) r) where turn_id = $1 and results is not null`, []string{"show", id, "--request", "2"}, 1, "this differs from the sent request"},
		{"no part",
			changedRecipe(2, "jsonb_set(r, '{form}', to_jsonb(repeat('0', 64)))"),
			[]string{"show", id, "--request", "2"}, 1, "a part of the request is not stored"},
		{"a newer release",
			changedRecipe(3, "jsonb_set(r, '{v}', '99')"),
			[]string{"show", id, "--request", "3"}, 1, "written by another release"},
		{"no recipe", changedRecipe(4, "null::jsonb"),
			[]string{"show", id, "--request", "4"}, 1, "the round has no recipe of its request"},
		{"no such round", "select $1::bigint", []string{"show", id, "--request", "99"}, 3, "has no answered round 99"},
		{"round 0", "select $1::bigint", []string{"show", id, "--request", "0"}, 3, "has no answered round 0"},
	} {
		e.Exec(c.sql, turn)
		if r := e.Turnctl(c.args...); r.Code != c.code || !strings.Contains(r.Stderr, c.says) {
			e.T.Errorf("%s: exit code %d\n%s", c.what, r.Code, r.Stderr)
		}
	}
	for round := 2; round <= 3; round++ { // undo the changes that turns depend on
		e.Exec(changedRecipe(round, "null::jsonb"), turn)
	}
}

// changedRecipe returns the SQL that changes the recipe r of a round of turn $1, which may be in the row of a later
// answer of the same write.
func changedRecipe(round int, to string) string {
	return fmt.Sprintf(`update turnkeeper.journal j set
		request = case when round = %[1]d then (select (%[2]s)::json from (select request::jsonb as r) x) else request end,
		earlier = (select json_agg(case when e ->> 'round' = '%[1]d' then jsonb_set(e::jsonb, '{request}',
			coalesce((select %[2]s from (select e::jsonb -> 'request' as r) x), 'null'))::json else e end)
			from json_array_elements(earlier) e)
		where turn_id = $1`, round, to)
}

// Requests to a provider without HTTP are rebuilt too.
func TestARequestToTheDemoProviderIsRebuilt(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("shop", "model: demo/script", "tools: [clock]")
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("shop", "What time is it? <&>"))
	for round := 1; round <= turn.Rounds; round++ {
		view := env.Turnctl[struct {
			Exact bool   `json:"exact"`
			Body  string `json:"body"`
		}](e, "show", fmt.Sprint(turn.ID), "--request", fmt.Sprint(round))
		if !view.Exact || !strings.Contains(view.Body, "What time is it? <&>") || !json.Valid([]byte(view.Body)) {
			t.Errorf("round %d: %+v", round, view)
		}
	}
}

// A model call summarises turns that do not fit, once. Requests with the summary are rebuilt with it.
func TestRequestsWithASummaryAreRebuilt(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "context_window: 6000", "max_output_tokens: 500")
	isSummary := func(r inferencetest.Recorded) bool {
		return strings.HasPrefix(r.Chat().Messages[0].Text(), "You condense the beginning of a conversation")
	}
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if isSummary(r) {
			return inferencetest.Text("They <greeted> each other & went on.")
		}
		return inferencetest.Text(strings.Repeat("Something long. ", 130))
	})
	e.StartWorker()
	summaries, last := 0, int64(0)
	for n := range 20 {
		before := len(e.Model.Requests())
		turn := e.TurnOf(e.Send("clerk", fmt.Sprintf("Say %d.", n)))
		asked := e.Model.Requests()[before:]
		for _, r := range asked[:len(asked)-1] {
			if !isSummary(r) {
				t.Errorf("turn %d was asked twice", turn.ID)
			}
			summaries++
			checkDifference(e, turn.ID, last)
		}
		last = turn.ID
		sent := asked[len(asked)-1]
		if got := rebuiltRequest(e, turn.ID, 1); got.Code != 0 || got.Stdout != string(sent.Body) {
			t.Errorf("turn %d: exit code %d\n%s\nrebuilt %s\nsent    %s", turn.ID, got.Code, got.Stderr,
				got.Stdout, sent.Body)
		}
		if summarised := strings.Contains(sent.Chat().Messages[0].Text(),
			"They <greeted> each other & went on."); summarised != (summaries > 0) {
			t.Errorf("turn %d: after %d summaries, the request has one: %v", turn.ID, summaries, summarised)
		}
	}
	if stored := env.Query[int](e, "select count(*) from summaries"); stored != summaries || summaries < 2 ||
		summaries > 6 {
		t.Errorf("%d summaries were made, %d are stored", summaries, stored)
	}
}

// checkDifference checks what is told of where the request of a turn, the first with another summary, differs from that
// of the turn before it.
func checkDifference(e *env.Env, turn, before int64) {
	e.T.Helper()
	said := strings.Join(strings.Fields(e.Turnctl("explain", fmt.Sprint(turn)).Stdout), " ")
	with := fmt.Sprintf("Compared with request 1 of turn %d, the system prompt differs from byte", before)
	if !strings.Contains(said, with) || !strings.Contains(said, "earlier turns of this conver") {
		e.T.Errorf("explain does not say %q and the note about what is not shown:\n%s", with, said)
	}
	view := env.Turnctl[struct {
		Compared struct {
			TurnID, Round int64
			Repeated      *int `json:"repeated_messages"`
			Differs       struct {
				Kind, After string
				Byte        int
			} `json:"first_difference"`
		}
	}](e, "show", fmt.Sprint(turn), "--request", "1").Compared
	if view.Differs.Kind != "system" || view.Differs.Byte < 2 || view.Repeated == nil || *view.Repeated != 0 ||
		!strings.Contains(said, fmt.Sprintf("from byte %d on", view.Differs.Byte)) {
		e.T.Errorf("the request of turn %d is compared as %+v, and explained as %s", turn, view, said)
	}
}

// Requests of a lost worker, and those after a verdict, are rebuilt too. Of several attempts, the answered one
// is rebuilt.
func TestRequestsOfALostWorkersTurnAreRebuilt(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 1000")
	e.Ledger.SetAnswer("a", strings.Repeat("A long result. ", 500))
	e.Ledger.Hold("b")
	busy := inferencetest.Fault(503, "overloaded", "busy")
	var asked atomic.Int64
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		switch asked.Add(1) {
		case 1:
			return busy
		case 2:
			return env.MarkerReply("mark_none", "a")
		case 3:
			return env.MarkerReply("mark_once", "b")
		case 4:
			return busy
		}
		return inferencetest.Text("It may be done.")
	})
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Do both.")
	e.Ledger.Await("b", 1)
	e.StartWorker()
	e.Kill(first)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 3)
	all := e.WantRequests(5)
	for round, sent := range []inferencetest.Recorded{all[1], all[2], all[4]} {
		if got := rebuiltRequest(e, turn.ID, round+1); got.Code != 0 || got.Stdout != string(sent.Body) {
			t.Errorf("round %d: exit code %d\n%s\nrebuilt %s\nsent    %s", round+1, got.Code, got.Stderr,
				got.Stdout, sent.Body)
		}
	}
	if !strings.Contains(string(all[4].Body), "outcome unknown") {
		t.Error("the last request does not hold the verdict")
	}
}
