package bench

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/operate"
)

// Retention says how old turns were deleted while others ran. Section "retention" of the figures compares turns with
// and without it.
type Retention struct {
	Turns     int     `json:"turns"` // deleted
	PerSecond float64 `json:"turns_per_second"`
	// none was left before the end: part of the turns ran alone
	All     bool    `json:"all"`
	Longest float64 `json:"longest_purge_ms,omitzero"` // the longest statement of the purge; 0: not measured
	// the longest statement of the worker and the sender beside the purge
	Of      string  `json:"longest_statement,omitempty"`
	OfMS    float64 `json:"longest_statement_ms,omitzero"` //
	AloneMS float64 `json:"longest_alone_ms,omitzero"`     // the longest of them without a purge
}

// The age of the turns that a purge deletes, and the age from which it deletes.
const (
	oldTurns = 60 * 24 * time.Hour
	keptFor  = 30 * 24 * time.Hour
)

// retention compares the same turns with and without a purge of old turns beside them, in alternating blocks.
func (b *bench) retention(ctx context.Context, r *Report) error {
	if b.Retention == 0 || b.Turns == 0 {
		return nil
	}
	b.Progress("turns while old ones are deleted")
	f, err := b.openField(ctx, SectionRetention)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close(ctx)) }()
	if err := copyTurns(ctx, f.conn, b.Retention, "'old-' || i / 10", oldTurns); err != nil {
		return err
	}
	if err := settle(ctx, f.conn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return errUnreadableAddress
	}
	defer conn.Close(context.WithoutCancel(ctx))
	n, turns := blocks(b.Turns, 4, minSlots)
	if err := f.own.warm(standard("retention", minSlots, 0), max(b.WarmUp, minSlots)); err != nil {
		return err
	}
	purge := &purger{conn: conn, counters: b.counters, database: f.own.database}
	newContest := func(name string, beside func(context.Context) (func() error, error)) *contest {
		return &contest{
			system: f.own, load: standard(name, minSlots, turns), beside: beside,
			figure: Figure{Section: SectionRetention, System: Turnkeeper, Case: name, Lanes: minSlots},
		}
	}
	both := []*contest{newContest("alone", purge.watch), newContest("beside a purge", purge.run)}
	if err := b.compare(ctx, n, both); err != nil {
		return err
	}
	for _, c := range both {
		r.Figures = append(r.Figures, c.figure)
	}
	purge.PerSecond = float64(purge.Turns) / purge.took.Seconds()
	r.Retention = &purge.Retention
	return nil
}

// A purger deletes old turns, and reads which statements took longest.
type purger struct {
	Retention
	conn     *pgx.Conn
	counters *counters
	database string
	took     time.Duration
}

// watch resets the times of statements. stop reads the longest.
func (p *purger) watch(ctx context.Context) (stop func() error, err error) {
	if err := p.counters.forget(ctx, p.database); err != nil {
		return nil, err
	}
	return func() error {
		_, ms, err := p.counters.longest(ctx, p.database, false)
		p.AloneMS = max(p.AloneMS, ms)
		return err
	}, nil
}

// run deletes old turns until stop is called, or none is left. It deletes one batch at least.
func (p *purger) run(ctx context.Context) (stop func() error, err error) {
	if err := p.counters.forget(ctx, p.database); err != nil {
		return nil, err
	}
	quit, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		began := time.Now()
		err := p.purge(ctx, quit)
		p.took += time.Since(began)
		ended <- err
	}()
	return func() error {
		close(quit)
		if err := <-ended; err != nil {
			return err
		}
		_, purge, err := p.counters.longest(ctx, p.database, true)
		if err != nil {
			return err
		}
		p.Longest = max(p.Longest, purge)
		name, ms, err := p.counters.longest(ctx, p.database, false)
		if ms > p.OfMS {
			p.Of, p.OfMS = name, ms
		}
		return err
	}, nil
}

// purge deletes batches as the worker does for the setting retention.
func (p *purger) purge(ctx context.Context, quit <-chan struct{}) error {
	for after := int64(0); ; {
		began := time.Now()
		var messages, turns, last int64
		err := p.conn.QueryRow(ctx,
			`select messages, turns, coalesce(last, 0) from turnkeeper.purge(p_agent => '', p_user => null, p_conversation => '',
			p_before => now() - $1::interval, p_after => $2, p_limit => 100, p_dry => false, p_undelivered => false)`, keptFor, after).Scan(&messages, &turns, &last)
		if err != nil {
			return err
		}
		p.Turns += int(turns)
		if p.All = messages == 0; p.All {
			return nil
		}
		after = last
		select {
		case <-quit:
			return nil
		case <-time.After(operate.PurgePause * time.Since(began)):
		}
	}
}

// forget resets the times of the statements of a database.
func (c *counters) forget(ctx context.Context, database string) error {
	if !c.statements {
		return nil
	}
	_, err := c.conn.Exec(ctx,
		"select pg_stat_statements_reset(0, (select oid from pg_database where datname = $1), 0)", database)
	return err
}

// longest returns the name of the longest statement of a database, and how long it took: of a purge, or of others.
func (c *counters) longest(ctx context.Context, database string, purge bool) (name string, ms float64, err error) {
	if !c.statements {
		return "", 0, nil
	}
	err = c.conn.QueryRow(ctx, `select query, max_exec_time from pg_stat_statements
		where dbid = (select oid from pg_database where datname = $1) and (query like '%turnkeeper.purge(%') = $2
		order by max_exec_time desc limit 1`, database, purge).Scan(&name, &ms)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return statementName(name), ms, err
}
