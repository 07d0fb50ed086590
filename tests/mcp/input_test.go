package mcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/agentturn"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// An ask is what turnctl prints of one.
type ask struct {
	ID        int64
	Kind      string
	Tool      string
	Arguments map[string]any
	Schema    map[string]any
	Reason    string
}

// awaitAsk waits until exactly one ask is open, and its turn waits, and returns it.
func awaitAsk(e *env.Env) ask {
	e.T.Helper()
	e.Await("one ask is open",
		"select count(*) = 1 from asks a join turns t on t.id = a.turn_id where a.state = 'open' and t.state = 'waiting'")
	return env.Turnctl[[]ask](e, "asks")[0]
}

// addBookingServer adds a server whose tool asks for input.
func addBookingServer(e *env.Env, more string) {
	e.T.Helper()
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+fmt.Sprintf(
		"mcp_servers:\n  trains:\n    command: [%s, %s]\n%s",
		env.Quote(env.Binary(e.T, "bookingserver")), env.Quote(filepath.Join(e.Dir, "ledger.txt")), more))
	e.WriteAgent("clerk", "mcp_servers: {trains: [book]}")
	e.Model.Then(env.Rounds(inferencetest.Calls(
		inferencetest.Call{ID: "book", Name: "trains__book", Arguments: `{"train":"IC 1"}`},
	), inferencetest.Text("Done.")))
}

// wantLedger compares the ledger of the server.
func wantLedger(e *env.Env, want ...string) {
	e.T.Helper()
	got, err := os.ReadFile(filepath.Join(e.Dir, "ledger.txt"))
	if err != nil || string(got) != strings.Join(want, "\n")+"\n" {
		e.T.Errorf("the ledger of the server: %v\n%s", err, got)
	}
}

// A server asks for input. Its worker is killed, and the server with it, while the question is open. After a restart a
// person answers, and the server goes on with the call, once.
func TestAServerAsksAPerson(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addBookingServer(e, "    elicitation: ask\n")
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Book a seat.")
	a := awaitAsk(e)
	if a.Kind != "input" || a.Tool != "trains__book" || a.Arguments["train"] != "IC 1" ||
		a.Reason != "the MCP server trains asks: Which seat in IC 1?" ||
		fmt.Sprint(a.Schema["required"]) != "[seat]" {
		t.Errorf("the ask is %+v", a)
	}
	if n := env.Query[int](e, "select count(*) from leases where grant_id is not null"); n != 0 {
		t.Errorf("%d leases are held", n)
	}
	e.Kill(w)
	id := fmt.Sprint(a.ID)
	if r := e.Turnctl("asks", "answer", id, `{"seat": 0}`, "--json"); r.Code == 0 {
		t.Errorf("an invalid answer was taken: %s", r.Stdout)
	}
	wantLedger(e, "asked about IC 1")
	e.StartWorker()
	if r := e.Turnctl("asks", "answer", id, `{"seat": 7}`, "--json", "--comment", "at the window"); r.Code != 0 {
		t.Fatalf("answering exits with %d: %s", r.Code, r.Stderr)
	}
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	call := turn.CallsByWireID()["book"]
	if want :=
		"[Comment of the person who gave the input of this call: at the window]\n\nbooked a seat in IC 1: number 7"; call.State != "succeeded" ||
		call.Starts != 1 || call.Result != want {
		t.Errorf("the call is %s after %d starts: %s", call.State, call.Starts, call.Result)
	}
	wantLedger(e, "asked about IC 1", "booked a seat in IC 1: number 7")
}

// Tests that the server and the model both learn that a person has declined.
func TestAPersonDeclinesAServersQuestion(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addBookingServer(e, "    elicitation: ask\n")
	e.StartWorker()
	message := e.Enqueue("clerk", "Book a seat.")
	if r := e.Turnctl("asks", "deny", fmt.Sprint(awaitAsk(e).ID), "--comment", "take the bus"); r.Code != 0 {
		t.Fatalf("denying exits with %d: %s", r.Code, r.Stderr)
	}
	call := e.TurnOf(message).CallsByWireID()["book"]
	if call.State != "failed" || !strings.HasPrefix(call.Result, "[denied: a person declined to give the input") ||
		!strings.HasSuffix(call.Result, "Comment: take the bus\n\ndecline") {
		t.Errorf("the call is %s: %s", call.State, call.Result)
	}
	wantLedger(e, "asked about IC 1", "decline IC 1")
}

// Without the setting nobody is asked.
func TestAServersQuestionIsDeclined(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addBookingServer(e, "")
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Book a seat."))
	if call := turn.CallsByWireID()["book"]; call.State != "failed" || call.Result != "decline" {
		t.Errorf("the call is %s: %s", call.State, call.Result)
	}
	wantLedger(e, "asked about IC 1", "decline IC 1")
	if n := env.Query[int](e, "select count(*) from asks"); n != 0 {
		t.Errorf("%d asks", n)
	}
}

// A worker is lost after the call went on with the input. A call of effect once is in doubt, and the server is not
// called again.
func TestAWorkerIsLostAfterInput(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addBookingServer(e, "    elicitation: ask\n")
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Book a seat.")
	a := awaitAsk(e)
	e.Kill(w)
	hook := env.NewHookServer(t, agentturn.PointEffectDone)
	e.Workers++
	w = env.StartProcess(t, "worker 2", e.Dir, append(e.Environ(), hook.Environ()...), env.Binary(t, "markerworker"))
	if r := e.Turnctl("asks", "answer", fmt.Sprint(a.ID), `{"seat": 7}`, "--json"); r.Code != 0 {
		t.Fatalf("answering exits with %d: %s", r.Code, r.Stderr)
	}
	hook.Await()
	e.Kill(w)
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 2)
	if call := turn.CallsByWireID()["book"]; call.State != "unknown" || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts: %s", call.State, call.Starts, call.Result)
	}
	wantLedger(e, "asked about IC 1", "booked a seat in IC 1: number 7")
}
