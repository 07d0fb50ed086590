package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/webhooks"
	"turnkeeper/tools"
)

// listenerAt is a listener with an address, which listens to nothing.
type listenerAt struct {
	net.Listener
	address net.Addr
}

func (l listenerAt) Addr() net.Addr { return l.address }

// TestWhoNeedsAToken checks which addresses are open to other machines, and which hosts a request may name.
func TestWhoNeedsAToken(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		hosts []string
		needs bool
		want  []string
	}{
		"127.0.0.1:80": {nil, false, []string{"127.0.0.1"}},
		"[::1]:80":     {nil, false, []string{"::1"}},
		"127.0.0.2:80": {[]string{"b.example", "a.example"}, true, []string{"127.0.0.2", "b.example", "a.example"}},
		"0.0.0.0:80":   {nil, true, []string{"0.0.0.0"}},
		"10.0.0.1:80":  {nil, true, []string{"10.0.0.1"}},
	} {
		address, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{cfg: config.Default(), bound: bound{api: listenerAt{address: address}}}
		w.cfg.Listen, w.cfg.AllowedHosts = text, c.hosts
		if got := w.needToken(); got != c.needs {
			t.Errorf("%s: needs a token: %t", text, got)
		}
		for range 2 { // asking changes nothing
			if got := allowedHosts(w.cfg); !slices.Equal(got, c.want) {
				t.Errorf("%s: hosts %q", text, got)
			}
		}
		if got := w.bound.addresses(); !slices.Equal(got, []string{text}) {
			t.Errorf("it listens on %q", got)
		}
	}
	w := &worker{bound: bound{api: listenerAt{address: &net.UnixAddr{}}}, cfg: config.Default()}
	if !w.needToken() {
		t.Error("a listener of an unknown kind needs no token")
	}
	for listen, want := range map[string][]string{"Turns.Example:80": {"turns.example", "x"}, "": {"x"}, ":80": {"x"}} {
		w.cfg.Listen, w.cfg.AllowedHosts = listen, []string{"x"}
		if got := allowedHosts(w.cfg); !slices.Equal(got, want) {
			t.Errorf("listen %q: hosts %q", listen, got)
		}
	}
}

// TestWhereAProcessListens checks what is opened, and that nothing stays open if one address is taken.
func TestWhereAProcessListens(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, c := range map[string]struct {
		listen, metrics, role string
		opens                 int
		says                  string
	}{
		"both":    {"127.0.0.1:0", "127.0.0.1:0", config.RoleAPI, 2, ""},
		"no role": {"127.0.0.1:0", "127.0.0.1:0", config.RoleWorker, 1, ""},
		"none":    {"", "", config.RoleAPI, 0, ""},
		"the API's is taken": {taken.Addr().String(), "127.0.0.1:0", config.RoleAPI, 0,
			"cannot listen on " + taken.Addr().String() + " (setting listen)"},
		"the metrics' is": {"127.0.0.1:0", taken.Addr().String(), config.RoleAPI, 0,
			"cannot listen on " + taken.Addr().String() + " (setting metrics_listen)"},
	} {
		cfg := config.Default()
		cfg.Listen, cfg.MetricsListen, cfg.Roles = c.listen, c.metrics, []string{c.role}
		b, err := bind(t.Context(), cfg, zap.NewNop())
		if got := b.addresses(); len(got) != c.opens || (err == nil) != (c.says == "") || err != nil &&
			!strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		addresses := b.addresses()
		b.close()
		for _, address := range addresses {
			again, err := net.Listen("tcp", address)
			if err != nil {
				t.Errorf("%s: %s is still open: %v", name, address, err)
				continue
			}
			_ = again.Close()
		}
	}
}

// TestAWebhookNamesAStranger checks that strangers are named in a warning, and that the webhook keeps all its agents.
func TestAWebhookNamesAStranger(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	w := &worker{log: zap.New(core), agents: &setup.Agents{}}
	w.agents.Current.Store(agentdef.NewSet([]*agentdef.Definition{{Name: "clerk"}, {Name: "desk"}}))
	named := []string{"clerk", "nobody", "desk", "stranger"}
	w.warnOfStrangers("hook", named[:1])
	w.warnOfStrangers("hook", nil)
	if logged.Len() != 0 {
		t.Errorf("it warns of its own agents: %v", logged.All())
	}
	w.warnOfStrangers("hook", named)
	if !slices.Equal(named, []string{"clerk", "nobody", "desk", "stranger"}) {
		t.Errorf("the webhook's agents are now %q", named)
	}
	want := map[string]any{"webhook": "hook", "agents": "nobody, stranger"}
	if all := logged.All(); len(all) != 1 || all[0].Level != zap.WarnLevel || !cmp.Equal(all[0].ContextMap(), want) {
		t.Errorf("it says %v", all)
	}
}

