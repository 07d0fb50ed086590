package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/pgdev"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// closeTime is the timeout for closing the database at the end of a command.
const closeTime = 15 * time.Second

// WithDatabase opens the database, calls f and closes it. Without DATABASE_URL
// it uses the private database, which must exist: only a worker and
// "turnctl migrate" create it.
func (s *Session) WithDatabase(ctx context.Context, f func(*config.Config, *database.Database) error) error {
	return s.Database(ctx, false, f)
}

// Database is like WithDatabase. With mayCreate it creates the private database if there is none.
func (s *Session) Database(ctx context.Context, mayCreate bool, f func(*config.Config,
	*database.Database) error) (err error) {
	cfg, err := s.LoadConfig()
	if err != nil {
		return err
	}
	cfg = s.quiet(cfg)
	for _, sentence := range config.Misspelt(s.Variables) {
		s.Err.Line("%s", s.Err.Paint(term.Warned, sentence))
	}
	if !mayCreate {
		if err := findPrivate(cfg); err != nil {
			return err
		}
	}
	db, err := database.Open(ctx, cfg, NewLogger(cfg, s.Stderr), nil, s.Fault)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(s.Hard), closeTime)
		defer cancel()
		stop := context.AfterFunc(s.Hard, cancel)
		defer stop()
		err = errors.Join(err, db.Close(closing))
	}()
	s.warnOfNewerSchema(ctx, db.Store)
	return explain(ctx, db.Store, f(cfg, db))
}

// warnOfNewerSchema warns if a newer program has migrated the schema. It ignores errors of its query: the command
// will report them.
func (s *Session) warnOfNewerSchema(ctx context.Context, store *operate.Store) {
	newer, err := store.NewerMigrations(ctx)
	if err != nil || len(newer) == 0 {
		return
	}
	s.Err.Line("%s", s.Err.Paint(term.Warned, fmt.Sprintf(
		"the database's schema is newer than this program, which does not know %s; use the newer program",
		term.Plural(len(newer), "migration")+", up to "+newer[len(newer)-1].String())))
}

// findPrivate fails if there is neither a DATABASE_URL nor a private database.
func findPrivate(cfg *config.Config) error {
	if cfg.DatabaseURL.IsSet() {
		return nil
	}
	if !pgdev.Made(cfg.DataDir) {
		return fmt.Errorf(
			"there is no database yet: no worker has run with the data folder %s; start a worker here, or set DATABASE_URL or --data-dir", cfg.DataDir)
	}
	return nil
}

var errNoSchema = errors.New(`the database has no Turnkeeper schema yet: run "turnctl migrate" or start a worker`)

// explain replaces a database error by the error of an old, missing or too new
// schema, if there is one.
func explain(ctx context.Context, store *operate.Store, err error) error {
	if err == nil || ctx.Err() != nil || known(err) {
		return err
	}
	migrations, lookErr := store.Migrations(ctx)
	if lookErr != nil {
		return err
	}
	if tooNew := storage.CheckCompatible(migrations); tooNew != nil {
		return tooNew
	}
	switch pending := PendingOf(migrations); {
	case pending == len(migrations):
		return errNoSchema
	case pending > 0:
		return fmt.Errorf(
			`the database's schema is older than this program (%s missing): run "turnctl migrate" or start a worker`,
			term.Plural(pending, "migration"))
	default:
		return err
	}
}

// known reports whether the error is an expected result and not a failure.
func known(err error) bool {
	_, coded := errors.AsType[*ExitError](err)
	return coded || unread(err) || errors.Is(err, turnkeeper.ErrEmptyMessage) ||
		errors.Is(err, turnkeeper.ErrInvalidMessage) ||
		errors.Is(err, turnkeeper.ErrUnknownAgent) || errors.Is(err, turnkeeper.ErrAgentRetired) ||
		errors.Is(err, turnkeeper.ErrKeyConflict)
}

// PendingOf counts the migrations that are not applied.
func PendingOf(migrations []storage.Migration) (n int) {
	for _, m := range migrations {
		if !m.Applied {
			n++
		}
	}
	return n
}
