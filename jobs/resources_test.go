package jobs_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/lease"
	"turnkeeper/storage/storagetest"
)

// A rig is a process with two slots, whose connections can be cut and whose model and fault points can misbehave once.
type rig struct {
	*site
	p       *process
	proxy   *storagetest.Proxy
	label   string         // of its goroutines
	threads map[string]int // goroutines of the idle process, at most, by what they do
	sent    int            // messages so far

	mu   sync.Mutex
	ask  func(ctx context.Context, body string) (string, error) // answers the next request of a victim; nil: repeats it
	at   string                                                 // where to panic once; empty: nowhere
	done chan struct{}                                          // closed when the fault has happened
}

const rigSlots = 2

// withRig calls f with a rig whose turns are handed over, or come from River's queue.
func withRig(t *testing.T, queued bool, f func(*rig)) {
	s := newSite(t)
	r := &rig{site: s, label: t.Name(), threads: map[string]int{}}
	var url string
	r.proxy, url = storagetest.NewProxy(t, s.url)
	pprof.Do(t.Context(), pprof.Labels("rig", r.label), func(context.Context) {
		r.p = s.start(kind{model: r.answer, slots: rigSlots, scheduler: true, queued: queued, url: url,
			poll:   time.Second,
			change: func(c *jobs.WorkerConfig) { c.Fault = r }})
		r.works()
		for range 20 {
			for what, n := range r.goroutines() {
				r.threads[what] = max(r.threads[what], n)
			}
			one[bool](s, "select true from pg_sleep(0.02)")
		}
		r.idle("at first")
		f(r)
	})
}

func (r *rig) answer(ctx context.Context, body string) (string, error) {
	r.mu.Lock()
	ask := r.ask
	if !strings.HasPrefix(body, "victim") {
		ask = nil
	}
	if ask != nil {
		r.ask = nil
	}
	r.mu.Unlock()
	if ask == nil {
		return echo(ctx, body)
	}
	close(r.done)
	return ask(ctx, body)
}

// At panics once.
func (r *rig) At(_ context.Context, label string) {
	r.mu.Lock()
	panics := r.at == label
	if panics {
		r.at = ""
	}
	r.mu.Unlock()
	if panics {
		close(r.done)
		panic("on purpose")
	}
}

// goroutines returns how many goroutines of this module the rig has, by the function that began them. Those of
// libraries come and go.
func (r *rig) goroutines() map[string]int {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	found := map[string]int{}
	for block := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(block, fmt.Sprintf("labels: {%q:%q}", "rig", r.label)) || !strings.Contains(block,
			"\tturnkeeper/") ||
			strings.Contains(block, "testing.tRunner") {
			continue
		}
		var n int
		_, _ = fmt.Sscanf(strings.TrimLeft(block, "\n"), "%d @", &n)
		functions := frame.FindAllStringSubmatch(block, -1)
		if len(functions) > 0 {
			found[functions[len(functions)-1][1]] += n
		}
	}
	return found
}

// frame matches a function in a profile of goroutines.
var frame = regexp.MustCompile(`(?m)^#\s+0x[0-9a-f]+\s+(\S+)\+0x`)

// held describes what the process holds; empty: no more than an idle one.
func (r *rig) held() string {
	var held []string
	const idle = "%d of %[1]d slots free, 0 running, 0 being fetched, 0 fetched, 0 fetches wait"
	if has := r.p.worker.Resources(); has != fmt.Sprintf(idle, rigSlots) {
		held = append(held, has)
	}
	for _, pool := range r.p.store.Pools() {
		listener := 0
		if pool.Name == "queue" {
			listener = 1
		}
		if pool.Used > listener {
			held = append(held, fmt.Sprintf("%d connections of the pool %s", pool.Used, pool.Name))
		}
	}
	if n := one[int](r.site, `select count(*) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'`); n > 0 {
		held = append(held, fmt.Sprint(n, " open transactions"))
	}
	if n := one[int](r.site, "select count(*) from turnkeeper.leases where grant_id is not null"); n > 0 {
		held = append(held, fmt.Sprint(n, " leases"))
	}
	for what, n := range r.goroutines() {
		if n > r.threads[what] {
			held = append(held, fmt.Sprintf("%d goroutines in %s, and had %d", n, what, r.threads[what]))
		}
	}
	return strings.Join(held, ", ")
}

