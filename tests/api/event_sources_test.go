package api_test

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
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A followed turn is what one EventSource received; see clients/follow.js.
type followed struct {
	Last      int      `json:"last"`
	Rollbacks int      `json:"rollbacks"`
	Opens     int      `json:"opens"`
	Text      string   `json:"text"`
	Faults    []string `json:"faults"`
}

// The number of followers, and of cuts in all.
const (
	nodeSources = 100
	tabs        = 4 // each with its own origin: a browser opens six connections to one
	tabSources  = 5
	manyCuts    = 2000
)

// cutAt returns the number of bytes after which a connection is cut: usually few, sometimes enough to reach
// the newest event.
func (s *streamEnv) cutAt() int {
	select {
	case <-s.enough: // the rest is replayed
		return rand.IntN(1_000_000)
	default:
	}
	if rand.IntN(4) > 0 {
		return rand.IntN(5000)
	}
	return rand.IntN(60_000)
}

// npm's eventsource and Chromium's own follow one turn through a proxy that cuts each of their connections,
// while the processes that serve them and those that run the turn are killed. No client misses, repeats or
// reorders an event, or gives up. All end with the reply.
func TestEventSourcesThatAreCut(t *testing.T) {
	testrun.OnlyFull(t) // needs npm's packages and a browser
	t.Parallel()
	s := newStreamEnv(t)
	node := s.startNode()
	pages := s.openTabs()
	s.disturb()
	all := s.nodeSaw(node)
	for _, tab := range pages {
		all = append(all, s.tabSaw(tab)...)
	}
	turn := s.TurnOf(1)
	if turn.Reply == nil || turn.State != "succeeded" || turn.Losses != 2 {
		t.Fatalf("the turn is %s, it lost %d workers", turn.State, turn.Losses)
	}
	last := env.Query[int](s.Env, "select last_seq from turns")
	// from two lost workers, and from a model call that was too slow on a busy machine
	rollbacks := env.Query[int](s.Env, "select count(*) from turn_events where type = 'round_rollback'")
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
		t.Errorf("%d responses were ones at which an EventSource gives up", n)
	}
	t.Logf("%d EventSources, %d events each, %d cuts, %d connections", len(all), last, s.cuts(), opens)
}

// A streamEnv is a turn that runs until it is told to end, and the processes that serve it.
type streamEnv struct {
	*env.Env
	ctx     context.Context //nolint:containedctx // context of the test
	enough  chan struct{}   // closed: the model ends
	cutters []*cutter
	serving []*env.Process
	runner  *env.Process
}

func newStreamEnv(t *testing.T) *streamEnv {
	t.Helper()
	s := &streamEnv{Env: env.New(t), enough: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 3*env.Patience)
	t.Cleanup(cancel)
	s.ctx = ctx
	s.WriteAgent("clerk", "max_duration: 200s")
	s.Vars["TURNKEEPER_MODEL_TIMEOUT"] = "190s"
	s.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return untilEnough(s.enough) })
	follow, err := os.ReadFile(env.Path("tests/internal/clients/follow.js"))
	if err != nil {
		t.Fatal(err)
	}
	for range 1 + tabs {
		s.cutters = append(s.cutters, newCutter(t, s.cutAt, map[string]string{
			"/follow.js": string(follow), "/watch.html": watchPage,
		}))
	}
	s.runner = s.StartWorker()
	s.serve(s.runner, s.StartWorker("--roles", "api"), s.StartWorker("--roles", "api"))
	s.Send("clerk", "Talk.")
	s.Await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")
	return s
}

var watchPage = fmt.Sprintf(`<!doctype html><script type="module">
import { follow } from '/follow.js';
window.all = Array.from({ length: %d }, () => follow(EventSource, '/v1/turns/1/events'));
</script>`, tabSources)

// untilEnough streams numbered lines until enough is closed.
func untilEnough(enough <-chan struct{}) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		chunk := func(delta, finish string) string {
			return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
		}
		x.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
		for n := 1; ; n++ {
			line := fmt.Sprintf("%d of request %d: %s\n", n, x.N, strings.Repeat("grüße ", 150))
			x.Send(chunk(`{"role":"assistant","content":`+env.Quote(line)+`}`, "null"))
			select {
			case <-enough:
				x.Send(chunk(`{}`, `"stop"`) + "data: [DONE]\n\n")
				return
			default:
			}
			if !x.Wait(env.After(100 * time.Millisecond)) {
				return
			}
		}
	}
}

// serve sets the processes that the proxies send to.
func (s *streamEnv) serve(all ...*env.Process) {
	s.serving = all
	var bases []string
	for _, p := range all {
		bases = append(bases, p.APIURL())
	}
	for _, c := range s.cutters {
		c.to(bases...)
	}
}

