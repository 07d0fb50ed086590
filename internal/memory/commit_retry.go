package memory

import (
	"context"
	"errors"

	"turnkeeper"
	"turnkeeper/internal/commit"
)

// BindGrant binds a grant of a turn to the worker: see package storage/grants. While
// the store is unavailable, it retries until ctx ends.
func (c *Conn) BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	worker turnkeeper.WorkerID) (first bool, err error) {
	var taker turnkeeper.WorkerID
	err = patiently(ctx, func() error {
		return c.ask(ctx, "bind", func() error {
			return c.store.inRow(ctx, turn, func(*[]Bell) (err error) {
				taker, err = c.store.bind(turn, grant, worker)
				return err
			})
		})
	})
	return commit.Bound(taker, worker, err)
}

// bind binds a grant, and returns the worker that it was bound to before.
func (s *Store) bind(turn turnkeeper.TurnID, grant turnkeeper.GrantID,
	worker turnkeeper.WorkerID) (turnkeeper.WorkerID, error) {
	row := s.state.turn(turn)
	switch {
	case row == nil || row.GrantID != grant || row.State != turnkeeper.TurnRunning:
		return "", turnkeeper.ErrNotFound
	case row.WorkerID != "" || s.bugs.has(BugGrantUnbound):
		return row.WorkerID, nil
	}
	draft := row.draft()
	draft.WorkerID = worker
	s.state.setTurn(draft)
	s.state.grant(grant).WorkerID = worker
	return "", nil
}

// write writes to the journal exactly once, or fails.
func (j *Journal) write(ctx context.Context, write commit.Write) error {
	var own string
	attempt := write.Attempt
	write.Attempt = func(ctx context.Context, id string) error {
		own = id
		return attempt(ctx, id)
	}
	return j.writer.Write(ctx, commit.Database{
		Uncertain: isAway,
		KeyTaken:  func(err error) bool { return errors.Is(err, errKeyTaken) },
		ReadBack: func(ctx context.Context) (row commit.Row, err error) {
			err = j.conn.ask(ctx, "read back", func() error {
				row = j.readBack(write, own)
				return nil
			})
			return row, err
		},
	}, write)
}

func (j *Journal) readBack(write commit.Write, own string) commit.Row {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	turn := j.s.state.turn(j.grant.TurnID)
	row := commit.Row{
		Token: turn.Token, GrantID: turn.GrantID, WorkerID: turn.WorkerID, State: turn.State, Entries: turn.entries(),
	}
	if next := j.writer.Entries; next < row.Entries {
		row.WriteID = turn.writes[next]
	}
	return j.misread(row, write, own)
}

func isAway(err error) bool { return errors.Is(err, ErrAway) }

// patiently retries f while the store is unavailable.
func patiently(ctx context.Context, f func() error) error {
	return commit.Patiently(ctx, isAway, nil, f)
}