// idle returns once the process holds no more than an idle one. Meanwhile the process gives back what it was given and
// does not run.
func (r *rig) idle(when string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		held := r.held()
		if held == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s, the process still holds %s", when, held)
		}
		r.p.worker.GiveBack(r.t.Context(), time.Second)
		one[bool](r.site, "select true from pg_sleep(0.02)")
	}
}

func (r *rig) send(body string) turnkeeper.MessageID {
	r.t.Helper()
	r.sent++
	return r.enqueue("desk", fmt.Sprint(r.sent), body)
}

// works checks that the process answers more messages than it has slots.
func (r *rig) works() {
	r.t.Helper()
	var all []turnkeeper.MessageID
	for range rigSlots + 1 {
		all = append(all, r.send("hello"))
	}
	for _, id := range all {
		if reply := r.reply(id); reply.Body != "re: hello" {
			r.t.Errorf("the reply is %q", reply.Body)
		}
	}
}

// suffers sends a message that meets a fault, and checks that afterwards everything is as before.
func (r *rig) suffers(t *testing.T, arm func() (happened <-chan struct{})) {
	t.Helper()
	defer func(all *testing.T) { r.t = all }(r.t)
	r.t = t
	// so that the next tick writes it again
	r.exec("update turnkeeper.settings set last_tick_at = last_tick_at - interval '2 seconds'")
	happened := arm()
	id := r.send("victim")
	select {
	case <-happened:
	case <-time.After(patience):
		t.Fatal("the fault did not happen")
	}
	r.proxy.Plan(nil)
	r.awaitReply(id)
	r.idle("after the fault")
	r.works()
	r.idle("after more messages")
}

// awaitReply returns once the message is answered. Meanwhile the process gives back what it was given and does not run.
func (r *rig) awaitReply(id turnkeeper.MessageID) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !one[bool](r.site, "select exists (select from turnkeeper.replies where message_id = $1) from pg_sleep(0.02)",
		id) {
		if r.p.worker.GiveBack(r.t.Context(), time.Second); time.Now().After(deadline) {
			r.t.Fatalf("the message that met the fault is not answered; the process holds %s", r.held())
		}
	}
}

// arm makes the model misbehave once, or a fault point panic.
func (r *rig) arm(point string, ask func(ctx context.Context, body string) (string, error)) (happened <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.ask, r.done = point, ask, make(chan struct{})
	return r.done
}

// misbehaviour is what a turn may suffer, apart from the loss of a connection.
var misbehaviour = map[string]func(*rig) (happened <-chan struct{}){
	"a panic as the turn begins":  func(r *rig) <-chan struct{} { return r.arm(jobs.PointFetched, nil) },
	"a panic as the turn is read": func(r *rig) <-chan struct{} { return r.arm(jobs.PointLoaded, nil) },
	"a panic at the turn's end":   func(r *rig) <-chan struct{} { return r.arm(jobs.PointWorked, nil) },
	"a panic in the model": func(r *rig) <-chan struct{} {
		return r.arm("", func(context.Context, string) (string, error) { panic("on purpose") })
	},
	"a model that refuses": func(r *rig) <-chan struct{} {
		return r.arm("", func(context.Context, string) (string, error) {
			return "", &inference.Error{Class: inference.ClassInvalid, Detail: "no"}
		})
	},
	"a model that says nothing": func(r *rig) <-chan struct{} {
		return r.arm("", func(context.Context, string) (string, error) { return "", nil })
	},
	"a turn that is cancelled": func(r *rig) <-chan struct{} {
		return r.arm("", func(ctx context.Context, _ string) (string, error) {
			r.cancelVictim()
			<-ctx.Done()
			return "", ctx.Err()
		})
	},
	"a turn whose lease is taken": func(r *rig) <-chan struct{} {
		return r.arm("", func(ctx context.Context, _ string) (string, error) {
			r.exec(
				`update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()
				where grant_id is not null`)
			r.exec("notify turnkeeper_inbox")
			<-ctx.Done()
			return "", ctx.Err()
		})
	},
	"a worker that was silent": func(r *rig) <-chan struct{} {
		return r.arm("", func(ctx context.Context, _ string) (string, error) {
			r.p.worker.Stop(lease.ErrSilent)
			<-ctx.Done()
			return "", ctx.Err()
		})
	},
	"a worker that hands its turns on": func(r *rig) <-chan struct{} {
		return r.arm("", func(ctx context.Context, _ string) (string, error) {
			r.p.worker.Stop(agentturn.ErrShutdown)
			<-ctx.Done()
			return "", ctx.Err()
		})
	},
	"a job of a grant that is over": func(r *rig) <-chan struct{} {
		return r.arm("", func(context.Context, string) (string, error) {
			_, err := r.p.client.Insert(context.Background(), jobs.TurnArgs{TurnID: 1,
				GrantID: "00000000-0000-4000-8000-000000000000"}, nil)
			return "re: victim", err
		})
	},
}