func (s *streamEnv) cuts() (n int64) {
	for _, c := range s.cutters {
		n += c.cuts.Load()
	}
	return n
}

func (s *streamEnv) refusals() (n int64) {
	for _, c := range s.cutters {
		n += c.refusals.Load()
	}
	return n
}

// disturb kills one process after the other while cuts add up, and then lets the turn end.
func (s *streamEnv) disturb() {
	s.T.Helper()
	for i, harm := range []func(){s.loseAnAPI, s.loseTheRunner, s.loseAnAPI, s.loseTheRunner, s.drainAnAPI,
		s.drainTheRunner} {
		s.awaitCuts(manyCuts * int64(i+1) / 7)
		harm()
	}
	s.awaitCuts(manyCuts)
	close(s.enough)
}

func (s *streamEnv) awaitCuts(n int64) {
	s.T.Helper()
	s.Poll(fmt.Sprintf("%d connections are cut", n), func() bool { return s.cuts() >= n })
}

// loseAnAPI kills a process. For a while its clients find no server.
func (s *streamEnv) loseAnAPI() {
	s.Kill(s.serving[1])
	s.serve(s.serving[0], s.StartWorker("--roles", "api"), s.serving[2])
}

// drainAnAPI terminates a process while clients connect to it.
func (s *streamEnv) drainAnAPI() {
	if code := s.serving[2].Terminate(); code != 0 {
		s.T.Errorf("the API ended with %d", code)
	}
	s.serve(s.serving[0], s.serving[1], s.StartWorker("--roles", "api"))
}

// loseTheRunner kills the worker that runs the turn. Another one takes it over.
func (s *streamEnv) loseTheRunner() {
	grants := env.Query[int](s.Env, "select dispatches from turns")
	next := s.StartWorker()
	s.serve(next, s.serving[1], s.serving[2])
	s.Kill(s.runner)
	s.runner = next
	s.Await("the turn is taken over and streams again",
		`select exists (select from turns where dispatches > $1) and exists (
		select from turn_events where type = 'block_delta' and seq > (select max(seq) from turn_events where type = 'round_rollback'))`, grants)
}

// drainTheRunner terminates the worker that runs the turn. The worker ends the turn first if there is time,
// and disconnects followers, which reconnect to another process.
func (s *streamEnv) drainTheRunner() {
	s.serve(s.StartWorker(), s.serving[1], s.serving[2], s.runner)
	s.runner.Signal(syscall.SIGTERM)
}

func (s *streamEnv) startNode() (ended <-chan []byte) {
	s.T.Helper()
	cmd := env.NodeProgram(s.ctx, s.T, nil, "eventsource.mjs", s.cutters[0].URL+"/v1/turns/1/events",
		fmt.Sprint(nodeSources))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	done := make(chan []byte, 1)
	go func() {
		if err := cmd.Wait(); err != nil {
			s.T.Errorf("node ended with %v\n%s", err, errs.String())
		}
		done <- out.Bytes()
	}()
	return done
}

func (s *streamEnv) nodeSaw(ended <-chan []byte) (all []followed) {
	s.T.Helper()
	out := <-ended
	if err := json.Unmarshal(out, &all); err != nil {
		s.T.Fatalf("%v: %.300s", err, out)
	}
	return all
}

func (s *streamEnv) openTabs() (pages []context.Context) {
	s.T.Helper()
	browser := newBrowser(s.ctx, s.T)
	var opening sync.WaitGroup
	for _, c := range s.cutters[1:] {
		tab, closeTab := chromedp.NewContext(browser)
		s.T.Cleanup(closeTab)
		pages = append(pages, tab)
		opening.Go(func() {
			if err := chromedp.Do(tab, chromedp.Navigate(c.URL+"/watch.html")); err != nil {
				s.T.Errorf("a tab was not opened: %v", err)
			}
		})
	}
	opening.Wait()
	return pages
}

// tabSaw waits until all sources of a tab have closed, and returns what they received.
func (s *streamEnv) tabSaw(tab context.Context) (all []followed) {
	s.T.Helper()
	const ended = `window.all.every((seen) => seen.closed)`
	_, err := chromedp.Run(tab, chromedp.Poll[bool](ended, chromedp.WithPollingInterval(100*time.Millisecond),
		chromedp.WithPollingTimeout(env.Patience)))
	if err == nil {
		all, err = chromedp.Run(tab, chromedp.Evaluate[[]followed](`window.all`))
	}
	if err != nil {
		s.T.Errorf("a tab did not end: %v", err)
	}
	return all
}
