//go:build unix

// Package deploy_test checks the files that programs are deployed with: no Docker is needed for it.
package deploy_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"turnkeeper/internal/config"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each instruction of the Dockerfile, without comments, one a line.
func instructions(t *testing.T) []string {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, "Dockerfile"), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var list []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			list = append(list, line)
		}
	}
	return list
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	list := instructions(t)
	known := strings.Fields("FROM WORKDIR COPY RUN ARG USER ENV EXPOSE HEALTHCHECK STOPSIGNAL ENTRYPOINT")
	last := map[string]string{}
	for _, line := range list {
		name, rest, _ := strings.Cut(line, " ")
		if !slices.Contains(known, name) {
			t.Errorf("unknown instruction %q", line)
		}
		if name == "FROM" && (strings.HasSuffix(rest, ":latest") || !strings.Contains(rest, ":")) {
			t.Errorf("%q names no version", line)
		}
		last[name] = rest
	}
	if want := "10001:10001"; last["USER"] != want {
		t.Errorf("the image runs as %q, want %q", last["USER"], want)
	}
	if !strings.Contains(last["HEALTHCHECK"], "/healthz") || last["STOPSIGNAL"] != "SIGTERM" {
		t.Errorf("HEALTHCHECK %s, STOPSIGNAL %s", last["HEALTHCHECK"], last["STOPSIGNAL"])
	}
	if want := `["/usr/local/bin/worker"]`; last["ENTRYPOINT"] != want {
		t.Errorf("ENTRYPOINT %s, want %s", last["ENTRYPOINT"], want)
	}

	text := strings.Join(list, "\n")
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	module := regexp.MustCompile(`(?m)^module (\S+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, want := range []string{"FROM golang:" + minor + "-alpine AS build",
		"COPY --from=build /out/ /usr/local/bin/", "CGO_ENABLED=0 go build -trimpath", module +
			"/internal/version.stamp="} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	for _, stamped := range []string{"Dockerfile", "scripts/release"} {
		if !strings.Contains(read(t, stamped), "internal/version.stamp=$VERSION $COMMIT $DATE'") ||
			!strings.Contains(read(t, "internal/version/version.go"), "\nvar stamp string\n") {
			t.Errorf("%s and internal/version do not agree on the stamp", stamped)
		}
	}
}

// A service is a service of compose.yaml, with all keys that it uses.
type service struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Healthcheck struct {
		Test     []string      `yaml:"test"`
		Interval time.Duration `yaml:"interval"`
		Timeout  time.Duration `yaml:"timeout"`
		Retries  int           `yaml:"retries"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	ReadOnly        bool          `yaml:"read_only"`
	Tmpfs           []string      `yaml:"tmpfs"`
	CapDrop         []string      `yaml:"cap_drop"`
	SecurityOpt     []string      `yaml:"security_opt"`
	StopGracePeriod time.Duration `yaml:"stop_grace_period"`
	Restart         string        `yaml:"restart"`
}

type composeFile struct {
	Services map[string]service `yaml:"services"`
	Volumes  map[string]any     `yaml:"volumes"`
}

func compose(t *testing.T) (file composeFile) {
	t.Helper()
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "compose.yaml")), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCompose(t *testing.T) {
	t.Parallel()
	file := compose(t)
	worker, postgres := file.Services["worker"], file.Services["postgres"]
	if len(file.Services) != 2 || worker.DependsOn["postgres"].Condition != "service_healthy" ||
		len(postgres.Healthcheck.Test) == 0 {
		t.Errorf("the worker does not wait for its Postgres: %+v", file.Services)
	}
	if !worker.ReadOnly || !slices.Equal(worker.CapDrop, []string{"ALL"}) || !slices.Contains(worker.SecurityOpt,
		"no-new-privileges:true") {
		t.Errorf("the worker has more rights than it needs: %+v", worker)
	}
	for name, s := range file.Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s to other hosts", name, port)
			}
		}
	}
	if _, ok := file.Volumes["postgres"]; !ok {
		t.Error("the data of Postgres is in no volume")
	}
	address := strings.ReplaceAll(worker.Environment["DATABASE_URL"], "${POSTGRES_PASSWORD}", "secret")
	if u, err := url.Parse(address); err != nil || u.Hostname() != "postgres" ||
		u.User.Username() != postgres.Environment["POSTGRES_USER"] || u.Path != "/"+
		postgres.Environment["POSTGRES_DB"] {
		t.Errorf("DATABASE_URL is %q (%v)", address, err)
	}
}

// unit reads a unit file: the values of each key.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	for line := range strings.Lines(read(t, "deploy/turnkeeper-worker.service")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Errorf("%q is no setting", line)
		}
		values[key] = append(values[key], value)
	}
	return values
}

