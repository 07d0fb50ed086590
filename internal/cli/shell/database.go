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

// closeTime bounds the good order in which a command leaves the database.
const closeTime = 15 * time.Second

// WithDatabase opens the database, lets f use it, and closes it. Without
// DATABASE_URL that is the private one, which is not made here: only a worker
// and "turnctl migrate" make it.
func (s *Session) WithDatabase(ctx context.Context, f func(*config.Config, *database.Database) error) error {
	return s.Database(ctx, false, f)
}

// Database is WithDatabase; mayCreate: a private database is made if there is none.
func (s *Session) Database(ctx context.Context, mayCreate bool, f func(*config.Config, *database.Database) error) (err error) {
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
	db, err := database.Open(ctx, cfg, NewLogger(cfg, s.Stderr), s.Fault)
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

// warnOfNewerSchema says that a newer program has changed the schema. What it cannot find out, the command
// itself tells.
func (s *Session) warnOfNewerSchema(ctx context.Context, store *operate.Store) {
	newer, err := store.NewerMigrations(ctx)
	if err != nil || len(newer) == 0 {
		return
	}
	s.Err.Line("%s", s.Err.Paint(term.Warned, fmt.Sprintf("the database's schema is newer than this program: it does not know %s; use the newer program",
		term.Plural(len(newer), "migration")+", up to "+newer[len(newer)-1].String())))
}

// findPrivate fails when the database would be a private one that nobody has
// made yet.
func findPrivate(cfg *config.Config) error {
	if cfg.DatabaseURL.IsSet() {
		return nil
	}
	if !pgdev.Made(cfg.DataDir) {
		return fmt.Errorf("there is no database yet: no worker ever ran with the data folder %s; start a worker here, or set DATABASE_URL or --data-dir", cfg.DataDir)
	}
	return nil
}

var errNoSchema = errors.New(`the database has no Turnkeeper schema yet: run "turnctl migrate" or start a worker`)

// explain puts in place of an error of the database what an old or missing
// schema makes of it.
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
		return fmt.Errorf(`the database's schema is older than this program (%s missing): run "turnctl migrate" or start a worker`,
			term.Plural(pending, "migration"))
	default:
		return err
	}
}

// known says that the error is an answer and not a failure.
func known(err error) bool {
	_, coded := errors.AsType[*ExitError](err)
	return coded || unread(err) || errors.Is(err, turnkeeper.ErrEmptyMessage) || errors.Is(err, turnkeeper.ErrInvalidMessage) ||
		errors.Is(err, turnkeeper.ErrUnknownAgent) || errors.Is(err, turnkeeper.ErrAgentRetired) || errors.Is(err, turnkeeper.ErrKeyConflict)
}

// PendingOf counts the migrations that the database lacks.
func PendingOf(migrations []storage.Migration) (n int) {
	for _, m := range migrations {
		if !m.Applied {
			n++
		}
	}
	return n
}
