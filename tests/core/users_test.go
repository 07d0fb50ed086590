package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// annas begins each text that is of the user anna.
const annas = "annas-"

// obeys calls the tool that the newest message names, as in `note_read {}`, and replies with its result.
func obeys(r inferencetest.Recorded) inferencetest.Reply {
	messages := r.Chat().Messages
	if messages[len(messages)-1].Role == "tool" {
		return inferencetest.Text("It says: " + env.LastResult(r))
	}
	if name, arguments, ok := strings.Cut(env.NewestMessage(r), " {"); ok {
		return inferencetest.Calls(inferencetest.Call{ID: "call_" + name, Name: name, Arguments: "{" + arguments})
	}
	return inferencetest.Text("Hello.")
}

// TestUsersOfAnAgentDoNotMeet has two users, and nobody, talk to an agent in a conversation of one name, with the same
// keys. What the model gets about anna is never in a request about another: not as history, as a note, or as a stored
// result.
func TestUsersOfAnAgentDoNotMeet(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"agent", "conversation"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", "lane: "+lane, "tools: [mark_none, note_write, note_read]",
				"max_tool_result_chars: 500")
			e.Ledger.SetAnswer("long", strings.Repeat(annas+"answer ", 100))
			e.Model.Then(obeys)
			e.StartWorker()
			say := func(user, body string) string {
				t.Helper()
				flags := []string{"--conversation", "talk", "--key", fmt.Sprint(len(e.Model.Requests()))}
				if user != "" {
					flags = append(flags, "--user", user)
				}
				before := len(e.Model.Requests())
				turn := e.TurnOf(e.Enqueue("clerk", body, flags...))
				for _, request := range e.Model.Requests()[before:] {
					if strings.Contains(string(request.Body), annas) != (user == "anna") {
						t.Errorf("%s: what the model gets about %q: %s", body, user, request.Body)
					}
				}
				return turn.Reply.Body
			}
			wants := func(user, body, want string) {
				t.Helper()
				if got := say(user, body); !strings.Contains(got, want) {
					t.Errorf("%s of %q is answered %q, want %q", body, user, got, want)
				}
			}
			say("anna", `note_write {"name":"n","text":"annas-note"}`)
			wants("anna", `mark_none {"label":"long"}`, "annas-answer")
			handle := env.Query[string](e, "select max(id) from turnkeeper.outputs")
			for _, user := range []string{"bert", ""} {
				wants(user, "Hello.", "Hello.")
				wants(user, `note_read {"name":"n"}`, "There is no note")
				wants(user, `note_read {}`, "There are no notes yet.")
				for _, id := range []string{handle, "turn-2-round-1-tool-1", "call_mark_none"} {
					wants(user, fmt.Sprintf(`get_tool_output {"id":%q,"mode":"raw"}`, id), "It says: ")
				}
				say(user, `note_write {"name":"n","text":"another"}`)
			}
			wants("anna", `note_read {"name":"n"}`, "annas-note")
			if n := env.Query[int](e, "select count(*) from turnkeeper.history_turns where user_name = 'anna'"); n != 3 {
				t.Errorf("anna has %d turns", n)
			}
			e.CheckInvariants()
		})
	}
}
