package grants

import (
	"context"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Chains lists the agents that use one of the models, with their model chains.
func (t *Tick) Chains(ctx context.Context, models []string) ([]modelhealth.Chain, error) {
	rows, err := t.q.Chains(ctx, models)
	return dbrow.Map(rows, func(r dbsqlc.ChainsRow) modelhealth.Chain {
		return modelhealth.Chain{Agent: r.Name, Models: r.Models}
	}), pg.Translate(err)
}

// noteProbes queues or sends the record of the grants that probe models that are down. It must follow the writes to the
// leases, because all code locks rows in this order.
func (*Tick) noteProbes(ctx context.Context, q *dbsqlc.Queries, ready []granting.Candidate,
	grants []turnkeeper.GrantID) error {
	by := map[string]turnkeeper.GrantID{}
	var models []string
	for i, r := range ready {
		for _, model := range r.Probes {
			by[model] = grants[i]
			models = append(models, model)
		}
	}
	slices.Sort(models) // one lock order everywhere prevents deadlocks
	for _, model := range models {
		if err := q.NoteProbe(ctx, string(by[model]), model); err != nil {
			return err
		}
	}
	return nil
}
