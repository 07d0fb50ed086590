package tests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

var apiLine = regexp.MustCompile(`(?m)^  api +(http://\S+)$`)

// api is where a worker's HTTP API is, by what it says of itself.
func (p *process) api() string {
	p.t.Helper()
	p.await("\n  api ")
	p.await("\n  agents ")
	found := apiLine.FindStringSubmatch(p.said.String())
	if found == nil {
		p.t.Fatalf("%s did not say where its API is:\n%s", p.name, p.said.tail())
	}
	return found[1]
}

// A listener follows a turn as a browser's EventSource does: cut off, it comes again
// with the number of the last event that it has.
type listener struct {
	base, path string
	client     *http.Client
	last       int64
	text       strings.Builder // of the round's text, what was rolled back left out
	rollbacks  int
	cuts       int
	over       bool
}

type watched struct {
	Seq  int64
	Type string
	Data struct{ Text, Kind string }
}

// read reads at most so many events of one connection.
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
		return nil // the process is gone: it comes again
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		r.over = true
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s: an EventSource gives up for good", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var event watched
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

func (r *listener) take(event watched) error {
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

// A worker is killed while it streams; another one runs the round again. Who
// watches, cut off at random and served by either, has every event once and in
// order, and ends with the text of the reply.
func TestAStreamOverALostWorker(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	long := strings.Repeat("all of it is said, word by word; ", 3000)
	h.model.Then(func(r recorded) reply {
		if len(h.model.Requests()) == 1 {
			return halfOf(long)
		}
		return text(long)
	})
	first := h.startWorker("--takeover-after", silence)
	posted, accepted := post(t, first.api(), `{"agent":"clerk","body":"Talk."}`, "Idempotency-Key", "k")
	if posted.StatusCode != http.StatusCreated {
		t.Fatalf("answered %s %v", posted.Status, accepted)
	}
	h.await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")
	second := h.startWorker("--takeover-after", silence)
	bases := []string{first.api(), second.api()}
	follow := &listener{path: "/v1/turns/1/events", client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := 0; !follow.over && ctx.Err() == nil; n++ {
		if follow.cuts == 5 && first.running() {
			first.kill()
		}
		follow.base = bases[rand.IntN(len(bases))]
		if first.running() && follow.last > 10 {
			follow.cuts = 5 // it waits for more, which only another worker has
			continue
		}
		if err := follow.read(ctx, 1+rand.IntN(5)); err != nil {
			t.Fatal(err)
		}
	}
	turn := h.turnOf(1)
	if follow.rollbacks == 0 || follow.cuts < 5 {
		t.Errorf("%d roll-backs and %d cuts: too few to show anything", follow.rollbacks, follow.cuts)
	}
	if turn.Reply == nil || turn.Reply.Body != long {
		t.Fatal("the reply is not what the model said")
	}
	if got := follow.text.String(); got != long {
		t.Errorf("the watcher ends with %d bytes, the reply has %d", len(got), len(long))
	}

	// A repeat is the same message, wherever it is sent, and has the reply.
	again, repeated := post(t, second.api(), `{"agent":"clerk","body":"Talk."}`, "Idempotency-Key", "k")
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

// An address that others can reach is served with a token only.
func TestTheAPIOnEveryAddress(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("Good morning.")))
	refused := h.launchWorker("--listen", "0.0.0.0:0")
	if code := refused.wait(); code == 0 || !strings.Contains(refused.said.String(), "there is no token yet") {
		t.Errorf("without a token the worker ended with %d:\n%s", code, refused.said.tail())
	}
	made := turnctl[struct{ Token string }](h, "tokens", "create", "shop", "--scopes", "send", "--agents", "clerk")
	w := h.startWorker("--listen", "0.0.0.0:0", "--log-level", "debug")
	base := strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(w.api())
	const hello = `{"agent":"clerk","body":"Hello"}`
	if resp, _ := post(t, base, hello); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token it answers %s", resp.Status)
	}
	resp, p := post(t, base, hello, "Authorization", "Bearer "+made.Token)
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("with a token it answers %s", resp.Status)
	}
	h.awaitClosed(p.ID)
	if strings.Contains(w.said.String(), made.Token) {
		t.Error("the token is in the log")
	}
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}

// halfOf streams the first half of a text and then nothing.
func halfOf(long string) reply {
	var chunks []string
	for rest := long[:len(long)/2]; rest != ""; {
		n := min(1500, len(rest))
		chunks = append(chunks, fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":null}]}`, quote(rest[:n])))
		rest = rest[n:]
	}
	return inferencetest.HangAfter(inferencetest.OpenSSE(chunks...))
}
