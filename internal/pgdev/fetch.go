package pgdev

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// repository is the address of Maven Central, which has server binaries.
var repository = "https://repo1.maven.org/maven2"

// systemCache is root's folder for downloaded binaries: the server's user cannot enter root's cache
// folder.
var systemCache = "/var/cache/turnkeeper"

// downloads maps major versions to downloadable versions.
var downloads = map[int]string{
	13: "13.21.0",
	14: "14.18.0",
	15: "15.13.0",
	16: "16.9.0",
	17: "17.5.0",
	18: "18.3.0",
}

const newestDownload = 18

// fetch returns binaries of a major version (0: the newest), and downloads them if necessary.
func fetch(ctx context.Context, a account, major int) (install, error) {
	if major == 0 {
		major = newestDownload
	}
	version, ok := downloads[major]
	if !ok {
		return install{}, fmt.Errorf("cannot download Postgres %d", major)
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

	target := filepath.Join(cache, "postgres-"+version)
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
		return "", fmt.Errorf("cannot create a cache folder for a download of Postgres: %w", err)
	}
	return cache, nil
}

// download unpacks into a temporary folder and renames it, so that target is either complete or missing.
func download(ctx context.Context, version, cache, target string) error {
	work, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return fmt.Errorf("cannot create a folder for a download of Postgres: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	err = fetchInto(ctx, version, work)
	if ctx.Err() != nil {
		return fmt.Errorf("the download of Postgres was interrupted: %w", context.Cause(ctx))
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(target), os.Rename(work, target))
	}
	if err != nil {
		return fmt.Errorf("the download of Postgres %s failed: %w", version, err)
	}
	return os.Chmod(target, 0o755) // the server's user runs the programs in it
}

// fetchInto downloads the archive of a version, a jar with a tar.xz file, and unpacks it into dir.
func fetchInto(ctx context.Context, version, dir string) error {
	name := "embedded-postgres-binaries-" + platform()
	url := fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", repository, name, version, name, version)
	jar, err := get(ctx, url)
	if err != nil {
		return err
	}
	promised, err := get(ctx, url+".sha256")
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(jar); string(bytes.TrimSpace(promised)) != hex.EncodeToString(sum[:]) {
		return errors.New("the archive's checksum differs from that of the repository")
	}
	packed, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return err
	}
	at := slices.IndexFunc(packed.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, ".txz") })
	if at < 0 {
		return errors.New("the archive has no programs")
	}
	compressed, err := packed.File[at].Open()
	if err != nil {
		return err
	}
	defer func() { _ = compressed.Close() }()
	files, err := xz.NewReader(bufio.NewReader(compressed))
	if err != nil {
		return err
	}
	return untar(ctx, tar.NewReader(files), dir)
}

// platform returns the repository's name of this platform.
func platform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch += "v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		arch += "-alpine"
	}
	return runtime.GOOS + "-" + arch
}

// maxArchive is the size limit of a download: four times the largest today.
const maxArchive = 256 << 20

// get returns the content of a URL.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(http.MaxBytesReader(nil, response.Body, maxArchive))
}

// untar unpacks an archive into dir.
func untar(ctx context.Context, archive *tar.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for ctx.Err() == nil {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(header.Name)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, name)
		case tar.TypeReg:
			err = writeFile(root, name, header.FileInfo().Mode().Perm(), archive)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func writeFile(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
