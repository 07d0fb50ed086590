package app_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// statusOf returns the status of an address; "refused": nobody listens.
func statusOf(url string) string {
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return "refused"
	}
	_ = answer.Body.Close()
	return fmt.Sprint(answer.StatusCode)
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// An atPoint is called at each fault point.
type atPoint func(point string)

func (f atPoint) At(_ context.Context, point string) { f(point) }

// A stopping is a worker with a turn that runs, whose stop is observed at each of its points.
type stopping struct {
	*settingsWorld
	talk     talk
	metrics  string
	turn     turnkeeper.MessageID
	streamed chan struct{} // closed when a stream of the turn's events has ended

	mu   sync.Mutex
	seen []string
}

// pushTo adds a webhook to the settings.
func (s *stopping) pushTo(url string) {
	s.t.Helper()
	name := filepath.Join(s.folder, "turnkeeper.yaml")
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, append(text, "\nwebhooks: {hook: {url_env: HOOK_URL, secret_env: HOOK_SECRET}}\n"...),
			0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.reloadWith(map[string]string{"HOOK_URL": url, "HOOK_SECRET": "whsec_" + base64.StdEncoding.EncodeToString(
		make([]byte, 32))}, nil)
}

// at records what others see of the worker at a point of its stop.
func (s *stopping) at(point string) {
	if point == "shutdown.draining" {
		select {
		case <-s.streamed:
		case <-time.After(patience):
			s.t.Error("a stream goes on while the worker stops")
		}
		s.talk.in("late").send("do: say so") // no scheduler grants it any more
	}
	row := storagetest.One[string](s.db, `select format('%s slots, stopped %s', least(slots, 1),
		stopped_at is not null) from turnkeeper.worker_heartbeat`)
	turn := storagetest.One[string](s.db, "select state from turnkeeper.turns where message_id = $1", int64(s.turn))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%s: API %s, metrics %s, %s, turn %s", strings.TrimPrefix(point, "shutdown."),
		statusOf(s.ready.API+"/v1/agents"), statusOf("http://"+s.metrics+"/metrics"), row, turn))
}

// TestTheOrderOfAStop checks what others see at each point of a stop: the worker announces it, ends its streams, grants
// nothing, lets the turn finish within the grace or hands it back, counts as stopped only then, and serves the API and
// its metrics until the end. After it nobody listens, and what it had to tell has been told.
func TestTheOrderOfAStop(t *testing.T) {
	testrun.Slow(t)
	for grace, ends := range map[string]string{"0s": "queued", "1h": "succeeded"} {
		t.Run("grace "+grace, func(t *testing.T) {
			t.Parallel()
			c := &collector{}
			c.Server = newCollector(t, c)
			s := &stopping{metrics: freeAddress(t), streamed: make(chan struct{})}
			s.settingsWorld = newSettingsWorld(t, "shutdown_grace: "+grace, "metrics_listen: "+s.metrics,
				"otlp_endpoint: "+c.URL)
			s.pushTo(c.URL + "/hook")
			s.write("clerk", "tools: [meet]\nlane: conversation")
			s.talk = s.settingsWorld.talk(t, "clerk", "main")
			if err := s.stop(t, grace); err != nil {
				t.Errorf("the worker ended with %v", err)
			}
			want := []string{
				"begin: API 200, metrics 200, 1 slots, stopped f, turn running",
				"draining: API 200, metrics 200, 0 slots, stopped f, turn running",
				"stopped: API 200, metrics 200, 0 slots, stopped f, turn " + ends,
				"noted: API 200, metrics 200, 0 slots, stopped t, turn " + ends,
			}
			if got := strings.Join(s.seen, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("it was seen as\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			if api, metrics := statusOf(s.ready.API+"/v1/agents"), statusOf("http://"+s.metrics+"/metrics"); api+
				metrics != "refusedrefused" {
				t.Errorf("after it, the API is %s and the metrics are %s", api, metrics)
			}
			if n := storagetest.One[int](s.db,
				"select count(*)::int from turnkeeper.turns where conversation = 'late'"); n != 0 {
				t.Errorf("%d turns were granted while it stopped", n)
			}
			if !c.has(string(s.ready.WorkerID)) {
				t.Error("its last traces were not sent")
			}
		})
	}
}

// stop runs the worker, sends a message whose tool waits, opens a stream and a request that does not end, and stops the
// worker.
func (s *stopping) stop(t *testing.T, grace string) error {
	t.Helper()
	soft, stop := context.WithCancel(context.Background())
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	hook := atPoint(func(point string) {
		if strings.HasPrefix(point, "shutdown.") {
			s.at(point)
		}
		if point == "shutdown.draining" && grace != "0s" {
			s.tools.release()
		}
	})
	go func() {
		ended <- app.RunWorker(soft, context.Background(), s.cfg, zap.NewNop(), func(r app.Ready) {
			s.ready = r
			close(ready)
		},
			app.WithTools(s.tools.all()...), app.WithFaults(hook))
	}()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	if form := fmt.Sprintf(`^%s-%d-[a-z2-7]{8}$`, regexp.QuoteMeta(fmt.Sprintf("%.40s", host)),
		os.Getpid()); !regexp.MustCompile(form).MatchString(string(s.ready.WorkerID)) {
		t.Errorf("the worker is called %s, want %s", s.ready.WorkerID, form)
	}
	s.talk.until(func() bool { // its connection shows others that it is there
		return storagetest.One[bool](s.db, "select turnkeeper.worker_present($1)", string(s.ready.WorkerID))
	})
	s.talk.say("do: say so")
	s.turn = s.talk.in("second").send("do: meet {} | say so")
	s.talk.until(func() bool { return s.tools.met("clerk") > 0 })
	answer, err := http.Get(fmt.Sprintf("%s/v1/messages/%d/events", s.ready.API, s.turn))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", answer, err)
	}
	go func() {
		defer close(s.streamed)
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}()
	stop()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("the worker does not stop")
		return nil
	}
}

// TestAStopWaitsForNoRequest checks that a request whose body does not come keeps the API open for three seconds, and
// no longer.
func TestAStopWaitsForNoRequest(t *testing.T) {
	testrun.Slow(t)
	cfg := settings(t, clockAgent)
	soft, stop := context.WithCancel(context.Background())
	defer stop()
	ready, ended := make(chan app.Ready, 1), make(chan error, 1)
	go func() {
		ended <- app.RunWorker(soft, context.Background(), cfg, zap.NewNop(), func(r app.Ready) { ready <- r })
	}()
	var r app.Ready
	select {
	case r = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.API, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn,
		"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 100)); n == 0 { // the handler reads the body
		t.Fatal(err)
	}
	began := time.Now()
	stop()
	select {
	case err := <-ended:
		if took := time.Since(began); err != nil || took < 2*time.Second || took > 20*time.Second {
			t.Errorf("the worker ended after %s with %v", took, err)
		}
	case <-time.After(patience):
		t.Fatal("the worker does not stop")
	}
}
