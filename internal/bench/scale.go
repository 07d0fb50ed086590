package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"turnkeeper/internal/config"
	"turnkeeper/internal/pause"
)

// A trivial turn is one message and one round without tools. One grant starts it, as it does every turn.

// Grants says how fast one scheduler grants turns that no worker runs.
type Grants struct {
	Grants    int     `json:"grants"`
	PerSecond float64 `json:"grants_per_second"`
	Scheduler float64 `json:"scheduler_cpu_ms_per_grant,omitzero"` // 0: not measured
	Postgres  float64 `json:"postgres_cpu_ms_per_grant,omitzero"`
	Blocks    float64 `json:"blocks_per_grant,omitzero"`
}

// scale measures trivial turns with one scheduler and more and more worker processes, and the scheduler alone.
func (b *bench) scale(ctx context.Context, r *Report) error {
	if len(b.Workers) == 0 {
		return nil
	}
	all := Series{Name: "workers", Sizes: fmt.Sprintf(
		"worker processes of %d slots; the scheduler is a process of its own, turns are trivial", minSlots)}
	for i, n := range b.Workers {
		b.Progress(fmt.Sprintf("worker processes: %d", n))
		f, err := b.scaled(ctx, n)
		if err != nil {
			return err
		}
		all.Steps = append(all.Steps, Step{Size: n, Figure: f})
		all.Steps[i].relate(all.Steps[0].Figure)
	}
	r.Series = append(r.Series, all)
	b.Progress("grants of one scheduler")
	return b.grants(ctx, r)
}

// startScheduler starts a process that only schedules, on a new database.
func (b *bench) startScheduler(ctx context.Context, database string) (*system, setup, error) {
	set := setup{
		Database: databaseURL(b.server, database), Model: b.model.url,
		Agents: filepath.Join(b.agents, databases[Turnkeeper]), Slots: minSlots,
		Roles: []string{config.RoleScheduler},
	}
	if err := b.newDatabase(ctx, database); err != nil {
		return nil, set, err
	}
	scheduler, err := startProcess(ctx, "worker", set)
	return &system{
		name: Turnkeeper, database: database, runs: scheduler,
		processes: map[string]*process{"scheduler": scheduler, "model": b.model},
	}, set, err
}

func (b *bench) scaled(ctx context.Context, workers int) (f Figure, err error) {
	s, set, err := b.startScheduler(ctx, fmt.Sprintf("workers-%d", workers))
	if err != nil {
		return f, err
	}
	defer func() {
		if s.driver != nil {
			err = errors.Join(err, s.driver.close())
		}
		for name, p := range s.processes {
			if name != "model" {
				err = errors.Join(err, p.close())
			}
		}
	}()
	set.Roles = []string{config.RoleWorker}
	for i := range workers {
		p, err := startProcess(ctx, "worker", set)
		if err != nil {
			return f, err
		}
		s.processes[fmt.Sprintf("worker %d", i+1)] = p
	}
	if s.driver, err = startProcess(ctx, "sender", set); err != nil {
		return f, err
	}
	s.processes["sender"] = s.driver
	lanes := 2 * minSlots * workers // so that a message waits for each slot
	l := load{Agent: trivialAgent, Name: "scale", Lanes: lanes, Turns: max(b.Turns, lanes), Reuse: 2}
	if err := s.warm(l, max(b.WarmUp, lanes)); err != nil {
		return f, err
	}
	c := &contest{system: s, load: l, figure: Figure{System: Turnkeeper, Lanes: lanes}}
	err = b.compare(ctx, 1, []*contest{c})
	return c.figure, err
}

// grants lets one scheduler grant a turn in each of many lanes, as fast as it can. The worker that has the slots for
// them is only a heartbeat, so no turn runs.
func (b *bench) grants(ctx context.Context, r *Report) (err error) {
	s, set, err := b.startScheduler(ctx, "grants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.runs.close()) }()
	conn, err := openFiller(ctx, set.Database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	n := max(b.Turns, minSlots)
	if _, err := conn.Exec(ctx, pauseScheduler); err != nil {
		return err
	}
	if err := fillBacklog(ctx, conn, backlog{name: "granted", messages: n, lanes: n,
		due: "now() - interval '1 hour' + i * interval '1 ms'"}); err != nil {
		return err
	}
	if err := settle(ctx, conn); err != nil {
		return err
	}
	_,
		err = conn.Exec(ctx,
		`insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, roles, slots, takeover_after)
		values ('nobody', '', 0, '', '{worker}', $1, '0')`, n)
	if err != nil {
		return err
	}
	before, err := b.counters.count(ctx, s, false)
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := conn.Exec(ctx, resumeScheduler); err != nil {
		return err
	}
	for granted := 0; granted < n; {
		if err := pause.For(ctx, drainEvery); err != nil {
			return err
		}
		err := conn.QueryRow(ctx,
			`with beat as (update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() where worker_id = 'nobody')
			select count(*) from turnkeeper.lease_log`).Scan(&granted)
		if err != nil {
			return err
		}
	}
	took := time.Since(began)
	after, err := b.counters.count(ctx, s, true)
	if err != nil {
		return err
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	r.Grants = &Grants{
		Grants: n, PerSecond: float64(n) / took.Seconds(), Blocks: float64(after.blocks-before.blocks) / float64(n),
		Scheduler: per(after.cpu["scheduler"] - before.cpu["scheduler"]),
		Postgres:  per(after.cpu["postgres"] - before.cpu["postgres"]),
	}
	return nil
}
