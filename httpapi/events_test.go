package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper/httpapi"
)

// A watcher is a client of an event stream that resumes after the last event it has seen.
type watcher struct {
	base string
	seen []int64
	over bool // it has the last event, or a 204
	cuts int

	began chan struct{} // closed at the first event; may be nil
}

// watch reads until the stream ends or budget events have come.
func (w *watcher) watch(ctx context.Context, path string, budget int) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if len(w.seen) > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(w.seen[len(w.seen)-1], 10))
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		w.over = true
		return nil
	case resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream":
		return fmt.Errorf("answered %d %s: a client gives up", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return w.read(bufio.NewScanner(resp.Body), budget)
}

func (w *watcher) read(lines *bufio.Scanner, budget int) error {
	var id int64
	var kind string
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			id, _ = strconv.ParseInt(value, 10, 64)
		case "event":
			kind = value
		case "": // a comment or the end of an event
			if kind == "" {
				continue
			}
			if w.began != nil && len(w.seen) == 0 {
				close(w.began)
			}
			w.seen, kind = append(w.seen, id), endOf(kind, &w.over)
			if budget--; budget == 0 {
				w.cuts++
				return nil
			}
		}
	}
	return nil
}

func endOf(kind string, over *bool) string {
	*over = *over || kind == "turn_complete"
	return ""
}

func TestStreamsThatAreCut(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.KeepAlive = 5 * time.Millisecond })
	const events, watchers = 300, 10
	d := h.turn("clerk", "talk")
	path := fmt.Sprintf("/v1/turns/%d/events", d.id)
	all := make([]*watcher, watchers)
	var group sync.WaitGroup
	for i := range all {
		w := &watcher{base: h.base}
		all[i] = w
		group.Go(func() {
			for !w.over {
				if err := w.watch(t.Context(), path, 1+rand.IntN(40)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	first := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	for i := range events {
		d.say(strconv.Itoa(i))
	}
	d.finish("said")
	group.Wait()
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	if last < first+events {
		t.Fatalf("the turn has %d events", last)
	}
	cuts := 0
	for i, w := range all {
		cuts += w.cuts
		if int64(len(w.seen)) != last {
			t.Errorf("watcher %d saw %d events of %d", i, len(w.seen), last)
		}
		for j, seq := range w.seen {
			if seq != int64(j)+1 {
				t.Fatalf("watcher %d: event %d is at place %d: %v", i, seq, j+1, w.seen)
			}
		}
	}
	t.Logf("%d watchers, %d events each, %d cuts", watchers, last, cuts)
	if cuts < watchers {
		t.Errorf("only %d streams were cut", cuts)
	}
}

func TestEventsAsAList(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	d.say("one")
	d.say("two")
	d.finish("said")
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	page := decode[struct {
		Items []struct{ Seq int64 }
		Next  int64
	}](t, h.ask("GET", fmt.Sprintf("/v1/turns/%d/events?after=%d&limit=1", d.id, last-2), ""))
	if len(page.Items) != 1 || page.Items[0].Seq != last-1 || page.Next != last-1 {
		t.Errorf("the page is %+v, want event %d", page, last-1)
	}
	for accept, kind := range map[string]string{
		"application/json, text/event-stream;q=0": "application/json", "text/event-stream;q=0.5": "text/event-stream",
		"Text/Event-Stream; charset=utf-8": "text/event-stream", "text/event-streams": "application/json",
		"*/*": "application/json",
	} {
		if got := h.ask("GET", fmt.Sprintf("/v1/turns/%d/events", d.id), "", "Accept", accept).header.Get(
			"Content-Type"); got != kind {
			t.Errorf("who accepts %s is answered with %s", accept, got)
		}
	}
	// Last-Event-ID takes precedence over the URL, which a client keeps from its first request.
	w := &watcher{base: h.base, seen: []int64{last - 1}}
	if err := w.watch(t.Context(), fmt.Sprintf("/v1/turns/%d/events?after=0", d.id), 0); err != nil ||
		len(w.seen) != 2 || w.seen[1] != last {
		t.Errorf("the stream gave %v, %v", w.seen, err)
	}
}

// TestANumberFromTheFuture checks that a Last-Event-ID above the newest event, as after restoring a backup, counts as
// the newest: the client gets new events and the end.
func TestANumberFromTheFuture(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "talk")
	d.say("one")
	path := fmt.Sprintf("/v1/turns/%d/events", d.id)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", strconv.Itoa(1<<40))
	resp, err := client.Do(req) // returns when the stream has started
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	d.finish("said")
	last := one[int64](h, "select last_seq from turnkeeper.turns_now where id = $1", d.id)
	ahead := &watcher{}
	if err := ahead.read(bufio.NewScanner(resp.Body), 0); err != nil || !ahead.over || len(ahead.seen) != 1 ||
		ahead.seen[0] != last {
		t.Errorf("it was told %v of %d events, over is %t: %v", ahead.seen, last, ahead.over, err)
	}
	late := &watcher{base: h.base, seen: []int64{1 << 62}}
	if err := late.watch(t.Context(), path, 0); err != nil || !late.over || len(late.seen) > 1 {
		t.Errorf("after the end it was told %v: %v", late.seen, err)
	}
}

func TestDraining(t *testing.T) {
	h := newEnv(t)
	h.ask("GET", "/readyz", "").want(t, http.StatusOK, "ready")
	d := h.turn("clerk", "talk")
	d.say("one")
	path := fmt.Sprintf("/v1/turns/%d/events", d.id)
	running := &watcher{base: h.base, began: make(chan struct{})}
	ended, waited := make(chan error, 1), make(chan answer, 1)
	go func() { ended <- running.watch(t.Context(), path, 0) }()
	<-running.began
	go func() { waited <- h.ask("GET", "/v1/messages/1?wait=50s", "") }()

	h.server.Drain()
	(<-waited).want(t, http.StatusOK, `"reply":null`)
	if err := <-ended; err != nil || running.over {
		t.Errorf("the running stream ended with %v, over is %t", err, running.over)
	}
	h.ask("GET", "/readyz", "").want(t, http.StatusServiceUnavailable, "stopping")
	h.ask("GET", "/healthz", "").want(t, http.StatusOK, "ok")

	late := &watcher{base: h.base}
	if err := late.watch(t.Context(), path, 0); err != nil || len(late.seen) == 0 {
		t.Errorf("a new stream gave %v, %v", late.seen, err)
	}
	d.finish("said")
	for !late.over {
		if err := late.watch(t.Context(), path, 0); err != nil {
			t.Fatal(err)
		}
	}
	late.over = false // a client that has all events reconnects, and gets the 204 from another process
	if err := late.watch(t.Context(), path, 0); err != nil || late.over {
		t.Errorf("a client that has all was told to go for good by a process that stops: %v", err)
	}
	_, late.base = h.serve()
	if err := late.watch(t.Context(), path, 0); err != nil || !late.over {
		t.Errorf("elsewhere it was not told that nothing follows: %v", err)
	}
}

// TestAQuietStreamHasComments reads streams of a turn and of its message in which nothing happens.
func TestAQuietStreamHasComments(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.KeepAlive = 5 * time.Millisecond })
	d := h.turn("clerk", "talk")
	for _, path := range []string{fmt.Sprintf("/v1/turns/%d/events", d.id), "/v1/messages/1/events"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		comments := 0
		for lines := bufio.NewScanner(resp.Body); comments < 3 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), ":") {
				comments++
			}
		}
		if err := resp.Body.Close(); err != nil || comments < 3 {
			t.Errorf("%s: %d comments, %v", path, comments, err)
		}
	}
}
