package core_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// steadily streams the text word by word and ends normally.
func steadily(text string, pause time.Duration) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		inferencetest.OpenSSE(piece(""))(x)
		for word := range strings.SplitAfterSeq(text, " ") {
			if !x.Wait(env.After(pause)) {
				return
			}
			x.Send("data: " + piece(word) + "\n\n")
		}
		x.Send(
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
		x.Send("data: [DONE]\n\n")
	}
}

func piece(text string) string {
	return fmt.Sprintf(
		`{"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":null}]}`, env.Quote(text))
}

// keepAlive opens a stream and sends only keep-alive lines.
func keepAlive(line string) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		inferencetest.OpenSSE()(x)
		for x.Wait(env.After(50 * time.Millisecond)) {
			x.Send(line)
		}
	}
}

// A model that still streams is not cut off, however long it takes.
func TestAnAnswerThatStreamsIsNotCutOff(t *testing.T) {
	t.Parallel()
	const text = "one two three four five six seven eight nine ten eleven twelve"
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Vars["TURNKEEPER_MODEL_TIMEOUT"] = "1s"
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return steadily(text, 200*time.Millisecond) })
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Count."))
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, text)
	e.WantRequests(1)
}

// The same with the default limits of a worker.
func TestAnAnswerThatStreamsForLongerThanAMinute(t *testing.T) {
	if !testrun.Full() {
		t.Skip("takes more than a minute; runs with TURNKEEPER_TESTS=full")
	}
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("word ", 65))
	e := env.New(t)
	e.WriteAgent("clerk", "max_duration: 150s")
	delete(e.Vars, "TURNKEEPER_MODEL_IDLE_TIMEOUT")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return steadily(text, time.Second) })
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Talk."))
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, text)
	e.WantRequests(1)
}

// A stream of comments or empty events counts as alive, and ends at the turn's deadline.
func TestAStreamOfKeepAlivesEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"comments": ": still here\n\n", "empty events": "data:\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", "max_duration: 3s")
			e.Vars["TURNKEEPER_MODEL_TIMEOUT"] = "1s"
			e.Vars["TURNKEEPER_MODEL_IDLE_TIMEOUT"] = "2s" // longer than a pause of a busy machine
			e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return keepAlive(line) })
			e.StartWorker()
			message := e.Enqueue("clerk", "Talk.")
			e.Await("the turn's time is over", "select exists (select from turns where stop_reason = 'max_duration')")
			e.WantRequests(1)
			turn := e.Show(env.Query[int64](e, "select min(id) from turns where message_id = $1", message))
			if len(turn.Failed) != 1 || turn.Failed[0].Text != "" || turn.Failed[0].Usage.Input == 0 {
				t.Errorf("the failed attempts are %+v", turn.Failed)
			}
		})
	}
}

// A stalled stream is aborted, and not waited for again in the turn's slot: the model counts as down at once. The next
// turn asks after the worker's own request.
func TestAStreamThatStalls(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Vars["TURNKEEPER_MODEL_IDLE_TIMEOUT"] = "1s"
	e.Model.Add(env.HangHalfway("half a sentence and then nothing"))
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("A whole answer.") })
	e.StartWorker()
	message := e.Enqueue("clerk", "Talk.")
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 1)
	requests := e.WantRequests(3)
	if !strings.Contains(string(requests[1].Body), "Reply with ok.") ||
		strings.Contains(string(requests[1].Body), "Talk.") ||
		!strings.Contains(string(requests[2].Body), "Talk.") {
		t.Errorf("the requests are\n%s\n%s", requests[1].Body, requests[2].Body)
	}
	first := e.Show(env.Query[int64](e, "select min(id) from turns where message_id = $1", message))
	if first.State != "failed" || first.ErrorClass != "transport" || len(first.Failed) != 1 {
		t.Errorf("the first turn ended %s, %s, with the failed attempts %+v", first.State,
			first.ErrorClass, first.Failed)
	}
}

// The request is repeated after a stream that was cut. Its partial text is stored for operators only, and its
// tokens count for the turn.
func TestAStreamThatIsCut(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	said := strings.Repeat("half a sentence and then ", 40)
	e.Model.Add(env.CutHalfway(said))
	e.Model.Then(env.Rounds(inferencetest.Text("A whole answer.")))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Talk."))
	e.WantEnd(turn, "succeeded", "none", 1)
	e.WantReply(turn, "A whole answer.")
	if requests := e.WantRequests(2); strings.Contains(string(requests[1].Body), "half a sentence") {
		t.Error("the second request holds what the first attempt had said")
	}
	if len(turn.Failed) != 1 {
		t.Fatalf("the failed attempts are %+v", turn.Failed)
	}
	failed := turn.Failed[0]
	if failed.Round != 1 || failed.Class != "transport" || failed.Text != said[:len(said)/2] ||
		failed.Usage.Input == 0 || failed.Usage.Output < 100 || !failed.Usage.Estimated {
		t.Errorf("the failed attempt is %+v", failed)
	}
	if answer := turn.RoundLog[0].Usage; turn.Tokens.Input != answer.Input+failed.Usage.Input ||
		turn.Tokens.Output != answer.Output+failed.Usage.Output {
		t.Errorf("the turn has %+v, its round %+v, the failed attempt %+v", turn.Tokens, answer, failed.Usage)
	}
	if shown := e.Turnctl("show", fmt.Sprint(turn.ID)); !strings.Contains(shown.Stdout, "half a sentence") ||
		!strings.Contains(shown.Stdout, "failed attempt") {
		t.Errorf("turnctl show prints\n%s", shown.Stdout)
	}
	e.Model.Then(env.Rounds(inferencetest.Text("Hello.")))
	e.TurnOf(e.Enqueue("clerk", "And now?"))
	if requests := e.Model.Requests(); strings.Contains(string(requests[2].Body), "half a sentence") {
		t.Error("the next request has the text of the failed attempt")
	}
}

// Model calls that are cut off count against the budget.
func TestCutOffCallsCountAgainstTheBudget(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "budget: {turn_tokens: 2500}", "max_output_tokens: 100")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		return env.CutHalfway(strings.Repeat("half a sentence and then ", 320))
	})
	e.StartWorker()
	e.Enqueue("clerk", "Talk.")
	e.Await("a turn has ended", "select exists (select from turns where stop_reason is not null)")
	turn := e.Show(env.Query[int64](e, "select min(id) from turns"))
	if turn.StopReason == nil || *turn.StopReason != "budget" {
		t.Errorf("the turn ended %s, %s", turn.State, turn.Error)
	}
	var failed int64
	for _, a := range turn.Failed {
		failed += a.Usage.Input + a.Usage.Output
	}
	if len(turn.Failed) == 0 || len(turn.Failed) > 3 || turn.Tokens.Input+turn.Tokens.Output != failed ||
		failed < 2400 {
		t.Errorf("the turn took %+v, its failed attempts %+v", turn.Tokens, turn.Failed)
	}
}
