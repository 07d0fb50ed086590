package env

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pause"
)

// A Person approves every ask, and remembers what was approved, outside of the product.
type Person struct {
	e        *Env
	stop     context.CancelFunc
	ended    chan struct{}
	mu       sync.Mutex
	approved map[string]string // label of the mark, by turn, call and tool
	early    []string          // marks that were there before their approval
}

// StartPerson starts a person, who stops when the test ends, if not before.
func (e *CrashEnv) StartPerson() *Person {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Person{e: e.Env, stop: cancel, ended: make(chan struct{}), approved: map[string]string{}}
	go func() {
		defer close(p.ended)
		for pause.For(ctx, 20*time.Millisecond) == nil {
			p.answer(ctx)
		}
	}()
	e.T.Cleanup(p.Stop)
	return p
}

// Stop stops the person.
func (p *Person) Stop() {
	p.stop()
	<-p.ended
}

type openAsk struct {
	ID                int64
	Turn              int64
	Call, Tool, Label string
}

func (a openAsk) key() string { return fmt.Sprintf("%s of turn %d: %s", a.Call, a.Turn, a.Tool) }

// answer approves the open asks. An error means that the server is away: it is tried again.
func (p *Person) answer(ctx context.Context) {
	rows, err := p.e.DB.Query(ctx,
		`select id, turn_id as turn, 'round-' || round || '-tool-' || ordinal as call, tool, coalesce(arguments::jsonb ->> 'label', '') as label
		from turnkeeper.asks where state = 'open' order by id`)
	if err != nil {
		return
	}
	asks, err := pgx.CollectRows(rows, pgx.RowToStructByName[openAsk])
	if err != nil {
		return
	}
	for _, ask := range asks {
		p.mu.Lock()
		if _, known := p.approved[ask.key()]; !known && len(p.e.Ledger.Runs(ask.Label)) > 0 {
			p.early = append(p.early, ask.key()+" "+ask.Label)
		}
		p.approved[ask.key()] = ask.Label
		p.mu.Unlock()
		_, _ = p.e.DB.Exec(ctx, "select turnkeeper.answer_ask($1, 'approved', 'ann')", ask.ID)
	}
}

// WantOnlyApproved fails the test unless each run of the tools was approved, with its label, before it ran, and each
// approval was used by one run: one of a tool of effect once, or several with one key.
func (p *Person) WantOnlyApproved(tools ...string) {
	p.e.T.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.early) > 0 {
		p.e.T.Errorf("ran before somebody was asked: %v", p.early)
	}
	used := map[string]Mark{}
	for _, m := range p.e.Ledger.Marks() {
		if !slices.Contains(tools, m.Tool) {
			continue
		}
		key := openAsk{Turn: m.Turn, Call: m.Call, Tool: m.Tool}.key()
		if label, asked := p.approved[key]; !asked || label != m.Label {
			p.e.T.Errorf("ran without an approval: %s with %q; approved was %q", key, m.Label, label)
		}
		if before, again := used[key]; again && (m.Tool == "mark_once" || m.IdempotencyKey != before.IdempotencyKey) {
			p.e.T.Errorf("%s ran twice for one approval", key)
		}
		used[key] = m
	}
	for key := range p.approved {
		if _, ran := used[key]; !ran {
			p.e.T.Errorf("%s was approved and has not run", key)
		}
	}
}
