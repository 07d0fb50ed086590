package storage

import (
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// queueHealth writes what a turn has learnt of models, and what its failure means for its
// message and lane. It comes last, after the lane's lease: see the function note_models.
func (w *TurnWriter) queueHealth(ctx context.Context, q *dbsqlc.Queries, e turnkeeper.Entry) error {
	if o := e.Outcome; o != nil && o.State == turnkeeper.TurnFailed {
		if err := q.NoteFault(ctx, orNone(o.WaitsFor), int64(w.grant.TurnID), o.Counted); err != nil {
			return err
		}
	}
	if len(e.Answered)+len(e.ModelFailures) == 0 {
		return nil
	}
	p := dbsqlc.NoteModelsParams{
		Answered: orNone(e.Answered), Failed: []string{}, Seen: []int32{}, Classes: []string{}, Errors: []string{}, Asked: []time.Duration{},
	}
	for _, f := range e.ModelFailures {
		p.Failed = append(p.Failed, f.Model)
		p.Seen = append(p.Seen, int32(f.Seen)) //nolint:gosec // few
		p.Classes = append(p.Classes, w.clean(f.ErrorClass))
		p.Errors = append(p.Errors, w.clean(f.Error))
		p.Asked = append(p.Asked, f.RetryAfter)
	}
	return q.NoteModels(ctx, p)
}

// orNone is a list that is not null.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// DownModels lists the models that are down, by name.
func (s *Store) DownModels(ctx context.Context) ([]turnkeeper.ModelHealth, error) {
	rows, err := s.q.DownModels(ctx)
	return mapRows(rows, downModel), translate(err)
}

func downModel(r dbsqlc.DownModelsRow) turnkeeper.ModelHealth {
	return turnkeeper.ModelHealth{
		Model: r.Model, DownSince: r.DownSince, Until: r.Until, Failures: int(r.Failures), ErrorClass: r.ErrorClass, Error: r.Error,
		Probe: turnkeeper.GrantID(r.Probe), ProbeTurn: turnkeeper.TurnID(r.ProbeTurn), Due: r.Due,
	}
}

// Models lists the models that agents ask, and those that were down at any time, by name.
func (s *Store) Models(ctx context.Context) ([]turnkeeper.ModelHealth, error) {
	rows, err := s.q.ListModels(ctx)
	return mapRows(rows, func(r dbsqlc.ListModelsRow) turnkeeper.ModelHealth {
		return turnkeeper.ModelHealth{
			Model: r.Model, DownSince: orZero(r.DownSince), Until: orZero(r.Until), Failures: int(r.Failures), ErrorClass: r.ErrorClass,
			Error: r.Error, Probe: turnkeeper.GrantID(r.Probe), ProbeTurn: turnkeeper.TurnID(r.ProbeTurn), Agents: r.Agents, Asked: r.Asked,
		}
	}), translate(err)
}

// Chains lists the agents that ask one of the models, with their chains.
func (t *Tick) Chains(ctx context.Context, models []string) ([]turnkeeper.AgentChain, error) {
	rows, err := t.q.Chains(ctx, models)
	return mapRows(rows, func(r dbsqlc.ChainsRow) turnkeeper.AgentChain {
		return turnkeeper.AgentChain{Agent: r.Name, Models: r.Models}
	}), translate(err)
}

// Overdue lists heads of free lanes of the agents that have waited for a service for as
// long as they may.
func (t *Tick) Overdue(ctx context.Context, limit int, agents []string) ([]turnkeeper.Ready, error) {
	rows, err := t.q.OverdueMessages(ctx, int32(limit), agents) //nolint:gosec // small
	return mapRows(rows, func(r dbsqlc.OverdueMessagesRow) turnkeeper.Ready {
		ready := readyOf(dbsqlc.ReadyMessagesRow(r))
		ready.Overdue = true
		return ready
	}), translate(err)
}

// noteProbes notes which of the grants try models that are down, with the tick's commit. It
// comes after the leases.
func (t *Tick) noteProbes(ctx context.Context, ready []turnkeeper.Ready, grants []turnkeeper.GrantID) error {
	by := map[string]turnkeeper.GrantID{}
	var models []string
	for i, r := range ready {
		for _, model := range r.Probes {
			by[model] = grants[i]
			models = append(models, model)
		}
	}
	slices.Sort(models) // in one order for all that lock several
	for _, model := range models {
		if err := t.last.queries().NoteProbe(ctx, string(by[model]), model); err != nil {
			return err
		}
	}
	return nil
}

// tryModelsOf has the models tried at once that a message waits for. It returns the verdict
// of the message's retry.
func (s *Store) tryModelsOf(ctx context.Context, id turnkeeper.MessageID, verdict string) (string, error) {
	n, err := s.q.TryModelsOfMessage(ctx, int64(id))
	if err != nil || n == 0 {
		return verdict, translate(err)
	}
	return "due_now", translate(s.q.RingInbox(ctx))
}

// withModels adds to waiting messages which models they wait for.
func (s *Store) withModels(ctx context.Context, messages []turnkeeper.Message) error {
	var agents []string
	for _, m := range messages {
		if m.State == turnkeeper.MessageWaiting && !slices.Contains(agents, m.Agent) {
			agents = append(agents, m.Agent)
		}
	}
	if len(agents) == 0 {
		return nil
	}
	rows, err := s.q.WaitsOfAgents(ctx, agents)
	if err != nil {
		return translate(err)
	}
	for i := range messages {
		for _, r := range rows {
			if m := &messages[i]; m.State == turnkeeper.MessageWaiting && m.Agent == r.Name {
				m.WaitsFor = r.Models
			}
		}
	}
	return nil
}

// A FailedScope picks messages that failed for good.
type FailedScope struct {
	Agents     []string  // nil: of all agents
	ErrorClass string    // of their last turn; empty: any
	Since      time.Time // they failed then or later; zero: at any time
}

// failedBatch is how many messages are looked up at once.
const failedBatch = 200

// RetryFailed puts the failed messages of a scope into the inbox again, oldest first, each as
// Retry does. Those that were put there before are left out, so it can be repeated after
// an error. The messages are those that failed, with what they are retried as.
func (s *Store) RetryFailed(ctx context.Context, scope FailedScope) (retried []BulkRetried, err error) {
	for after := turnkeeper.MessageID(0); ; {
		rows, err := s.q.FailedMessages(ctx, dbsqlc.FailedMessagesParams{
			After: int64(after), Agents: orNone(scope.Agents), ErrorClass: scope.ErrorClass, Since: orNullTime(scope.Since), MaxRows: failedBatch,
		})
		if err != nil {
			return retried, translate(err)
		}
		for _, r := range rows {
			after = turnkeeper.MessageID(r.ID)
			done, err := s.Retry(ctx, after, false)
			if err != nil {
				return retried, err
			}
			if !done.Repeat {
				retried = append(retried, BulkRetried{Message: after, As: done.Message, Agent: r.Agent, ErrorClass: r.ErrorClass})
			}
		}
		if len(rows) < failedBatch {
			return retried, nil
		}
	}
}

// A BulkRetried is a message that RetryFailed put into the inbox again.
type BulkRetried struct {
	Message, As turnkeeper.MessageID
	Agent       string
	ErrorClass  string
}
