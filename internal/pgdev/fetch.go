package pgdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// repository is where server binaries are downloaded from: Maven Central.
var repository = "https://repo1.maven.org/maven2"

// systemCache is where root keeps downloaded binaries: the server's user
// cannot enter root's own cache folder.
var systemCache = "/var/cache/turnkeeper"

// downloads are the versions that can be fetched, by major version.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	13: embeddedpostgres.V13,
	14: embeddedpostgres.V14,
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const newestDownload = 18

// fetch returns downloaded binaries of a major version (0: the newest), and
// downloads them if they are not there yet. A download cannot be broken off:
// when ctx is done fetch returns, and the download goes on until it ends or
// the process does; what it leaves is used by nobody.
func fetch(ctx context.Context, a account, major int) (install, error) {
	if major == 0 {
		major = newestDownload
	}
	version, ok := downloads[major]
	if !ok {
		return install{}, fmt.Errorf("there is no download of Postgres %d", major)
	}
	cache, err := cacheFolder(a)
	if err != nil {
		return install{}, err
	}
	lock, err := acquire(ctx, filepath.Join(cache, "lock"), exclusive)
	if err != nil {
		return install{}, err
	}
	defer lock.release()

	target := filepath.Join(cache, "postgres-"+string(version))
	if in, err := inspect(ctx, a, filepath.Join(target, "bin")); err == nil {
		return in, nil
	}
	if err := download(ctx, version, cache, target); err != nil {
		return install{}, err
	}
	return inspect(ctx, a, filepath.Join(target, "bin"))
}

func cacheFolder(a account) (string, error) {
	cache := systemCache
	if !a.drop {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("found no cache folder for a download of Postgres: %w", err)
		}
		cache = filepath.Join(base, "turnkeeper")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a cache folder for a download of Postgres: %w", err)
	}
	return cache, nil
}

// download fetches and unpacks into a folder of its own first, so that target
// is whole or not there.
func download(ctx context.Context, version embeddedpostgres.PostgresVersion, cache, target string) error {
	work, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for a download of Postgres: %w", err)
	}
	unpacked := filepath.Join(work, "postgres")
	done := make(chan error, 1)
	go func() {
		err := unpack(version, work, unpacked)
		if err == nil && ctx.Err() == nil {
			err = errors.Join(os.RemoveAll(target), os.Rename(unpacked, target))
		}
		_ = os.RemoveAll(work)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the download of Postgres was broken off: %w", context.Cause(ctx))
	}
}

// unpack uses the library for what it does well, finding and unpacking the
// right archive. It has no call for that alone: Start goes on to run a server.
// So it is given a data folder that looks made and has no configuration, from
// which no server starts, and the programs are what counts in the end.
func unpack(version embeddedpostgres.PostgresVersion, work, unpacked string) error {
	data := filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(version), 0o600); err != nil {
		return err
	}
	err := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		BinaryRepositoryURL(repository).
		CachePath(filepath.Join(work, "archive")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(work, "runtime")).
		DataPath(data).
		Port(0).
		Logger(io.Discard)).Start()
	if _, missing := os.Stat(filepath.Join(unpacked, "bin", "postgres")); missing != nil {
		return fmt.Errorf("the download of Postgres %s failed: %w", version, cmp.Or(err, missing))
	}
	return nil
}
