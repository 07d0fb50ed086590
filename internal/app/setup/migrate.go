package setup

import (
	"context"

	"turnkeeper/internal/database"
	"turnkeeper/jobs"
	"turnkeeper/storage"
)

// Migrate brings the schema of a database up to date, River's tables included. It fails if tables are missing that earlier
// migrations have made.
func Migrate(ctx context.Context, db *database.Database) ([]storage.Migration, error) {
	applied, err := jobs.Migrate(ctx, db.Store.DB, db.Log)
	if err != nil {
		return nil, err
	}
	return applied, db.Store.CheckTables(ctx)
}
