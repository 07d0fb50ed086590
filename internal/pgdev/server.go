package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"go.uber.org/zap"
)

// Options say where the server lives and how careful it is.
type Options struct {
	// Dir holds all that belongs to the server: data, log, password, locks.
	// It is made if it is missing. Required.
	//
	// Postgres refuses to run as root. For root, the data belongs to the user
	// postgres, or to nobody where there is no such user, and the server runs
	// as that user, whose group is let into Dir if need be. If that user cannot
	// come so far (to a folder under /root, say), the data is kept in a new
	// folder under /var/lib/turnkeeper, and Dir/data is a link to it: Dir may be
	// renamed, and removing Dir leaves the data behind. The file home beside the
	// data names the Dir that opened it last.
	Dir string

	// Log receives one line when the server is started, joined or stopped.
	// Nil means no log. The server's own log is the file Dir/log.
	Log *zap.Logger

	// Quick gives up all safety of the data against a crash of the server or of
	// the machine, for speed: for tests. It counts for the process that starts the server; one
	// that joins takes the server as it is. The default is a server that keeps
	// what it has acknowledged.
	Quick bool

	// Settings are further server settings by name, for example
	// {"log_statement": "all"}. They win over the settings of this package,
	// except those of where it listens and logs, and, like Quick, count for the
	// process that starts the server.
	Settings map[string]string
}

// Server is one process's share of a private Postgres server. Its methods may
// be called from several goroutines.
type Server struct {
	home  home
	url   string
	log   *zap.Logger
	users *fileLock
	close sync.Once
	err   error // of the one Close that counted
}

// Open starts the server of opts.Dir, or joins it if it runs, and returns when
// it takes connections to the database turnkeeper. The first Open of a folder
// takes a second or two (a new cluster is made), without installed binaries as
// long as the download takes. ctx bounds the wait and has no effect later.
// Every Server must be closed.
//
// An error is a sentence that tells what is wrong and what to do, with the
// server's own words and the name of its log where there are any.
func Open(ctx context.Context, opts Options) (*Server, error) {
	log := opts.Log
	if log == nil {
		log = zap.NewNop()
	}
	h, err := openHome(opts.Dir)
	if err != nil {
		return nil, err
	}
	starting, err := acquire(ctx, h.startLock(), exclusive)
	if err != nil {
		return nil, err
	}
	defer starting.release()

	l := &launch{home: h, opts: opts, log: log}
	if err := l.run(ctx); err != nil {
		l.abandon()
		return nil, err
	}
	users, err := acquire(ctx, h.usersLock(), shared)
	if err != nil {
		l.abandon()
		return nil, err
	}
	return &Server{home: h, url: l.url(databaseName), log: log, users: users}, nil
}

// URL is the address of the database turnkeeper for its owner, a superuser of
// this server. It holds the password: it must not be logged.
func (s *Server) URL() string { return s.url }

// Alive says that the server's process is there. One that died is started again by
// another Open of the folder, at the same address.
func (s *Server) Alive() bool {
	_, alive := s.home.postmaster()
	return alive
}

// LogFile is the server's own log.
func (s *Server) LogFile() string { return s.home.log() }

// Close gives up this process's share. If nobody else has one, the server is
// stopped: sessions are ended, open transactions rolled back, and the data is
// written out before Close returns. ctx bounds the wait; even with a ctx that
// is done the server is told to stop. Only the first Close counts; later ones
// return its error.
func (s *Server) Close(ctx context.Context) error {
	s.close.Do(func() { s.err = s.leave(ctx) })
	return s.err
}

func (s *Server) leave(ctx context.Context) error {
	defer s.users.release()
	starting, err := acquire(ctx, s.home.startLock(), exclusive)
	if err != nil {
		return fmt.Errorf("the private Postgres in %s is left running: %w", s.home.dir, err)
	}
	defer starting.release()

	switch err := s.users.upgrade(); {
	case errors.Is(err, errLocked):
		s.log.Debug("private Postgres left to its other users", zap.String("dir", s.home.dir))
		return nil
	case err != nil:
		return err
	}
	if err := s.home.stop(ctx); err != nil {
		return err
	}
	s.log.Info("private Postgres stopped", zap.String("dir", s.home.dir))
	return nil
}

// The database and its owner. They are fixed: the cluster is private.
const (
	databaseName = "turnkeeper"
	ownerName    = "turnkeeper"
	port         = "5432" // of a socket: part of its file name only
)

// address builds the URL of a database behind a socket folder.
func address(socketDir, password, database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(ownerName, password),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host":    {socketDir},
			"port":    {port},
			"sslmode": {"disable"},
		}.Encode(),
	}
	return u.String()
}
