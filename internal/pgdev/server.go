package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"go.uber.org/zap"
)

// Options configure a server.
type Options struct {
	// Dir is the folder of the server's data, log, password and locks. It is created if it is missing.
	// Required.
	//
	// Postgres refuses to run as root. For root, the server runs as the user postgres, or nobody if there
	// is no such user, who owns the data; Dir is opened for that user's group if necessary. If that user
	// cannot enter Dir, for example under /root, the data is in a new folder under /var/lib/turnkeeper, and
	// Dir/data is a link to it. Then Dir may be renamed, and removing Dir leaves the data behind. The file
	// home next to the data has the path of the Dir that opened it last.
	Dir string

	// Log gets a message when the server is started, joined or stopped. Nil: none. The server's own log
	// is the file Dir/log.
	Log *zap.Logger

	// Quick trades durability for speed in tests: a crash of the server or the machine may lose data. It
	// applies only if this process starts the server. By default the server keeps acknowledged data.
	Quick bool

	// Settings are additional server settings by name, for example {"log_statement": "all"}. They override
	// the settings of this package, except where the server listens and logs, and apply only if this
	// process starts the server.
	Settings map[string]string
}

// Server is one process's share of a private Postgres server. It is safe for concurrent use.
type Server struct {
	home  home
	url   string
	log   *zap.Logger
	users *fileLock
	close sync.Once
	err   error // result of the first Close
}

// Open starts the server of opts.Dir, or joins it if it runs, and returns when the database turnkeeper
// takes connections. The first Open of a folder creates a cluster, which takes a second or two, or as long
// as the download without installed binaries. ctx limits the wait and has no effect later. Every Server
// must be closed.
//
// An error says what is wrong and what to do, with the server's error message and the path of its log if
// there are any.
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

// URL returns the connection string of the database turnkeeper for its owner, a superuser. It has the
// password: do not log it.
func (s *Server) URL() string { return s.url }

// Alive reports whether the server's process exists. Another Open of the folder restarts a dead server at
// the same address.
func (s *Server) Alive() bool {
	_, alive := s.home.postmaster()
	return alive
}

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.home.log() }

// Close releases this process's share. If no other process has one, it stops the server: sessions are
// ended, open transactions rolled back, and the data is written to disk before Close returns. ctx limits
// the wait; even if ctx is done, the server is told to stop. Later calls return the error of the first.
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

// Names of the database and its owner. The cluster is private, so they are fixed.
const (
	databaseName = "turnkeeper"
	ownerName    = "turnkeeper"
	port         = "5432" // only a part of the socket's file name
)

// address returns the URL of a database by its socket's folder.
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
