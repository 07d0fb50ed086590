package jobs_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/presence"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A site is a database with two agents, clerk and desk, and the processes that use it. desk has a
// lane for each conversation.
type site struct {
	*storagetest.DB
	t   *testing.T
	url string
}

// newSite returns a site for one test. It makes the test parallel.
func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	db := storagetest.Reused(t, "")
	s := &site{db, t, db.URL}
	for name, source := range map[string]string{
		"clerk": "---\ndescription: d\nmodel: script/m\n---\nYou are the clerk.\n",
		"desk":  "---\ndescription: d\nmodel: script/m\nlane: conversation\n---\nYou are the desk.\n",
	} {
		s.register(name, source)
	}
	return s
}

// register registers an agent with the text of its file.
func (s *site) register(name, source string) {
	s.t.Helper()
	d, err := agentdef.Parse(name+".md", []byte(source))
	if err != nil {
		s.t.Fatal(err)
	}
	err = s.RegisterAgents(s.t.Context(), []turnkeeper.AgentRegistration{{
		Name: name, Definition: d.Source, DefinitionHash: d.Hash, LanePerConversation: d.LanePerConversation,
		Models: []string{"script/m"}, GiveUpAfter: bounds.Default().GiveUpAfter,
	}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) enqueue(agent, conversation, body string) turnkeeper.MessageID {
	s.t.Helper()
	id, err := s.Enqueue(s.t.Context(), turnkeeper.Submission{Agent: agent, Conversation: conversation, Body: body})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func one[T any](s *site, sql string, args ...any) T {
	s.t.Helper()
	rows, _ := s.Pool().Query(s.t.Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.Pool().Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// patience is the timeout of every wait for an event, much longer than any event takes.
const patience = time.Minute

// await returns when a query returns true.
func (s *site) await(sql string, args ...any) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !one[bool](s, "select ("+sql+") from pg_sleep(0.02)", args...) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in time: %s\n%s", sql, s.state())
		}
	}
}

// state returns the rows that say who runs what, as JSON.
func (s *site) state() string {
	return one[string](s, `select jsonb_pretty(jsonb_build_object('now', clock_timestamp(),
		'turns', (select jsonb_agg(to_jsonb(t)) from turnkeeper.turns t),
		'leases', (select jsonb_agg(to_jsonb(l)) from turnkeeper.leases l),
		'ended', (select jsonb_agg(to_jsonb(g)) from turnkeeper.ended_grants g),
		'workers', (select jsonb_agg(to_jsonb(w)) from turnkeeper.worker_heartbeat w),
		'jobs', (select jsonb_agg(jsonb_build_object('id', id, 'state', state, 'attempted_by', attempted_by,
			'attempted_at', attempted_at)) from turnkeeper.river_job)))`)
}

// awaitRunning returns when n turns run in a process.
func (s *site) awaitRunning(p *process, n int) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for p.worker.Running() != n {
		if one[bool](s, "select true from pg_sleep(0.02)"); time.Now().After(deadline) {
			s.t.Fatalf("%d turns run, want %d", p.worker.Running(), n)
		}
	}
}

func (s *site) reply(id turnkeeper.MessageID) turnkeeper.Reply {
	s.t.Helper()
	s.await("exists (select from turnkeeper.replies where message_id = $1)", id)
	reply, err := s.ReplyTo(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// view returns the newest turn of a message.
func (s *site) view(id turnkeeper.MessageID) operate.TurnView {
	s.t.Helper()
	m, err := s.Message(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	view, err := s.ViewTurn(s.t.Context(), m.TurnID)
	if err != nil {
		s.t.Fatal(err)
	}
	return view
}

// A model answers requests.
type model func(ctx context.Context, body string) (string, error)

func (m model) Generate(ctx context.Context, req inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	text, err := m(ctx, req.Messages[len(req.Messages)-1].Text)
	return inference.Response{Provider: "script", Model: "m", Text: text, FinishReason: "stop"}, err
}

func (m model) Find(string) (inference.Provider, agentturn.ModelInfo, error) {
	return m, agentturn.ModelInfo{Provider: "script", Model: "m"}, nil
}

// echo is a model that repeats the message.
func echo(_ context.Context, body string) (string, error) { return "re: " + body, nil }

// A process is a small worker process: River's client with its worker, heartbeats, and a
// scheduler.
type process struct {
	id     turnkeeper.WorkerID
	store  *storagetest.DB
	client *jobs.Client
	worker *jobs.Worker
	hush   func() // ends the heartbeats without reporting a stop
}

// never is how often processes poll: doorbells make everything happen.
const never = time.Hour

// A kind is the configuration of a process.
type kind struct {
	model     model         // nil: the process runs no turns
	slots     int           // 0: 4
	takeover  time.Duration // 0: patience
	scheduler bool
	queued    bool          // its scheduler leaves all turns to River
	passive   bool          // it fetches nothing from River
	poll      time.Duration // how often it looks for jobs without a doorbell; 0: never
	log       *zap.Logger
	url       string                   // of its database; empty: the site's
	present   bool                     // the server knows that the process exists
	change    func(*jobs.WorkerConfig) // nil: none
}

func (s *site) start(k kind) *process {
	s.t.Helper()
	if k.slots == 0 {
		k.slots = 4
	}
	if k.takeover == 0 {
		k.takeover = patience
	}
	p := &process{id: turnkeeper.WorkerID("w-" + rand.Text()[:6]), store: storagetest.Open(s.t, cmp.Or(k.url, s.url))}
	bounds := bounds.Default()
	config := jobs.ClientConfig{Pool: p.store.QueuePool(), WorkerID: p.id, Slots: k.slots, Log: k.log}
	config.PollEvery(cmp.Or(k.poll, never))
	if k.model != nil {
		c := jobs.WorkerConfig{
			DB: p.store.DB, WorkerID: p.id, Bounds: bounds, Runner: agentturn.New(agentturn.Config{Models: k.model,
				Bounds: bounds, Budget: &jobs.Spend{Grants: p.store.Grants}}),
		}
		if k.change != nil {
			k.change(&c)
		}
		p.worker = jobs.NewWorker(c)
		p.worker.PollEvery(never)
		config.Worker = p.worker
	}
	var err error
	if p.client, err = jobs.NewClient(config); err != nil {
		s.t.Fatal(err)
	}
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	if k.model != nil {
		s.work(ctx, p, k, &group)
	}
	if k.scheduler {
		s.schedule(ctx, p, k, &group)
	}
	s.t.Cleanup(func() {
		stop()
		if k.model != nil {
			ending, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			p.worker.Drain()
			p.worker.Stop(context.Canceled)
			if err := p.client.StopAndCancel(ending); err != nil && !k.passive {
				s.t.Errorf("stopping River: %v", err)
			}
		}
		group.Wait()
		if p.worker != nil {
			p.worker.Wait()
		}
	})
	return p
}

func (s *site) work(ctx context.Context, p *process, k kind, group *sync.WaitGroup) {
	s.t.Helper()
	beat := func(ctx context.Context) error {
		return p.store.Beat(ctx, presence.Heartbeat{WorkerID: p.id, Host: "h", Version: "v", Slots: k.slots,
			TakeoverAfter: k.takeover})
	}
	if err := beat(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	beating, hush := context.WithCancel(ctx)
	hushed := make(chan struct{})
	p.hush = func() {
		hush()
		<-hushed
	}
	group.Go(func() {
		defer close(hushed)
		tick := time.NewTicker(k.takeover / 5)
		defer tick.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case <-tick.C:
				if err := beat(beating); err != nil && beating.Err() == nil {
					s.t.Error(err)
				}
			}
		}
	})
	if k.passive {
		return
	}
	bell := storage.NewNotifier(cmp.Or(k.url, s.url), zap.NewNop())
	if k.present {
		bell.Worker = p.id
	}
	cancels, _ := bell.Subscribe(storage.TopicCancels)
	group.Go(func() { bell.Run(ctx) })
	group.Go(func() { p.worker.WatchCancels(ctx, cancels) })
	if err := p.client.Start(context.WithoutCancel(ctx)); err != nil {
		s.t.Fatal(err)
	}
	if err := p.store.RingInbox(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) schedule(ctx context.Context, p *process, k kind, group *sync.WaitGroup) {
	bell := storage.NewNotifier(cmp.Or(k.url, s.url), zap.NewNop())
	rings, _ := bell.Subscribe(storage.TopicInbox)
	freed, _ := bell.Subscribe(storage.TopicFreed)
	group.Go(func() { bell.Run(ctx) })
	group.Go(func() {
		c := scheduler.Config{Store: s.dispatcher(p), Wake: rings, Freed: freed, PollInterval: never}
		if p.worker != nil && !k.queued {
			c.Local = p.worker
		}
		scheduler.New(c).Run(ctx)
	})
}

func (s *site) dispatcher(p *process) *jobs.Dispatcher {
	return &jobs.Dispatcher{Grants: p.store.Grants, TTL: bounds.Default().LeaseTTL}
}

// jobStates counts River's rows by state.
func (s *site) jobStates() string {
	s.t.Helper()
	return one[string](s,
		"select coalesce(string_agg(n || ' ' || state, ', ' order by state), '') from (select state::text, count(*) n from turnkeeper.river_job group by 1) g")
}

// A tally records the requests to models, and how many ran at once.
type tally struct {
	mu     sync.Mutex
	bodies []string
	active int
	most   int
}

func (t *tally) counted(m model) model {
	return func(ctx context.Context, body string) (string, error) {
		t.mu.Lock()
		t.bodies = append(t.bodies, body)
		t.active++
		t.most = max(t.most, t.active)
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.active--
		}()
		return m(ctx, body)
	}
}

func (t *tally) asked() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.bodies...)
}

func numbered(n int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("message %03d", i))
	}
	return bodies
}
