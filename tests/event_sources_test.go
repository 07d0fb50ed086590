package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"turnkeeper/inference/inferencetest"
)

// A followed turn is what one EventSource saw of it; see clients/follow.js.
type followed struct {
	Last      int      `json:"last"`
	Rollbacks int      `json:"rollbacks"`
	Opens     int      `json:"opens"`
	Text      string   `json:"text"`
	Faults    []string `json:"faults"`
}

// How many follow, and how often they are cut off in all.
const (
	nodeSources = 100
	tabs        = 4 // each with an origin of its own: a browser has six connections to one
	tabSources  = 5
	manyCuts    = 2000
)

// cutAt is after how many bytes a connection is cut: as a rule soon, and now and then so
// late that its client comes up with the turn.
func (s *cutStand) cutAt() int {
	select {
	case <-s.enough: // the rest is caught up
		return rand.IntN(1_000_000)
	default:
	}
	if rand.IntN(4) > 0 {
		return rand.IntN(5000)
	}
	return rand.IntN(60_000)
}

// TestEventSourcesThatAreCut follows one turn with npm's eventsource and Chromium's own,
// through a proxy that cuts each of their connections somewhere, while the processes
// that they are connected to, and those that run the turn, are killed. Nobody misses an
// event, or has one twice or in another order, or gives up; all end with the reply.
func TestEventSourcesThatAreCut(t *testing.T) {
	t.Parallel()
	s := newCutStand(t)
	node := s.startNode()
	pages := s.openTabs()
	s.live()
	all := s.nodeSaw(node)
	for _, tab := range pages {
		all = append(all, s.tabSaw(tab)...)
	}
	turn := s.turnOf(1)
	if turn.Reply == nil || turn.State != "succeeded" || turn.Losses != 2 {
		t.Fatalf("the turn is %s, it lost %d workers", turn.State, turn.Losses)
	}
	last := query[int](s.house, "select last_seq from turns")
	// Of two lost workers, and of a model call that was too slow for a busy machine.
	rollbacks := query[int](s.house, "select count(*) from turn_events where type = 'round_rollback'")
	if want := nodeSources + tabs*tabSources; len(all) != want {
		t.Fatalf("%d of %d have ended", len(all), want)
	}
	opens := 0
	for i, saw := range all {
		opens += saw.Opens
		if len(saw.Faults) > 0 {
			t.Errorf("source %d: %s", i, saw.Faults)
		}
		if saw.Last != last || saw.Rollbacks != rollbacks || saw.Text != turn.Reply.Body {
			t.Errorf("source %d ended at event %d of %d, with %d roll-backs of %d and %d bytes of %d",
				i, saw.Last, last, saw.Rollbacks, rollbacks, len(saw.Text), len(turn.Reply.Body))
		}
	}
	if n := s.refusals(); n > 0 {
		t.Errorf("%d answers were ones at which an EventSource gives up", n)
	}
	t.Logf("%d EventSources, %d events each, %d cuts, %d connections", len(all), last, s.cuts(), opens)
}

// A cutStand is a turn that runs until it is told to end, and who serves it.
type cutStand struct {
	*house
	ctx     context.Context //nolint:containedctx // of the test
	enough  chan struct{}   // closed: the model comes to an end
	cutters []*cutter
	serving []*process
	runner  *process
}

