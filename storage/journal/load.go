package journal

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Load reads a turn and its journal, for the holder of grant. It fails with ErrFenced if
// the turn no longer has that grant, and with ErrNewerJournal if only a newer program
// can run the turn: the record then lacks rounds and history, but suffices to hand the
// turn back.
func (s *Store) Load(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (*turnlog.Record, error) {
	rows, err := s.db.Q.TurnForWorker(ctx, []int64{int64(turn)}, []string{}, []string{})
	if err != nil {
		return nil, pg.Translate(err)
	}
	if len(rows) == 0 || !Holds(&rows[0], grant) {
		return nil, turnkeeper.ErrFenced
	}
	return s.Complete(ctx, &rows[0])
}

// Holds reports whether grant is the current grant of a turn.
func Holds(row *dbsqlc.TurnForWorkerRow, grant turnkeeper.GrantID) bool {
	return row.State == string(turnkeeper.TurnRunning) && dbrow.OrZero(row.GrantID) == string(grant)
}

// Complete reads the rest of a turn's record. It fails with ErrNewerJournal as Load does.
func (s *Store) Complete(ctx context.Context, row *dbsqlc.TurnForWorkerRow) (record *turnlog.Record, err error) {
	record = recordOf(row)
	if row.AnyDown {
		if record.Down, err = s.downModels(ctx); err != nil {
			return record, err
		}
	}
	if row.Suspected {
		rows, err := s.db.Q.Suspected(ctx, int64(record.Message.ID))
		if err != nil {
			return record, pg.Translate(err)
		}
		record.Suspects = dbrow.Map(rows, dbrow.Suspect)
	}
	if row.Entries > 0 {
		if err := s.loadJournal(ctx, record); err != nil {
			return record, err
		}
		if err := s.loadAsks(ctx, record); err != nil {
			return record, err
		}
	}
	if row.Spawned {
		if record.Lineage, err = dbrow.Lineage(ctx, s.db.Q, record.Message.ID); err != nil {
			return record, err
		}
	}
	if row.HasPast {
		if err = s.loadConversation(ctx, record, turnkeeper.TurnID(row.SummaryUpTo)); err != nil {
			return record, err
		}
	}
	if row.AnyLabels {
		err = s.loadLabels(ctx, record, turnkeeper.TurnID(row.SummaryUpTo))
	}
	return record, err
}

// loadConversation reads the newest earlier turns, the previous run of the turn's
// schedule, and, unless summary is 0, the summary up to that turn. It counts the turns
// before those it reads.
func (s *Store) loadConversation(ctx context.Context, record *turnlog.Record, summary turnkeeper.TurnID) (err error) {
	turn := record.Turn
	if record.History, err = s.loadHistory(ctx, turn); err != nil {
		return err
	}
	if record.LastRun, err = s.loadLastRun(ctx, record); err != nil {
		return err
	}
	if record.Summary, err = s.SummaryUpTo(ctx, turn, summary); err != nil || len(record.History) < turnlog.PastTurns {
		return err
	}
	n, err := s.db.Q.CountPastTurns(ctx, dbsqlc.CountPastTurnsParams{
		Agent: turn.Agent, UserName: turn.User, Conversation: turn.Conversation,
		Before: int64(record.History[0].TurnID), MaxRows: turnlog.CountedTurns,
	})
	record.Older = int(n)
	return pg.Translate(err)
}

func recordOf(row *dbsqlc.TurnForWorkerRow) *turnlog.Record {
	turn := dbrow.TurnForWorker(row)
	return &turnlog.Record{
		Turn: turn,
		Message: turnkeeper.Message{
			ID: turn.MessageID, Agent: turn.Agent, User: turn.User, Conversation: turn.Conversation, Lane: turn.Lane,
			Body: row.Body,
			Key:  dbrow.OrZero(row.IdempotencyKey), Priority: int(row.Priority), Trigger: turn.Trigger,
			Schedule: dbrow.OrZero(row.Schedule),
			Slot:     dbrow.OrZero(row.Slot), State: turnkeeper.MessageRunning, Attempts: int(row.MessageAttempts),
			Faults: int(row.Faults), DueAt: row.MessageDueAt, AcceptedAt: row.AcceptedAt, TurnID: turn.ID,
			TraceParent: dbrow.OrZero(row.TraceParent),
		},
		Definition:  []byte(row.Definition),
		AnswerLimit: int(row.AnswerLimit),
		Level:       survival.Level(row.Level),
		Entries:     row.Entries,
		Failures:    int(row.Failures),
		NextBlock:   1,
		End:         turnlog.WantedEnd(row.RequestedEnd),
		ReadySince:  row.ReadySince,
		Waited:      dbrow.Micros(row.WaitedUs),
		Remaining:   dbrow.Micros(row.RemainingUs),
		Elapsed:     dbrow.Micros(row.ElapsedUs),
	}
}

// loadJournal reads the rounds of earlier dispatches of the turn.
func (s *Store) loadJournal(ctx context.Context, record *turnlog.Record) error {
	ids := []int64{int64(record.Turn.ID)}
	answers, err := s.db.Q.RoundsOfTurns(ctx, ids)
	if err != nil {
		return pg.Translate(err)
	}
	calls, err := s.db.Q.CallsOfTurns(ctx, ids)
	if err != nil {
		return pg.Translate(err)
	}
	if err := Readable(answers, calls); err != nil {
		return err
	}
	record.Rounds = dbrow.Rounds(answers, calls)
	position, err := s.db.Q.StreamPosition(ctx, int64(record.Turn.ID))
	if err != nil {
		return pg.Translate(err)
	}
	record.NextBlock = int(position.LastBlock) + 1
	record.OpenRound = OpenRound(position, len(record.Rounds))
	return nil
}

// OpenRound returns the round that has begun to stream and was neither answered nor
// rolled back, given the number of answered rounds. 0: there is none.
func OpenRound(position dbsqlc.StreamPositionRow, answered int) int {
	if int(position.StartedRound) > answered && position.StartedSeq > position.RollbackSeq {
		return int(position.StartedRound)
	}
	return 0
}

func (s *Store) loadHistory(ctx context.Context, turn turnkeeper.Turn) ([]turnlog.Past, error) {
	key := turn.ConversationKey()
	known := s.pasts.all.Get(key)
	read, err := s.db.Q.PastTurns(ctx, dbsqlc.PastTurnsParams{
		Known: known.ids(), Agent: turn.Agent, UserName: turn.User, Conversation: turn.Conversation,
		Before: int64(turn.ID), MaxRows: turnlog.PastTurns,
	})
	if err != nil {
		return nil, pg.Translate(err)
	}
	slices.Reverse(read)
	history, err := s.history(ctx, read, known)
	if err != nil {
		return nil, err
	}
	s.pasts.keep(key, history)
	return slices.Clip(history.turns), nil
}

// loadLastRun reads the previous run of the turn's schedule. It returns nil if there is
// none, or if no schedule started the turn.
func (s *Store) loadLastRun(ctx context.Context, record *turnlog.Record) (*turnlog.Past, error) {
	turn := record.Turn
	if record.Message.Schedule == "" {
		return nil, nil
	}
	rows, err := s.db.Q.LastRun(ctx, dbsqlc.LastRunParams{
		Agent: turn.Agent, Schedule: record.Message.Schedule, UserName: turn.User, Conversation: turn.Conversation,
		Before: int64(turn.ID),
	})
	if err != nil || len(rows) == 0 {
		return nil, pg.Translate(err)
	}
	for i := range record.History {
		if int64(record.History[i].TurnID) == rows[0].ID {
			return &record.History[i], nil
		}
	}
	run, err := s.history(ctx, []dbsqlc.PastTurnsRow{dbsqlc.PastTurnsRow(rows[0])}, conversation{})
	if err != nil {
		return nil, err
	}
	return &run.turns[0], nil
}

// LoadPatiently is like Load, but retries while the database is unavailable, until ctx
// ends.
func (s *Store) LoadPatiently(ctx context.Context, turn turnkeeper.TurnID,
	grant turnkeeper.GrantID) (*turnlog.Record, error) {
	return patiently(ctx, s, func() (*turnlog.Record, error) { return s.Load(ctx, turn, grant) })
}

// CompletePatiently is like Complete, but retries while the database is unavailable, until ctx ends.
func (s *Store) CompletePatiently(ctx context.Context, row *dbsqlc.TurnForWorkerRow) (*turnlog.Record, error) {
	return patiently(ctx, s, func() (*turnlog.Record, error) { return s.Complete(ctx, row) })
}

func patiently(ctx context.Context, s *Store, load func() (*turnlog.Record, error)) (
	record *turnlog.Record, err error) {
	var newer error // not retried
	err = s.db.Patiently(ctx, func() error {
		record, err = load()
		if newer = nil; errors.Is(err, ErrNewerJournal) {
			newer = err
			return nil
		}
		return err
	})
	return record, cmp.Or(err, newer)
}

func (s *Store) downModels(ctx context.Context) ([]modelhealth.Health, error) {
	rows, err := s.db.Q.DownModels(ctx)
	return dbrow.Map(rows, dbrow.DownModel), pg.Translate(err)
}