// TestEveryFieldOfAnEndpoint checks that each setting of a webhook has its own place.
func TestEveryFieldOfAnEndpoint(t *testing.T) {
	t.Parallel()
	w := config.Webhook{
		Name: "n", URL: config.NewSecret("https://h.example:1/t0ken"), Keys: [][]byte{{1}, {2}}, Agents: []string{"a"},
		SubAgents: true, Timeout: 1, Concurrency: 2, MaxAttempts: 3, MaxAge: 4,
	}
	want := webhooks.Endpoint{
		Name: "n", URL: "https://h.example:1/t0ken", Origin: "https://h.example:1", Keys: [][]byte{{1}, {2}},
		Agents: []string{"a"}, SubAgents: true, Timeout: 1, Concurrency: 2, MaxAttempts: 3, MaxAge: 4,
	}
	if got := endpointOf(w); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.SubAgents, want.SubAgents = false, false
	w.Asks, want.Asks = true, true
	if got := endpointOf(w); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.Asks, want.Asks = false, false
	w.AllowPrivate, want.AllowPrivate = true, true
	if got := endpointOf(w); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestAtOnceAfterTheSecondSignal checks when the second signal cuts a wait short, and that it can be taken back.
func TestAtOnceAfterTheSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(wait time.Duration, signal, undone bool) bool {
			hard, end := context.WithCancel(t.Context())
			defer end()
			called := make(chan struct{}, 1)
			undo := soonAfter(hard, func() { called <- struct{}{} })
			if signal {
				end()
				synctest.Wait()
			}
			if undone {
				undo()
			}
			time.Sleep(wait) //nolint:forbidigo // of the bubble
			synctest.Wait()
			return len(called) == 1
		}
		for _, c := range []struct {
			wait           time.Duration
			signal, undone bool
			want           bool
		}{
			{atOnce - 1, true, false, false}, {atOnce, true, false, true}, {time.Hour, false, false, false},
			{time.Hour, true, true, false}, {time.Hour, false, true, false},
		} {
			if got := after(c.wait, c.signal, c.undone); got != c.want {
				t.Errorf("%+v: called %t", c, got)
			}
		}
	})
}

// TestTheSlotsOfAWorker checks that only a worker of turns that does not stop has slots, and what its heartbeat says of
// itself.
func TestTheSlotsOfAWorker(t *testing.T) {
	t.Parallel()
	w := &worker{cfg: config.Default()}
	w.cfg.WorkerSlots = 7
	if got := w.slots(); got != 7 {
		t.Errorf("it has %d slots", got)
	}
	w.cfg.Roles = []string{config.RoleScheduler}
	if got := w.slots(); got != 0 {
		t.Errorf("a scheduler has %d slots", got)
	}
	w.cfg.Roles, w.draining = config.Default().Roles, true
	if got := w.slots(); got != 0 {
		t.Errorf("one that stops has %d slots", got)
	}
	form := regexp.MustCompile(fmt.Sprintf(`^[^.]{1,40}-%d-[a-z0-9]{8}$`, os.Getpid()))
	if first, again := newWorkerID(), newWorkerID(); !form.MatchString(string(first)) || first == again {
		t.Errorf("ids %s and %s", first, again)
	}
	registry := &tools.Registry{}
	for _, spec := range []tools.Spec{{Name: "near"}, {Name: "far", Detached: true, Timeout: time.Hour},
		{Name: "further", Detached: true, Timeout: time.Hour}} {
		spec.Description = "Does nothing."
		if err := registry.Register(tools.Func(spec, func(context.Context, struct{}) (string, error) {
			return "", nil
		})); err != nil {
			t.Fatal(err)
		}
	}
	if got := detached(registry); !slices.Equal(got, []string{"far", "further"}) {
		t.Errorf("detached are %q", got)
	}
	points := FaultPoints()
	slices.Sort(points)
	if len(points) != len(slices.Compact(slices.Clone(points))) || slices.Contains(points, "") ||
		!slices.Contains(points, pointNoted) {
		t.Errorf("fault points: %q", points)
	}
}
