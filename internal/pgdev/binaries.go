package pgdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest supported version of Postgres.
const oldestMajor = 13

// install is a folder with the programs of one version of Postgres.
type install struct {
	bin   string
	major int
}

func (i install) postgres() string { return filepath.Join(i.bin, "postgres") }
func (i install) initdb() string   { return filepath.Join(i.bin, "initdb") }

// usualFolders are patterns of the folders where packages install servers.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // postgresql.org packages for Red Hat
	"/usr/libexec/postgresql*",                           // Alpine
	"/usr/local/pgsql/bin",                               // built from source
	"/usr/local/bin",                                     // FreeBSD, official container images
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/opt/homebrew/opt/postgresql/bin",                   //
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    //
	"/opt/local/lib/postgresql*/bin",                     // MacPorts
	"/Applications/Postgres.app/Contents/Versions/*/bin", //
	"/Library/PostgreSQL/*/bin",                          // EnterpriseDB
	"/run/current-system/sw/bin",                         // NixOS
	"/snap/postgresql/current/usr/lib/postgresql/*/bin",  //
	"/opt/bitnami/postgresql/bin",                        //
}

// findInstalls returns the installed servers that the account can run: the one in PATH first, then that
// of pg_config, then those in the usual folders, newest first.
func findInstalls(ctx context.Context, a account) []install {
	var preferred []string
	if path, err := exec.LookPath("postgres"); err == nil {
		preferred = append(preferred, realFolder(path))
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		preferred = append(preferred, strings.TrimSpace(string(out)))
	}
	var found []install
	for _, bin := range preferred {
		if in, err := inspect(ctx, a, bin); err == nil {
			found = append(found, in)
		}
	}
	found = append(found, usualInstalls(ctx, a)...)
	seen := map[string]bool{}
	return slices.DeleteFunc(found, func(in install) bool {
		again := seen[in.bin]
		seen[in.bin] = true
		return again
	})
}

func usualInstalls(ctx context.Context, a account) []install {
	var found []install
	for _, pattern := range usualFolders {
		bins, _ := filepath.Glob(pattern)
		for _, bin := range bins {
			if in, err := inspect(ctx, a, bin); err == nil {
				found = append(found, in)
			}
		}
	}
	slices.SortStableFunc(found, func(x, y install) int { return cmp.Compare(y.major, x.major) })
	return found
}

// realFolder returns the folder of a program with links resolved: initdb is next to the server, but not
// always next to a link to it.
func realFolder(program string) string {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	if abs, err := filepath.Abs(program); err == nil {
		program = abs
	}
	return filepath.Dir(program)
}

var versionNumber = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect checks a folder for a server and gets its version by running it as the account.
func inspect(ctx context.Context, a account, bin string) (install, error) {
	in := install{bin: bin}
	for _, program := range []string{in.postgres(), in.initdb()} {
		if info, err := os.Stat(program); err != nil {
			return install{}, err
		} else if info.Mode()&0o111 == 0 {
			return install{}, fmt.Errorf("%s is not a program", program)
		}
	}
	out, err := a.command(ctx, "/", in.postgres(), "--version").Output()
	if err != nil {
		return install{}, fmt.Errorf("%s does not run as %s: %w", in.postgres(), a.name, err)
	}
	match := versionNumber.FindSubmatch(out)
	if match == nil {
		return install{}, fmt.Errorf("%s does not print its version", in.postgres())
	}
	in.major, err = strconv.Atoi(string(match[1]))
	return in, err
}

// choose returns the first suitable server. Existing data needs its own major version (want); want is 0
// without data.
func choose(found []install, want int) (install, error) {
	for _, in := range found {
		if in.major >= oldestMajor && (want == 0 || in.major == want) {
			return in, nil
		}
	}
	if len(found) == 0 {
		return install{}, errors.New("no Postgres server is installed")
	}
	if want != 0 && want < oldestMajor {
		return install{}, fmt.Errorf("the data was created by Postgres %d, but version %d or newer is required; installed is %s",
			want, oldestMajor, names(found))
	}
	if want != 0 {
		return install{}, fmt.Errorf("the data was created by Postgres %d, but only %s is installed",
			want, names(found))
	}
	return install{}, fmt.Errorf("only %s is installed, but version %d or newer is required", names(found), oldestMajor)
}

func names(found []install) string {
	texts := make([]string, len(found))
	for i, in := range found {
		texts[i] = fmt.Sprintf("Postgres %d (%s)", in.major, in.bin)
	}
	return strings.Join(texts, ", ")
}

// clusterMajor reads the major version of a cluster.
func clusterMajor(h home) (int, error) {
	text, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if err != nil {
		return 0, fmt.Errorf("cannot read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0,
			fmt.Errorf(
				"the file PG_VERSION in %s has no version: restore it. To start with an empty database, move the folder aside", h.data())
	}
	return major, nil
}