func newCutStand(t *testing.T) *cutStand {
	t.Helper()
	s := &cutStand{house: newHouse(t), enough: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	s.ctx = ctx
	s.agent("clerk")
	s.model.Then(func(recorded) reply { return untilEnough(s.enough) })
	follow, err := os.ReadFile("clients/follow.js")
	if err != nil {
		t.Fatal(err)
	}
	for range 1 + tabs {
		s.cutters = append(s.cutters, newCutter(t, s.cutAt, map[string]string{
			"/follow.js": string(follow), "/watch.html": watchPage,
		}))
	}
	s.runner = s.startWorker("--takeover-after", silence)
	s.serve(s.runner, s.startWorker("--roles", "api"), s.startWorker("--roles", "api"))
	s.send("clerk", "Talk.")
	s.await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")
	return s
}

var watchPage = fmt.Sprintf(`<!doctype html><script type="module">
import { follow } from '/follow.js';
window.all = Array.from({ length: %d }, () => follow(EventSource, '/v1/turns/1/events'));
</script>`, tabSources)

// untilEnough says a numbered line again and again, and ends when it is enough.
func untilEnough(enough <-chan struct{}) reply {
	return func(x *inferencetest.Exchange) {
		chunk := func(delta, finish string) string {
			return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
		}
		x.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
		for n := 1; ; n++ {
			line := fmt.Sprintf("%d of request %d: %s\n", n, x.N, strings.Repeat("grüße ", 150))
			x.Send(chunk(`{"role":"assistant","content":`+quote(line)+`}`, "null"))
			select {
			case <-enough:
				x.Send(chunk(`{}`, `"stop"`) + "data: [DONE]\n\n")
				return
			default:
			}
			if !x.Wait(after(100 * time.Millisecond)) {
				return
			}
		}
	}
}

// serve says which processes the proxies send to.
func (s *cutStand) serve(all ...*process) {
	s.serving = all
	var bases []string
	for _, p := range all {
		bases = append(bases, p.api())
	}
	for _, c := range s.cutters {
		c.to(bases...)
	}
}

func (s *cutStand) cuts() (n int64) {
	for _, c := range s.cutters {
		n += c.cuts.Load()
	}
	return n
}

func (s *cutStand) refusals() (n int64) {
	for _, c := range s.cutters {
		n += c.refusals.Load()
	}
	return n
}

// live kills one process after the other while cuts add up, and lets the turn end.
func (s *cutStand) live() {
	s.t.Helper()
	for i, harm := range []func(){s.loseAnAPI, s.loseTheRunner, s.loseAnAPI, s.loseTheRunner, s.drainAnAPI, s.drainTheRunner} {
		s.awaitCuts(manyCuts * int64(i+1) / 7)
		harm()
	}
	s.awaitCuts(manyCuts)
	close(s.enough)
}

func (s *cutStand) awaitCuts(n int64) {
	s.t.Helper()
	s.poll(fmt.Sprintf("%d connections are cut", n), func() bool { return s.cuts() >= n })
}

// loseAnAPI kills a process: for a while its clients find nobody there.
func (s *cutStand) loseAnAPI() {
	s.serving[1].kill()
	s.serve(s.serving[0], s.startWorker("--roles", "api"), s.serving[2])
}

// drainAnAPI stops a process in good order, while clients come to it.
func (s *cutStand) drainAnAPI() {
	if code := s.serving[2].terminate(); code != 0 {
		s.t.Errorf("the API ended with %d", code)
	}
	s.serve(s.serving[0], s.serving[1], s.startWorker("--roles", "api"))
}

// loseTheRunner kills the worker that runs the turn; another one takes it over.
func (s *cutStand) loseTheRunner() {
	grants := query[int](s.house, "select dispatches from turns")
	next := s.startWorker("--takeover-after", silence)
	s.serve(next, s.serving[1], s.serving[2])
	s.runner.kill()
	s.runner = next
	s.await("the turn is taken over and streams again", `select exists (select from turns where dispatches > $1) and exists (
		select from turn_events where type = 'block_delta' and seq > (select max(seq) from turn_events where type = 'round_rollback'))`, grants)
}

// drainTheRunner tells the worker that runs the turn to stop: it ends the turn first, if
// there is time for that, and sends those who watch elsewhere.
func (s *cutStand) drainTheRunner() {
	s.serve(s.startWorker("--takeover-after", silence), s.serving[1], s.serving[2], s.runner)
	s.runner.signal(syscall.SIGTERM)
}

func (s *cutStand) startNode() (ended <-chan []byte) {
	s.t.Helper()
	cmd := nodeProgram(s.ctx, s.t, nil, "eventsource.mjs", s.cutters[0].URL+"/v1/turns/1/events", fmt.Sprint(nodeSources))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan []byte, 1)
	go func() {
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("node ended with %v\n%s", err, errs.String())
		}
		done <- out.Bytes()
	}()
	return done
}

func (s *cutStand) nodeSaw(ended <-chan []byte) (all []followed) {
	s.t.Helper()
	out := <-ended
	if err := json.Unmarshal(out, &all); err != nil {
		s.t.Fatalf("%v: %.300s", err, out)
	}
	return all
}

func (s *cutStand) openTabs() (pages []context.Context) {
	s.t.Helper()
	browser := newBrowser(s.ctx, s.t)
	var opening sync.WaitGroup
	for _, c := range s.cutters[1:] {
		tab, closeTab := chromedp.NewContext(browser)
		s.t.Cleanup(closeTab)
		pages = append(pages, tab)
		opening.Go(func() {
			if err := chromedp.Do(tab, chromedp.Navigate(c.URL+"/watch.html")); err != nil {
				s.t.Errorf("a tab was not opened: %v", err)
			}
		})
	}
	opening.Wait()
	return pages
}

// tabSaw waits until all sources of a tab have closed.
func (s *cutStand) tabSaw(tab context.Context) (all []followed) {
	s.t.Helper()
	const ended = `window.all.every((seen) => seen.closed)`
	_, err := chromedp.Run(tab, chromedp.Poll[bool](ended, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err == nil {
		all, err = chromedp.Run(tab, chromedp.Evaluate[[]followed](`window.all`))
	}
	if err != nil {
		s.t.Errorf("a tab has not come to an end: %v", err)
	}
	return all
}
