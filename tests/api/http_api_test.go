package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A listener follows a turn like a browser's EventSource: after a cut it reconnects with the number of its
// last event.
type listener struct {
	base, path string
	client     *http.Client
	last       int64
	text       strings.Builder // text of the rounds, without what was rolled back
	rollbacks  int
	cuts       int
	over       bool
}

// read reads at most this number of events from one connection.
func (r *listener) read(ctx context.Context, events int) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+r.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if r.last > 0 {
		req.Header.Set("Last-Event-ID", fmt.Sprint(r.last))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil // the process has ended: reconnect
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		r.over = true
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s, at which an EventSource gives up", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var event env.Event
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return err
		}
		if err := r.take(event); err != nil {
			return err
		}
		if events--; events == 0 {
			r.cuts++
			return nil
		}
	}
	return nil
}

func (r *listener) take(event env.Event) error {
	if event.Seq != r.last+1 {
		return fmt.Errorf("event %d came after event %d", event.Seq, r.last)
	}
	r.last = event.Seq
	switch event.Type {
	case "round_start":
		r.text.Reset()
	case "round_rollback":
		r.text.Reset()
		r.rollbacks++
	case "block_delta":
		r.text.WriteString(event.Data.Text)
	case "turn_complete":
		r.over = true
	}
	return nil
}

// A worker is killed while it streams, and another one repeats the round. A follower that is cut off at random
// and served by either gets every event once and in order, and ends with the text of the reply.
func TestAStreamOverALostWorker(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	long := strings.Repeat("all of it is said, word by word; ", 3000)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if len(e.Model.Requests()) == 1 {
			return env.HangHalfway(long)
		}
		return inferencetest.Text(long)
	})
	first := e.StartWorker()
	posted, accepted := post(t, first.APIURL(), `{"agent":"clerk","body":"Talk."}`, "Idempotency-Key", "k")
	if posted.StatusCode != http.StatusCreated {
		t.Fatalf("answered %s %v", posted.Status, accepted)
	}
	e.Await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")
	second := e.StartWorker()
	bases := []string{first.APIURL(), second.APIURL()}
	follow := &listener{path: "/v1/turns/1/events",
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	for n := 0; !follow.over && ctx.Err() == nil; n++ {
		if follow.cuts == 5 && first.Running() {
			e.Kill(first)
		}
		follow.base = bases[rand.IntN(len(bases))]
		if first.Running() && follow.last > 10 {
			follow.cuts = 5 // it waits for events that only another worker can write
			continue
		}
		if err := follow.read(ctx, 1+rand.IntN(5)); err != nil {
			t.Fatal(err)
		}
	}
	turn := e.TurnOf(1)
	if follow.rollbacks == 0 || follow.cuts < 5 {
		t.Errorf("%d roll-backs and %d cuts: too few to show anything", follow.rollbacks, follow.cuts)
	}
	if turn.Reply == nil || turn.Reply.Body != long {
		t.Fatal("the reply is not what the model said")
	}
	if got := follow.text.String(); got != long {
		t.Errorf("the watcher ends with %d bytes, the reply has %d", len(got), len(long))
	}

	// A repeat gets the same message and its reply, from any process.
	again, repeated := post(t, second.APIURL(), `{"agent":"clerk","body":"Talk."}`, "Idempotency-Key", "k")
	if again.StatusCode != http.StatusOK || repeated.ID != accepted.ID || repeated.Reply == nil {
		t.Errorf("a repeat was answered %s %+v", again.Status, repeated)
	}
}

type posted struct {
	ID    int64
	State string
	Reply *struct{ Body string }
}

func post(t *testing.T, base, body string, headers ...string) (*http.Response, posted) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var p posted
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return resp, p
}

// A public address needs a token.
func TestTheAPIOnEveryAddress(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("Good morning.")))
	w := e.StartWorker("--listen", "0.0.0.0:0", "--log-level", "debug")
	w.Await("there is none yet")
	base := strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(w.APIURL())
	const hello = `{"agent":"clerk","body":"Hello"}`
	if resp, _ := post(t, base, hello); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token it answers %s", resp.Status)
	}
	made := env.Turnctl[struct{ Token string }](e, "tokens", "create", "shop", "--scopes", "send", "--agents", "clerk")
	resp, p := post(t, base, hello, "Authorization", "Bearer "+made.Token)
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("with a token it answers %s", resp.Status)
	}
	e.AwaitClosed(p.ID)
	if strings.Contains(w.Output.String(), made.Token) {
		t.Error("the token is in the log")
	}
	if code := w.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
