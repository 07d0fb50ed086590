package operate

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Aside lists the rows that are set aside, the longest first.
func (s *Reports) Aside(ctx context.Context) ([]granting.Aside, error) {
	rows, err := s.db.Q.ListAside(ctx)
	return dbrow.Map(rows, func(r dbsqlc.TurnkeeperSetAside) granting.Aside {
		return granting.Aside{
			Subject: granting.Subject{Kind: granting.SubjectKind(r.Kind), ID: r.ID}, Since: r.Since,
			Failures: int(r.Failures),
			LastAt:   r.LastAt, NextTry: r.NextTry, Code: r.Code, Error: r.Error,
		}
	}), pg.Translate(err)
}

// CountAside counts the rows that are set aside, by kind. It has every kind.
func (s *Reports) CountAside(ctx context.Context) (map[granting.SubjectKind]int, error) {
	counts := map[granting.SubjectKind]int{}
	for _, kind := range granting.SubjectKinds {
		counts[kind] = 0
	}
	rows, err := s.db.Q.CountAside(ctx)
	for _, r := range rows {
		counts[granting.SubjectKind(r.Kind)] = int(r.Number)
	}
	return counts, pg.Translate(err)
}

// RetryAside makes rows that are set aside due for their next try: all of them, or the one of the subject. It fails
// with ErrNotFound if that one is not set aside.
func (s *Control) RetryAside(ctx context.Context, one granting.Subject) (int, error) {
	n, err := s.db.Q.RetryAside(ctx, string(one.Kind), one.ID)
	if err == nil && n == 0 && one.Kind != "" {
		return 0, turnkeeper.ErrNotFound
	}
	if err == nil {
		err = s.db.Q.RingInbox(ctx)
	}
	if err == nil && (one.Kind == "" || one.Kind == granting.AsideDelivery) {
		err = s.db.Q.RingTurns(ctx)
	}
	return int(n), pg.Translate(err)
}
