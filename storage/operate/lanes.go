package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// A LaneView is a lane with its lease and the number of its waiting messages.
type LaneView struct {
	Lease     granting.Lease
	TurnState turnkeeper.TurnState // of its open turn; empty: there is none
	OpenTurn  turnkeeper.TurnID    // may wait without the lease; 0: there is none
	Remaining time.Duration        // of the lease
	Waiting   int                  // messages; counted up to 10,000
	Silence   *turnkeeper.Silence  // of the worker that holds the lane; nil: it is not silent, or nobody holds the lane
	Waits     []waiting.Wait       // of its open turn, or else of its first waiting message
	Outside   []waiting.Wait       // of the first turn that waits outside the lane and goes back to it
}

// Lanes lists lanes, held ones first. The cursor is the number of lanes to skip.
func (s *Reports) Lanes(ctx context.Context, p Page) ([]LaneView, error) {
	skip := int32(min(p.Cursor, maxSkip)) //nolint:gosec // bounded
	rows, err := s.db.Q.ListLanes(ctx, p.Agent, skip, p.limit(), skip+p.limit())
	if err != nil {
		return nil, pg.Translate(err)
	}
	var ids []int64
	for _, r := range rows {
		ids = append(ids, r.Head, r.Outside)
	}
	waits, err := waitsOf(ctx, s.db, ids)
	return dbrow.Map(rows, func(r dbsqlc.ListLanesRow) LaneView {
		v := LaneView{
			Lease: granting.Lease{
				Lane: turnkeeper.Lane(r.Lane), Token: r.Token, GrantID: turnkeeper.GrantID(dbrow.OrZero(r.GrantID)),
				TurnID: turnkeeper.TurnID(dbrow.OrZero(r.TurnID)), WorkerID: turnkeeper.WorkerID(r.Holder),
				GrantedAt: dbrow.OrZero(r.GrantedAt),
				Until:     dbrow.OrZero(r.LeaseUntil), Failures: int(r.Failures), NotBefore: dbrow.OrZero(r.NotBefore),
			},
			TurnState: turnkeeper.TurnState(r.TurnState), OpenTurn: turnkeeper.TurnID(r.OpenTurn),
			Remaining: time.Duration(r.RemainingMs) * time.Millisecond, Waiting: int(r.Waiting),
			Waits: waits[turnkeeper.MessageID(r.Head)], Outside: waits[turnkeeper.MessageID(r.Outside)],
		}
		if v.Lease.Held() {
			v.Silence = silenceOf(dbrow.OrZero(r.BeatAt), r.StoppedAt, r.SilentMs, r.TakeoverAfter, v.Lease.Until)
		}
		return v
	}), err
}

// maxSkip is the maximum number of rows that a list skips.
const maxSkip = 1 << 30

// Workers lists worker processes, except those that stopped more than an hour ago.
func (s *Reports) Workers(ctx context.Context) ([]presence.Heartbeat, error) {
	rows, err := s.db.Q.ListWorkers(ctx)
	return dbrow.Map(rows, func(r dbsqlc.ListWorkersRow) presence.Heartbeat {
		return presence.Heartbeat{
			WorkerID: turnkeeper.WorkerID(r.WorkerID), Host: r.Host, PID: int(r.Pid), Version: r.Version,
			Slots:         int(r.Slots),
			TakeoverAfter: r.TakeoverAfter, StartedAt: r.StartedAt, BeatAt: r.BeatAt,
			StoppedAt: dbrow.OrZero(r.StoppedAt),
			Silent:    time.Duration(r.SilentMs) * time.Millisecond, Roles: r.Roles,
			Refused: dbrow.Refused(r.Refused, r.SilentMs),
		}
	}), pg.Translate(err)
}
