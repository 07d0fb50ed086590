//go:build unix

package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

// An image is what the last stage of the Dockerfile says about running it.
type image struct {
	environment map[string]string
	dir         string
	user        uint32
	entrypoint  []string
	command     []string
	health      []string
}

func readImage(t *testing.T) image {
	t.Helper()
	var i image
	for _, line := range instructions(t) {
		name, rest, _ := strings.Cut(line, " ")
		switch name {
		case "FROM": // a new stage
			i = image{environment: map[string]string{
				"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}}
		case "ENV":
			for _, pair := range strings.Fields(rest) {
				key, value, _ := strings.Cut(pair, "=")
				i.environment[key] = value
			}
		case "WORKDIR":
			i.dir = rest
		case "USER":
			id, _, _ := strings.Cut(rest, ":")
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			i.user = uint32(n)
		case "ENTRYPOINT":
			i.entrypoint = list(t, rest)
		case "CMD":
			i.command = list(t, rest)
		case "HEALTHCHECK":
			_, command, _ := strings.Cut(rest, " CMD ")
			i.health = list(t, command)
		}
	}
	return i
}

// list reads an instruction in exec form: a JSON array.
func list(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("%q is not in exec form: %v", text, err)
	}
	return words
}

// A container is the service worker of compose.yaml: the image's entrypoint, command, user and folder, and the
// environment of both. Its database is empty. Only what cannot be the same without Docker is mapped:
//
//   - /usr/local/bin: the folder of the programs;
//   - the image's WORKDIR, /srv/turnkeeper: a folder that the user cannot write to, with the volume ./agents;
//   - the address, user and name of the database in DATABASE_URL: those of the test's empty database;
//   - the port 8722 in TURNKEEPER_LISTEN, and where others call it: a free port;
//   - where the tests do not run as root, the user: theirs.
type container struct {
	t       *testing.T
	image   image
	bin     string // for /usr/local/bin
	dir     string // for the image's WORKDIR
	port    string // for port
	environ []string
	log     string // path of the file with its output
	ended   chan struct{}
}

// patience is the timeout of every wait. It is far longer than any takes.
const patience = 3 * time.Minute

// The port of the image, and its folder of programs.
const (
	port     = "8722"
	programs = "/usr/local/bin"
)

// newContainer makes a container with the programs of a folder, in which it makes its own.
func newContainer(t *testing.T, bin string) *container {
	t.Helper()
	c := &container{t: t, image: readImage(t), bin: bin, dir: filepath.Join(bin, "srv"), port: freePort(t),
		log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	worker := compose(t).Services["worker"]
	for _, volume := range worker.Volumes {
		from, to, _ := strings.Cut(volume, ":")
		to, _, _ = strings.Cut(to, ":")
		inside, ok := strings.CutPrefix(to, c.image.dir+"/")
		if !ok {
			t.Fatalf("the volume %s is not in the image's WORKDIR", volume)
		}
		if err := os.CopyFS(filepath.Join(c.dir, inside), os.DirFS(filepath.Join("..", from))); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range worker.Environment {
		c.image.environment[key] = interpolated(value)
	}
	// The socket of the tests' Postgres is in a folder that only this user can enter.
	_, database := storagetest.NewProxy(t, storagetest.EmptyURL(t))
	for key, value := range c.image.environment {
		switch key {
		case "DATABASE_URL":
			value = database
		case "PATH":
			value = strings.ReplaceAll(value, programs, c.bin)
		case "TURNKEEPER_LISTEN":
			value = c.mapped(value)
		}
		c.environ = append(c.environ, key+"="+value)
	}
	return c
}

// interpolated replaces ${NAME:-} as Compose does where NAME is not set.
func interpolated(value string) string { return strings.ReplaceAll(value, "${OPENAI_API_KEY:-}", "") }

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, free, _ := net.SplitHostPort(listener.Addr().String())
	return free
}

// mapped replaces the image's port.
func (c *container) mapped(text string) string { return strings.ReplaceAll(text, ":"+port, ":"+c.port) }

// command makes a command that runs in the container.
func (c *container) command(ctx context.Context, words ...string) *exec.Cmd {
	program := words[0]
	if !strings.Contains(program, "/") {
		program = path.Join(programs, program)
	}
	cmd := exec.CommandContext(ctx, strings.Replace(program, programs, c.bin, 1), words[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.environ
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.image.user, Gid: c.image.user}}
	}
	return cmd
}

// start starts the container, and waits until it is healthy. It is stopped when the test ends.
func (c *container) start() {
	c.t.Helper()
	worker := c.command(context.Background(), append(c.image.entrypoint, c.image.command...)...)
	log, err := os.Create(c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	worker.Stdout, worker.Stderr = log, log
	if err := worker.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		_ = worker.Wait()
	}()
	c.t.Cleanup(func() {
		_ = worker.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.ended:
		case <-time.After(patience):
			_ = worker.Process.Kill()
		}
		if <-c.ended; worker.ProcessState.ExitCode() != 0 {
			c.t.Errorf("the worker ended: %s\n%s", worker.ProcessState, c.output())
		}
	})
	for !c.healthy() {
		select {
		case <-c.ended:
			c.t.Fatalf("the worker ended by itself\n%s", c.output())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// output returns what the worker has written.
func (c *container) output() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		c.t.Error(err)
	}
	return string(text)
}

// healthy requests what HEALTHCHECK does.
func (c *container) healthy() bool {
	status, _ := c.get(c.image.health[len(c.image.health)-1], "")
	return status == http.StatusOK
}

// get requests a URL with a token; empty: without one. The status is 0 if nobody answers.
func (c *container) get(url, token string) (status int, text string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.mapped(url), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// publicDir makes a folder that every user may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "turnkeeper-deploy-") // not t.TempDir, whose parent is private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The README's commands, with the shipped files: the worker starts on an empty database, answers 401, and works
// with the token that the command makes.
func TestComposeUp(t *testing.T) {
	t.Parallel()
	testrun.Slow(t)
	dir := publicDir(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/",
		"../cmd/worker", "../cmd/enqueue", "../cmd/turnctl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	c := newContainer(t, dir)
	var token string
	for _, line := range documented(t) {
		switch {
		case strings.HasPrefix(line, "export POSTGRES_PASSWORD="):
		case line == "docker compose up --build --detach --wait":
			c.start()
			if status, text := c.get("http://127.0.0.1:8722/v1/agents", ""); status != http.StatusUnauthorized ||
				!strings.Contains(text, "turnctl tokens create") {
				t.Errorf("without a token the API answers %d %s", status, text)
			}
			if log := c.output(); !strings.Contains(log, "there is none yet") || !strings.Contains(log,
				"turnctl tokens create") {
				t.Errorf("the log does not say that a token is missing:\n%s", log)
			}
		case strings.HasPrefix(line, "docker compose exec worker turnctl tokens create "):
			token = strings.TrimSpace(c.exec(line))
		case strings.HasPrefix(line, "docker compose exec worker "):
			wantReply(t, line, c.exec(line))
		case strings.HasPrefix(line, "curl "):
			wantReply(t, line, c.shell(strings.ReplaceAll(line, "TOKEN", token)))
		default:
			t.Errorf("the README has the line %q, which this test does not know", line)
		}
	}
	if token == "" || strings.Contains(c.output(), token) {
		t.Errorf("the token is %q, and the log:\n%s", token, c.output())
	}
	if status, _ := c.get("http://127.0.0.1:8722/v1/agents", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong token the API answers %d", status)
	}
}

// documented returns the commands of the README's section about Compose.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, "README.md"), "### With Docker Compose\n")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", "")) {
		line, _, _ = strings.Cut(line, "   #")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if len(lines) < 4 {
		t.Fatalf("the README has the commands %q", lines)
	}
	return lines
}

// exec runs "docker compose exec worker …", and returns its output.
func (c *container) exec(line string) string {
	c.t.Helper()
	words := strings.SplitN(strings.TrimPrefix(line, "docker compose exec worker "), " ", 2)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.run(c.command(ctx, "/bin/sh", "-c", words[0]+" "+words[1]))
}

// shell runs a command of the machine that Docker runs on.
func (c *container) shell(line string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.run(exec.CommandContext(ctx, "/bin/sh", "-c", c.mapped(line)))
}

func (c *container) run(cmd *exec.Cmd) string {
	c.t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s%s\nthe worker:\n%s", cmd, err, out, &errs, c.output())
	}
	return string(out)
}

func wantReply(t *testing.T, command, out string) {
	t.Helper()
	if !strings.Contains(out, "demo script, not from a language model") {
		t.Errorf("%s printed no reply:\n%s", command, out)
	}
}

// The folders that .dockerignore leaves out hold nothing that the programs are built from.
func TestBuildContext(t *testing.T) {
	t.Parallel()
	const format = `{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/worker", "./cmd/enqueue",
		"./cmd/turnctl")
	cmd.Dir = root
	files, err := cmd.Output()
	if err != nil || len(files) == 0 {
		t.Fatalf("the programs have the files %q (%v)", files, err)
	}
	for pattern := range strings.Lines(read(t, ".dockerignore")) {
		pattern = strings.TrimSpace(pattern)
		name, anywhere := strings.CutPrefix(pattern, "**/")
		for file := range strings.Lines(string(files)) {
			inside := strings.TrimPrefix(file, root+"/")
			if strings.HasPrefix(inside, name+"/") || anywhere && strings.Contains(inside, "/"+name+"/") {
				t.Errorf(".dockerignore leaves out %s, which is needed", inside)
			}
		}
	}
}