func (r *rig) cancelVictim() {
	id := one[turnkeeper.TurnID](r.site, "select max(id) from turnkeeper.turns where state = 'running'")
	if _, err := r.CancelTurn(context.Background(), id, "enough"); err != nil {
		r.t.Error(err)
	}
}

var statement = regexp.MustCompile(`name: (\w+) `)

// statements returns the names of the statements that the process sends for each message.
func (r *rig) statements() (names []string) {
	r.works()
	first, second := r.ofAMessage(), r.ofAMessage()
	for name := range first {
		if second[name] && name != "Beat" && name != "AdvisoryLock" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ofAMessage returns the names of the statements that the process sends while it handles a message.
func (r *rig) ofAMessage() map[string]bool {
	var mu sync.Mutex
	seen := map[string]bool{}
	r.proxy.Plan(func(sent storagetest.Sent) storagetest.Cut {
		mu.Lock()
		defer mu.Unlock()
		for _, sql := range sent.Statements {
			if name := statement.FindStringSubmatch(sql); name != nil {
				seen[name[1]] = true
			}
		}
		return storagetest.Pass
	})
	r.works()
	r.proxy.Plan(nil)
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(seen)
}

// A loss is that of a statement or of its answer.
type loss struct {
	name string
	cut  storagetest.Cut
}

// losses returns the losses that a rig suffers: outside of CI, those of what takes and frees slots.
func (r *rig) losses(queued bool) (all []loss) {
	names, seen := []string{"EndMany", "Grant"}, r.statements()
	if queued {
		names = append(names, "BindGrant", "JobGetAvailable")
	} else { // a message has no job, unless the process had no free slot at that moment
		seen = slices.DeleteFunc(seen, func(name string) bool { return strings.HasPrefix(name, "Job") })
	}
	for _, name := range names {
		if !slices.Contains(seen, name) {
			r.t.Errorf("the process does not send %s: %s", name, seen)
		}
	}
	if testrun.All() {
		names = seen
	}
	for _, name := range names {
		all = append(all, loss{name, storagetest.Lose}, loss{name, storagetest.Unanswer})
	}
	return all
}

// After any fault, a process holds what it held before, and answers messages: turns that misbehave, and the loss of
// each statement that it sends for a message, or of the answer.
func TestResourcesAfterAFault(t *testing.T) {
	testrun.Slow(t)
	for name, queued := range map[string]bool{"handed over": false, "fetched": true} {
		t.Run(name, func(t *testing.T) {
			withRig(t, queued, func(r *rig) {
				losses := r.losses(queued) // first, because a job that failed is fetched again later
				for _, name := range testrun.Sample(slices.Sorted(maps.Keys(misbehaviour)), 4) {
					t.Run(name, func(t *testing.T) {
						r.suffers(t, func() <-chan struct{} { return misbehaviour[name](r) })
					})
				}
				for _, l := range losses {
					t.Run(fmt.Sprint("the loss of ", l.name, ", done: ", l.cut == storagetest.Unanswer),
						func(t *testing.T) {
							r.suffers(t, func() <-chan struct{} {
								return r.proxy.CutNext(l.cut, func(sent storagetest.Sent) bool {
									return sent.Has("name: " + l.name + " ")
								})
							})
						})
				}
			})
		})
	}
}
