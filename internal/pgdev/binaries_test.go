package pgdev_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/internal/pgdev"
	"turnkeeper/internal/testrun"
)

// archive is a minimal download: bin/postgres prints version 18.3, and bin/initdb and bin/pg_ctl fail.
//
//go:embed testdata/postgres.txz
var archive []byte

// plant installs a fake server that prints the given version.
func plant(t *testing.T, folder, version string) string {
	t.Helper()
	bin := filepath.Join(folder, version, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		program := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func TestChoiceOfInstalledServers(t *testing.T) {
	cases := map[string]struct {
		usual   []string // versions in the usual folders
		path    string   // version in PATH
		want    int      // version of the data
		choice  string
		refusal string
	}{
		"the newest":                 {usual: []string{"13.20", "9.6.24", "17.1", "15.3"}, choice: "17.1"},
		"a beta counts":              {usual: []string{"17.1", "19beta2"}, choice: "19beta2"},
		"the one in PATH":            {usual: []string{"17.1"}, path: "14.2", choice: "14.2"},
		"the one that made the data": {usual: []string{"17.1", "15.3"}, path: "16.0", want: 15, choice: "15.3"},
		"too old a one in PATH":      {usual: []string{"13.0"}, path: "12.9", choice: "13.0"},
		"only old ones":              {usual: []string{"12.22"}, refusal: "version 13 or newer is required"},
		"none of the data's version": {usual: []string{"17.1"}, want: 16,
			refusal: "the data was created by Postgres 16, but only Postgres 17"},
		"none": {refusal: "no Postgres server is installed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			folder := openFolder(t)
			pgdev.HideInstalls(t, filepath.Join(folder, "*", "bin"))
			for _, version := range c.usual {
				plant(t, folder, version)
			}
			if c.path != "" {
				t.Setenv("PATH", plant(t, openFolder(t), c.path))
			}
			bin, _, err := pgdev.Choose(t.Context(), c.want)
			if c.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), c.refusal) {
					t.Errorf("chose %s, error %v; want the error %q", bin, err, c.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := filepath.Base(filepath.Dir(bin)); got != c.choice {
				t.Errorf("chose %s, want %s", got, c.choice)
			}
		})
	}
}

func TestServerWithoutInitdbIsNone(t *testing.T) {
	folder := openFolder(t)
	pgdev.HideInstalls(t, filepath.Join(folder, "*", "bin"))
	if err := os.Remove(filepath.Join(plant(t, folder, "17.1"), "initdb")); err != nil {
		t.Fatal(err)
	}
	if bin, _, err := pgdev.Choose(t.Context(), 0); err == nil {
		t.Errorf("chose %s", bin)
	}
}

// mirror serves the archive as Maven Central does.
func mirror(t *testing.T, archives *atomic.Int32, checksum func(string) string) string {
	t.Helper()
	var jar bytes.Buffer
	packed := zip.NewWriter(&jar)
	file, err := packed.Create("postgres-linux-x86_64.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			_, _ = fmt.Fprint(w, checksum(hex.EncodeToString(sum[:])))
		case strings.HasSuffix(r.URL.Path, "-18.3.0.jar"):
			archives.Add(1)
			_, _ = w.Write(jar.Bytes())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func honest(sum string) string { return sum }

// emptyCache gives the test an empty download cache, whether it runs as root or not.
func emptyCache(t *testing.T, url string) string {
	t.Helper()
	cache := openFolder(t)
	pgdev.SetPlaces(t, url, openFolder(t), cache)
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	return cache
}

func TestDownload(t *testing.T) {
	var archives atomic.Int32
	emptyCache(t, mirror(t, &archives, honest))
	for range 2 { // the second time from the cache
		bin, major, err := pgdev.Fetch(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if major != 18 || !strings.HasSuffix(bin, "postgres-18.3.0/bin") {
			t.Errorf("fetched version %d into %s", major, bin)
		}
		left, err := filepath.Glob(filepath.Join(bin, "..", "..", "download-*"))
		if err != nil || len(left) != 0 {
			t.Errorf("left in the cache: %v %v", left, err)
		}
	}
	if got := archives.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
}

func TestDownloadThatFails(t *testing.T) {
	var archives atomic.Int32
	cases := map[string]struct {
		url   string
		major int
		want  string
	}{
		"no network": {url: "http://127.0.0.1:1", want: "connection refused"},
		"not there": {url: mirror(t, &archives, honest), major: 17,
			want: "the download of Postgres 17.5.0 failed: "},
		"never was": {url: mirror(t, &archives, honest), major: 12, want: "cannot download Postgres 12"},
		"another than promised": {url: mirror(t, &archives, func(string) string {
			return "0000"
		}), want: "checksum differs"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			emptyCache(t, c.url)
			bin, _, err := pgdev.Fetch(t.Context(), c.major)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("fetched %s, error %v; want the error %q", bin, err, c.want)
			}
		})
	}
}

func TestDownloadThatTakesTooLong(t *testing.T) {
	testrun.Slow(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	}))
	cache := emptyCache(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, _, err := pgdev.Fetch(ctx, 0); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("the error is %v", err)
	}
	close(answer)
	server.Close()
	eventually(t, "the download that was broken off cleans up", func() bool {
		left, _ := filepath.Glob(filepath.Join(cache, "download-*"))
		inHome, _ := filepath.Glob(filepath.Join(cache, "*", "download-*"))
		return len(left)+len(inHome) == 0
	})
}

func TestNoServerToBeHad(t *testing.T) {
	emptyCache(t, "http://127.0.0.1:1")
	pgdev.HideInstalls(t)
	_, err := pgdev.Open(t.Context(), pgdev.Options{Dir: openFolder(t)})
	if err == nil {
		t.Fatal("it opened")
	}
	for _, part := range []string{
		"no Postgres server to use",
		"install one (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql)",
		"or set DATABASE_URL",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is more than one line: %v", err)
	}
}

func TestInitdbThatFails(t *testing.T) {
	var archives atomic.Int32
	emptyCache(t, mirror(t, &archives, honest))
	pgdev.HideInstalls(t)
	dir := openFolder(t)
	_, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "could not create its data folder") {
		t.Errorf("the error is %v", err)
	}
	for _, name := range []string{"data", "data.new", "socket"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
