package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/fault"
)

// Options configure Open.
type Options struct {
	URL              string        // postgres://… or a keyword/value string
	MaxConns         int           // of the main pool; 0: 8
	FinishConns      int           // of the pool that ends turns; 0: 2
	StatementTimeout time.Duration // of one statement; 0: 30 s
	LockTimeout      time.Duration // of one wait for a row's lock; 0: 10 s
	ConnectTimeout   time.Duration // 0: 10 s
	Lazy             bool          // Open does not connect, and succeeds also if the database does not answer
	Log              *zap.Logger   // nil: none
	Outage           *Outage       // logs that the database is away; nil: nothing does
	// Mask replaces known secrets in all stored text of a turn. nil: nothing is
	// replaced.
	Mask func(string) string
	// Fault is called at labelled points. Only tests set it.
	Fault fault.Hook
}

func (o Options) withDefaults() Options {
	setDefault(&o.MaxConns, 8)
	setDefault(&o.FinishConns, 2)
	setDefault(&o.StatementTimeout, 30*time.Second)
	setDefault(&o.LockTimeout, 10*time.Second)
	setDefault(&o.ConnectTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func connect(ctx context.Context, o Options, resets *resetter, conns int, name string,
	more map[string]string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// pgx's error contains the URL with the password.
		return nil, errUnreadableURL
	}
	cfg.MaxConns = int32(min(conns, 1000)) //nolint:gosec // bounded
	cfg.MaxConnLifetimeJitter = time.Minute
	cfg.ConnConfig.ConnectTimeout = o.ConnectTimeout
	cfg.ConnConfig.DialFunc = dialer.DialContext
	boundCaches(cfg.ConnConfig)
	cfg.ConnConfig.OnNotice = logAside(o.Log)
	cfg.ConnConfig.Tracer = answerBound{answerWithin(o.StatementTimeout), resets, o.Outage}
	cfg.PingTimeout = pingWithin
	params := cfg.ConnConfig.RuntimeParams
	params["application_name"] = name
	// A worker that is stopped inside a transaction must not block workers that
	// take over its turns.
	params["statement_timeout"] = Millis(o.StatementTimeout)
	params["lock_timeout"] = Millis(o.LockTimeout)
	params["idle_in_transaction_session_timeout"] = Millis(o.StatementTimeout)
	// Every statement is short and finds its rows by key: planning it for its
	// parameters would take longer than running it.
	params["plan_cache_mode"] = "force_generic_plan"
	maps.Copy(params, byKey)
	maps.Copy(params, findDead)
	maps.Copy(params, more)
	cfg.AfterConnect = finiteTimes
	if name == queueName {
		resets.hold(cfg)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("the database cannot be reached: %w", PlainConnect(err))
	}
	resets.watch(pool)
	return pool, nil
}

// maxStatements is the maximum number of statements that a connection keeps prepared. It is above the number of
// different statements that the programs have; with a greater number each connection reserves more memory when it is
// opened.
const maxStatements = 256

// boundCaches bounds the caches of statements, and leaves out the cache of descriptions, which only one mode uses.
func boundCaches(cfg *pgx.ConnConfig) {
	cfg.StatementCacheCapacity = min(cfg.StatementCacheCapacity, maxStatements)
	if cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		cfg.DescriptionCacheCapacity = 0
	}
}

// byKey keeps plans from depending on statistics. A statement that is planned while a table is small would scan or hash
// the whole table, and the cached plan would stay when the table grows. A row costs a hundred times what it does by
// default, so that ten lookups by key are cheaper than a scan of an index with thirty entries. JIT is off because the
// planner gives such plans costs so high that it would compile the statement.
var byKey = map[string]string{
	"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off", "cpu_tuple_cost": "1",
	"cpu_index_tuple_cost": "1",
}

// WholeTables returns statements that undo byKey, for queries that read whole tables. set is "set" or
// "set local". The result begins with a semicolon.
func WholeTables(set string) (sql string) {
	for _, name := range slices.Sorted(maps.Keys(byKey)) {
		sql += "; " + set + " " + name + " = default"
	}
	return sql
}

// findDead makes the server detect within half a minute that a client's host is gone.
var findDead = map[string]string{
	"tcp_user_timeout": Millis(20 * time.Second), "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5",
	"tcp_keepalives_count": "3",
}

// The angle brackets keep the masking of errors from mistaking the form for a real password.
var errUnreadableURL = errors.New("DATABASE_URL cannot be parsed: check its port, its sslmode and other parameters; " +
	"its form is postgres://<user>:<password>@<host>:<port>/<database>")

// Millis formats a duration as a setting of Postgres in milliseconds.
func Millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// A connectError explains a failed connection without the connection string.
type connectError struct {
	message string
	err     error
}

func (e *connectError) Error() string { return e.message }

func (e *connectError) Unwrap() error { return e.err }

// PlainConnect returns an error that explains a failed connection without the connection string. It wraps err.
func PlainConnect(err error) error {
	if message := explainConnect(err); message != "" {
		return &connectError{message, err}
	}
	return err
}

// explainConnect returns why a connection failed; empty: the error says it itself.
func explainConnect(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if strings.Contains(pg.Message, "unsupported startup parameter") {
			return fmt.Sprintf(
				"%s (SQLSTATE %s): configure PgBouncer to allow it, see \"When a pooler is between\" in docs/operating.md", pg.Message, pg.Code)
		}
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Error() + ": is Postgres running there, and is DATABASE_URL right?"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Error() + ": is the host in DATABASE_URL right?"
	}
	switch Cause(err) {
	case CauseTLS:
		return "the server and DATABASE_URL do not agree about TLS: is its sslmode right?"
	case CauseClosed:
		return "the server closed the connection: is it Postgres, is it running, and is DATABASE_URL right?"
	case CauseTimeout:
		return "no answer in time: is Postgres running there, and is DATABASE_URL right?"
	default:
		return ""
	}
}

// ConnectOne opens a connection outside of the pools. limit is the timeout of the connection attempt
// and of each statement.
func ConnectOne(ctx context.Context, url, name string, limit time.Duration) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errUnreadableURL
	}
	cfg.ConnectTimeout = limit
	cfg.DialFunc = dialer.DialContext
	boundCaches(cfg)
	cfg.Tracer = answerBound{limit: limit}
	cfg.RuntimeParams["application_name"] = name
	maps.Copy(cfg.RuntimeParams, findDead) // the server must notice soon that the worker's host is gone
	return pgx.ConnectConfig(ctx, cfg)
}
