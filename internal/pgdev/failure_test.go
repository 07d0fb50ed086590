package pgdev_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pgdev"
)

func connect(t *testing.T, url string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_ = conn.Close(t.Context())
	}
	return err
}

// write writes text to a file.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPlainErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spoil func(t *testing.T, dir string)
		opts  pgdev.Options
		want  []string
	}{
		"a setting that does not exist": {
			opts: pgdev.Options{Settings: map[string]string{"no_such_setting": "1"}},
			want: []string{"did not start", `unrecognized configuration parameter "no_such_setting"`, "its log is"},
		},
		"more memory than there is": {
			opts: pgdev.Options{Settings: map[string]string{"shared_buffers": "8000GB"}},
			want: []string{"did not start", "shared memory", "its log is"},
		},
		"the password is gone": {
			spoil: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "password")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"cannot read the password", "restore the file"},
		},
		"the password is another": {
			spoil: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "password"), "other\n") },
			want:  []string{"refuses connections", "password authentication failed"},
		},
		"data of a version that is not installed and cannot be had": {
			spoil: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "data", "PG_VERSION"), "12\n") },
			want: []string{"the data was created by Postgres 12, but version 13 or newer is required", "apt-get install postgresql",
				"set DATABASE_URL"},
		},
		"data without a version": {
			spoil: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "data", "PG_VERSION"), "?\n") },
			want:  []string{"PG_VERSION", "has no version"},
		},
		"data that is none": {
			spoil: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "data", "PG_VERSION")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"is not a Postgres data folder", "it had every message and reply"},
		},
		"data that is broken": {
			spoil: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "data", "global", "pg_control")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"did not start", "could not find the database system", "its log is"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.opts.Dir, c.opts.Quick = usedFolder(t), true
			if c.spoil != nil {
				c.spoil(t, c.opts.Dir)
			}
			server, err := pgdev.Open(t.Context(), c.opts)
			if err == nil {
				closeServer(t, server)
				t.Fatal("it started")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if _, err := os.Stat(filepath.Join(c.opts.Dir, "data", "postmaster.pid")); err == nil {
				t.Error("a server is left")
			}
			if _, err := os.Stat(filepath.Join(c.opts.Dir, "socket")); err == nil {
				t.Error("the socket's folder is left")
			}
		})
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for name, dir := range map[string]string{"none": "", "under a file": filepath.Join(file, "dir")} {
		if _, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir}); err == nil {
			t.Errorf("%s: it opened", name)
		}
	}
}

func TestOpenIsBrokenOff(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := pgdev.Open(ctx, pgdev.Options{Dir: dir, Quick: true}); !errors.Is(err, stop) {
		t.Errorf("the error is %v, want the cause", err)
	}
	// The aborted Open left nothing that prevents the next one.
	ask(t, open(t, pgdev.Options{Dir: dir, Quick: true}).URL(), "select 1::text")
}

func TestComplaint(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ log, want string }{
		"nothing said": {"2026-01-01 LOG:  starting\n", ""},
		"disk full": {
			"LOG:  x\nFATAL:  could not write lock file \"postmaster.pid\": No space left on device\nLOG:  y\n",
			`could not write lock file "postmaster.pid": No space left on device`},
		"the last":  {"FATAL:  first\nPANIC:  second\n", "second"},
		"a hint":    {"FATAL:  too much\nDETAIL:  d\nHINT:  Take less.\n", "too much Take less."},
		"too early": {"FATAL:  real\nFATAL:  the database system is starting up\n", "real"},
		"initdb": {"initdb: error: could not create directory \"x\": Permission denied\n",
			`could not create directory "x": Permission denied`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := pgdev.Complaint(c.log); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
