package operate

import (
	"context"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Models lists the models that agents use, and those that were ever down, by name.
func (s *Reports) Models(ctx context.Context) ([]modelhealth.Health, error) {
	rows, err := s.db.Q.ListModels(ctx)
	return dbrow.Map(rows, func(r dbsqlc.ListModelsRow) modelhealth.Health {
		return modelhealth.Health{
			Model: r.Model, DownSince: dbrow.OrZero(r.DownSince), Until: dbrow.OrZero(r.Until),
			Failures: int(r.Failures), ErrorClass: r.ErrorClass,
			Error: r.Error, Probe: turnkeeper.GrantID(r.Probe), ProbeTurn: turnkeeper.TurnID(r.ProbeTurn),
			Agents: r.Agents, NeededBy: r.NeededBy, Asked: r.Asked,
		}
	}), pg.Translate(err)
}
