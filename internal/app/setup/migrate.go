package setup

import (
	"context"

	"turnkeeper/internal/database"
	"turnkeeper/jobs"
	"turnkeeper/storage"
)

// Migrate migrates the schema of a database, including River's tables. It fails if tables of earlier
// migrations are missing.
func Migrate(ctx context.Context, db *database.Database) ([]storage.Migration, error) {
	applied, err := jobs.Migrate(ctx, db.Store.DB, db.Log)
	if err != nil {
		return nil, err
	}
	return applied, db.Store.CheckTables(ctx)
}