func TestUnit(t *testing.T) {
	t.Parallel()
	got := unit(t)
	for key, want := range map[string]string{
		"User": "turnkeeper", "KillMode": "mixed", "Restart": "always", "RestartPreventExitStatus": "2",
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "",
	} {
		if !slices.Equal(got[key], []string{want}) {
			t.Errorf("%s=%q, want %q", key, got[key], want)
		}
	}
	// Tools are programs of all kinds: these settings would break some.
	for _, key := range []string{"MemoryDenyWriteExecute", "RestrictNamespaces", "PrivateNetwork"} {
		if len(got[key]) > 0 {
			t.Errorf("%s is set", key)
		}
	}

	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The programs of the unit are not installed here: one that is takes their place.
	file := filepath.Join(t.TempDir(), "turnkeeper-worker.service")
	text := strings.ReplaceAll(read(t, "deploy/turnkeeper-worker.service"), "/usr/local/bin/worker", "/bin/true")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", file).CombinedOutput(); err != nil ||
		len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// What stops a worker waits as long as it may take, and all files name the same time.
func TestTimeToStop(t *testing.T) {
	t.Parallel()
	want := config.Default().ShutdownGrace + config.StopMargin
	found := map[string][]string{}
	for _, path := range []string{"compose.yaml", "deploy/turnkeeper-worker.service", "docs/upgrading.md"} {
		for _, m := range timeToStop.FindAllStringSubmatch(read(t, path), -1) {
			found[path] = append(found[path], m[1])
			if m[2] != strconv.Itoa(int(want/time.Second)) {
				t.Errorf("%s says %q, want %s", path, m[0], want)
			}
		}
	}
	for path, settings := range map[string][]string{
		"compose.yaml": {"stop_grace_period"}, "deploy/turnkeeper-worker.service": {"TimeoutStopSec"},
		"docs/upgrading.md": {"TimeoutStopSec", "terminationGracePeriodSeconds", "stop_grace_period", "--time"},
	} {
		if !slices.Equal(found[path], settings) {
			t.Errorf("%s sets %q, want %q", path, found[path], settings)
		}
	}
	for _, path := range []string{"compose.yaml", "deploy/turnkeeper-worker.service", "docs/upgrading.md"} {
		for _, wait := range []time.Duration{config.Default().ShutdownGrace, config.StopMargin} {
			if !strings.Contains(read(t, path), fmt.Sprintf("%.0f s", wait.Seconds())) {
				t.Errorf("%s does not name the %s that the time consists of", path, wait)
			}
		}
	}
}

var timeToStop = regexp.MustCompile(
	`(stop_grace_period|TimeoutStopSec|terminationGracePeriodSeconds|--time)[:= ]+(\d+)s?`)

// Every variable that these files set is one that docs/configuration.md knows.
func TestVariables(t *testing.T) {
	t.Parallel()
	known := read(t, "docs/configuration.md")
	for _, path := range []string{"Dockerfile", "compose.yaml", "deploy/turnkeeper-worker.service"} {
		for _, name := range regexp.MustCompile(`\bTURNKEEPER_[A-Z_]+`).FindAllString(read(t, path), -1) {
			if !strings.Contains(known, "`"+name+"`") {
				t.Errorf("%s sets %s, which docs/configuration.md does not know", path, name)
			}
		}
	}
}

// A release runs as the Dockerfile runs it: static, as a user without rights, in a folder that it cannot write to.
func TestRelease(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	ctx, dir := t.Context(), publicDir(t)
	sums := release(ctx, t, "..", filepath.Join(dir, "out"))
	other := t.TempDir()
	cp := exec.CommandContext(ctx, "sh", "-c",
		`tar -c --exclude=./bin --exclude=./.git --exclude=./.turnkeeper --exclude=node_modules . | tar -x -C "$0"`,
		other)
	cp.Dir = ".."
	if out, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("copying the sources: %v\n%s", err, out)
	}
	if again := release(ctx, t, other, filepath.Join(other, "bin", "out")); again != sums {
		t.Errorf("another folder gives another archive:\n%s%s", sums, again)
	}
	unpack := exec.CommandContext(ctx, "sh", "-c",
		"cd out && sha256sum --check --quiet SHA256SUMS && tar -xzf *.tar.gz --strip-components=1 --no-same-owner -C ..")
	unpack.Dir = dir
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpacking: %v\n%s", err, out)
	}
	for _, name := range []string{"worker", "enqueue", "turnctl"} {
		path := filepath.Join(dir, name)
		if file, err := elf.Open(path); err == nil {
			if file.Section(".interp") != nil || file.Section(".debug_info") != nil {
				t.Errorf("%s is not static, or not stripped", name)
			}
			_ = file.Close()
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if want := name + " v0.0.1-test (commit 0123456789ab of 2026-11-23, "; err != nil ||
			!strings.HasPrefix(string(out), want) {
			t.Errorf("%s --version: %q (%v), want %q…", name, out, err, want)
		}
	}
	newContainer(t, dir).start()
}

// release builds a release for this platform from the sources in a folder, and returns its checksums.
func release(ctx context.Context, t *testing.T, sources, out string) string {
	t.Helper()
	build := exec.CommandContext(ctx, filepath.Join(sources, "scripts", "release"), out)
	build.Env = append(os.Environ(), "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH, "VERSION=v0.0.1-test",
		"COMMIT=0123456789abcdef", "DATE=2026-11-23T08:00:00Z")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("scripts/release: %v\n%s", err, said)
	}
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return string(sums)
}
