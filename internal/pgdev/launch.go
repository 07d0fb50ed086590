package pgdev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"turnkeeper/internal/pause"
)

// poll is the polling interval.
const poll = 20 * time.Millisecond

// readyWithin is the maximum time until a server takes connections. Crash recovery may take long.
const readyWithin = 2 * time.Minute

// launch joins or starts the server of a home, holding its start lock.
type launch struct {
	home home
	opts Options
	log  *zap.Logger

	account       account
	install       install
	socketDir     string
	madeSocketDir bool // by this launch
	password      string
	child         int   // process id of the server, if this launch started it
	logged        int64 // length of the server's log before this launch
}

// run joins or starts the server and creates the database if it is missing.
func (l *launch) run(ctx context.Context) error {
	l.noteLog()
	joined, err := l.join(ctx)
	if err != nil {
		return err
	}
	if !joined {
		if err := l.prepare(ctx); err != nil {
			return err
		}
		if err := l.start(ctx); err != nil {
			return err
		}
	}
	if err := l.ensureDatabase(ctx); err != nil {
		return err
	}
	p, _ := l.home.postmaster()
	l.log.Info("private Postgres ready", zap.String("dir", l.home.dir), zap.Int("pid", p.pid),
		zap.Bool("joined", joined))
	return nil
}

// join waits until a running server is ready. It returns false if none runs or it ends.
func (l *launch) join(ctx context.Context) (bool, error) {
	if _, running := l.home.postmaster(); !running {
		return false, nil
	}
	password, err := l.home.readPassword()
	if err != nil {
		return false, err
	}
	l.password, l.socketDir = password, l.home.recordedSocketDir()
	return l.awaitReady(ctx)
}

// prepare finds the programs, prepares the socket's folder, and checks or creates the cluster.
func (l *launch) prepare(ctx context.Context) error {
	haveCluster, err := l.home.hasCluster()
	if err != nil {
		return err
	}
	if l.account, err = serverAccount(l.home, haveCluster); err != nil {
		return err
	}
	if l.install, err = l.findServer(ctx, haveCluster); err != nil {
		return err
	}
	if err := l.prepareSocketDir(ctx); err != nil {
		return err
	}
	if !haveCluster {
		if err := l.makeCluster(ctx); err != nil {
			return err
		}
	} else if err := l.checkData(ctx); err != nil {
		return err
	}
	l.password, err = l.home.readPassword()
	return err
}

// checkData checks that the account can still enter an existing cluster: folders may have been moved or
// closed.
func (l *launch) checkData(ctx context.Context) error {
	data, err := filepath.EvalSymlinks(l.home.data())
	if err != nil {
		return fmt.Errorf("cannot find the data of the private Postgres: %w", err)
	}
	if l.account.canEnter(ctx, l.install, data) {
		l.recordAgain(data)
		return nil
	}
	return fmt.Errorf(
		"%s, who runs Postgres, cannot enter %s: allow all users to enter the folders above it, or set DATABASE_URL",
		l.account.name, data)
}

func (l *launch) findServer(ctx context.Context, haveCluster bool) (install, error) {
	want := 0
	if haveCluster {
		var err error
		if want, err = clusterMajor(l.home); err != nil {
			return install{}, err
		}
	}
	in, none := choose(findInstalls(ctx, l.account), want)
	if none == nil {
		return in, nil
	}
	if ctx.Err() != nil {
		return install{}, fmt.Errorf("the start of the private Postgres was interrupted: %w", context.Cause(ctx))
	}
	l.log.Info("downloading Postgres", zap.String("reason", none.Error()))
	in, err := fetch(ctx, l.account, want)
	if err != nil {
		return install{},
			fmt.Errorf(
				"no Postgres server to use (%w; %w): install one (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql), or set DATABASE_URL to a running server", none, err)
	}
	return in, nil
}

// start starts the server and waits until it takes connections. It retries while processes of a killed
// server still hold its shared memory.
func (l *launch) start(ctx context.Context) error {
	for {
		if err := l.spawn(); err != nil {
			return err
		}
		ready, err := l.awaitReady(ctx)
		if ready || err != nil {
			return err
		}
		l.child = 0
		if !l.memoryStillHeld() {
			return l.failure("did not start", nil)
		}
		if err := pause.For(ctx, poll); err != nil {
			return l.failure("did not start", err)
		}
	}
}

// spawn starts the server in a separate session, with its log as its output.
func (l *launch) spawn() error {
	if err := l.home.removeStale(); err != nil {
		return err
	}
	log, err := l.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	data, err := filepath.EvalSymlinks(l.home.data())
	if err != nil {
		return fmt.Errorf("cannot find the data of the private Postgres: %w", err)
	}
	args := append([]string{"-D", data}, arguments(l.settings())...)
	cmd := l.account.command(context.Background(), data, l.install.postgres(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return l.failure("did not start", err)
	}
	l.child = cmd.Process.Pid
	return cmd.Process.Release()
}

// awaitReady waits until the server takes connections; it returns false if the server ended.
func (l *launch) awaitReady(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin,
		fmt.Errorf("it was not ready after %s", readyWithin))
	defer cancel()
	for {
		conn, err := l.connect(ctx, "postgres")
		if err == nil {
			return true, conn.Close(ctx)
		}
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !comingOrGoing(refused) {
			return false, l.failure("refuses connections", err)
		}
		if l.ended() {
			return false, nil
		}
		if err := pause.For(ctx, poll); err != nil {
			return false, l.failure("does not take connections", err)
		}
	}
}

// ended reports whether the server has ended: a child by its process, another server by its pid file.
func (l *launch) ended() bool {
	if l.child != 0 {
		return reap(l.child)
	}
	_, running := l.home.postmaster()
	return !running
}

// comingOrGoing reports whether a refusal is temporary: the server starts up, recovers or shuts down
// (cannot_connect_now), or all connections are in use (too_many_connections).
func comingOrGoing(err *pgconn.PgError) bool {
	return err.Code == "57P03" || err.Code == "53300"
}

func (l *launch) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.url(database))
	if err != nil {
		return nil, errors.New("cannot read the address of the private Postgres")
	}
	config.ConnectTimeout = 5 * time.Second
	return pgx.ConnectConfig(ctx, config)
}

func (l *launch) url(database string) string {
	return address(l.socketDir, l.password, database)
}

func (l *launch) ensureDatabase(ctx context.Context) error {
	conn, err := l.connect(ctx, "postgres")
	if err != nil {
		return l.failure("refuses connections", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", databaseName).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{databaseName}.Sanitize())
	}
	if err != nil {
		return l.failure("could not create its database", err)
	}
	return nil
}

// abandon kills a server that this launch started and cannot use, and removes the socket's folder if this
// launch created it. An older folder stays: processes that outlived a crash of the server reconnect there.
func (l *launch) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), immediateStop)
	defer cancel()
	for l.child != 0 && !reap(l.child) {
		_ = syscall.Kill(l.child, syscall.SIGQUIT)
		if pause.For(ctx, poll) != nil {
			return
		}
	}
	if _, running := l.home.postmaster(); l.madeSocketDir && !running {
		l.home.forgetSocketDir()
	}
}
