package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// A terminal is a real terminal with a shell, run by tmux. The test types into it and reads its screen.
type terminal struct {
	t      *testing.T
	socket string
}

const prompt = "ready$ "

// newTerminal starts a shell in the Env's folder, with its environment and this size.
func newTerminal(t *testing.T, e *env.Env, columns, rows int) *terminal {
	t.Helper()
	if out, err := exec.Command(env.Path("scripts/need"), "tmux:tmux").CombinedOutput(); err != nil {
		t.Fatalf("tmux cannot be installed: %v\n%s", err, out)
	}
	term := &terminal{t: t, socket: filepath.Join(t.TempDir(), "s")}
	environ := append(e.Environ(), "PS1="+prompt, "TERM=screen", "LC_ALL=C.UTF-8", "SHELL=/bin/sh",
		"PATH="+filepath.Dir(env.Binary(t, "turnctl"))+":"+os.Getenv("PATH"))
	cmd := exec.Command("tmux", "-u", "-S", term.socket, "-f", "/dev/null", "new-session", "-d", "-x",
		fmt.Sprint(columns), "-y", fmt.Sprint(rows), "/bin/sh")
	cmd.Dir, cmd.Env = e.Dir, environ
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	term.await("the prompt", func(screen string) bool { return strings.Contains(screen, strings.TrimSpace(prompt)) })
	return term
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// screen returns the visible text.
func (x *terminal) screen() string { return x.tmux("capture-pane", "-p") }

// keys types keys, by tmux's names.
func (x *terminal) keys(keys ...string) { x.tmux(append([]string{"send-keys"}, keys...)...) }

// line types a command.
func (x *terminal) line(text string) {
	x.tmux("send-keys", "-l", text)
	x.keys("Enter")
}

func (x *terminal) resize(columns, rows int) {
	x.tmux("resize-window", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows))
}

// await waits until the screen is so, and returns it.
func (x *terminal) await(what string, so func(screen string) bool) string {
	x.t.Helper()
	for end := time.Now().Add(env.Patience); ; <-env.After(30 * time.Millisecond) {
		screen := x.screen()
		if so(screen) {
			return screen
		}
		if time.Now().After(end) {
			x.t.Fatalf("timeout waiting until %s; screen:\n%s", what, screen)
		}
	}
}

func (x *terminal) shows(text string) string {
	x.t.Helper()
	return x.await(text, func(screen string) bool { return strings.Contains(screen, text) })
}

// asBefore fails the test unless the shell has the terminal back: its screen, cursor and echo, and the exit
// code of the program.
func (x *terminal) asBefore(earlier string, code int) {
	x.t.Helper()
	// keys typed before the prompt would be echoed before it
	x.await(earlier+" and the prompt", func(screen string) bool {
		screen = strings.TrimRight(screen, " \n")
		return strings.Contains(screen, earlier) && strings.HasSuffix(screen, "\n"+strings.TrimSpace(prompt))
	})
	x.line(`echo code:$? $(stty -a | tr " ;" "\n\n" | grep -cx -e echo -e icanon)`)
	screen := x.shows(fmt.Sprintf("\ncode:%d 2", code))
	if strings.Contains(screen, "q quit") {
		x.t.Errorf("the table is left on the screen:\n%s", screen)
	}
	if flag := strings.TrimSpace(x.tmux("display-message", "-p",
		"#{cursor_flag} #{alternate_on} #{wrap_flag}")); flag != "1 0 1" {
		x.t.Errorf("cursor, alternate page and wrapping are %s", flag)
	}
}

// turnctl top on a terminal draws, follows the size, scrolls, and restores the terminal, however it ends.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var lanes []string
	for n := range 30 {
		name := fmt.Sprintf("agent%02d", n)
		e.WriteAgent(name, "lane: conversation")
		lanes = append(lanes, name)
	}
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("Done: "))
	e.StartWorker()
	e.PauseScheduler("the messages shall wait")
	for _, name := range lanes {
		e.Send(name, "hello")
	}

	x := newTerminal(t, e, 100, 24)
	x.line("echo earlier-line")
	x.shows("earlier-line\n" + strings.TrimSpace(prompt))
	x.line("turnctl top --interval 300ms --limit 40")
	screen := x.shows("q quit")
	for _, want := range []string{"turnkeeper", "queue ", "0 running of 10 slots on 1 worker", "LANE", "agent00/main",
		"↑↓ scroll, lines 1 to 23 of "} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen has no %q:\n%s", want, screen)
		}
	}
	if strings.Contains(screen, "earlier-line") || strings.Contains(screen, "agent29") {
		t.Errorf("the screen has more than the page:\n%s", screen)
	}
	x.keys("End")
	x.shows("agent29/main")
	x.keys("Home")
	x.shows("lines 1 to 23 of")
	x.keys("Down", "Down", "j")
	x.shows("lines 4 to 26 of")
	x.keys("Up")
	x.shows("lines 3 to 25 of")
	x.keys("PageDown")
	x.await("the next page", func(screen string) bool {
		return !strings.Contains(screen, "lines 3 to") && strings.Contains(screen, "q quit")
	})
	x.keys("g")
	x.resize(60, 12)
	x.shows("lines 1 to 11 of")
	for _, line := range strings.Split(x.screen(), "\n") {
		if len([]rune(line)) > 60 {
			t.Errorf("a line has %d columns: %s", len([]rune(line)), line)
		}
	}
	x.resize(120, 60)
	screen = x.await("a page without scrolling", func(screen string) bool {
		return strings.Contains(screen, "q quit") && !strings.Contains(screen, "scroll") && strings.Contains(screen,
			"agent29/main")
	})
	if n := strings.Count(screen, "LANE"); n != 1 {
		t.Errorf("after two resizes the screen has the table %d times:\n%s", n, screen)
	}
	e.Send("clerk", "hello")
	x.shows("clerk ") // the new lane appears without a key
	x.keys("q")
	x.asBefore("earlier-line", 0)

	for name, end := range map[string]func(pid string){
		"SIGINT":  func(string) { x.keys("C-c") },
		"SIGTERM": func(pid string) { x.tmux("run-shell", "kill -TERM "+pid) },
	} {
		x.line("clear; echo before-" + name)
		x.shows("before-" + name + "\n")
		x.line("turnctl top & echo pid:$! > top.pid; fg")
		x.shows("q quit")
		end(strings.TrimSpace(strings.TrimPrefix(e.ReadFile("top.pid"), "pid:")))
		x.asBefore("before-"+name, 0)
	}

	// Ctrl-Z gives the terminal to the shell, and fg takes it back.
	x.line("clear; echo before-stop")
	x.shows("before-stop\n")
	x.line("set -m; turnctl top")
	x.shows("q quit")
	x.keys("C-z")
	x.await("the shell", func(screen string) bool {
		return strings.Contains(screen, "before-stop") && !strings.Contains(screen, "q quit")
	})
	x.line("fg")
	x.shows("q quit")
	x.keys("q")
	x.asBefore("before-stop", 0)
}

// top shows that the database is unavailable, and continues when it is back.
func TestTopWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	proxy, near := storagetest.NewProxy(t, e.DatabaseURL)
	e.WriteAgent("clerk")
	e.StartWorker()
	e.Vars["DATABASE_URL"] = near
	x := newTerminal(t, e, 100, 20)
	x.line("echo earlier-line")
	x.shows("earlier-line\n" + strings.TrimSpace(prompt))
	x.line("turnctl top --interval 200ms")
	x.shows("q quit")
	proxy.Refuse(true)
	proxy.Break()
	screen := x.shows("no answer from the database for ")
	if !strings.Contains(screen, "on 1 worker") {
		t.Errorf("what was known is gone from the screen:\n%s", screen)
	}
	proxy.Refuse(false)
	x.shows("q quit")
	proxy.Refuse(true)
	proxy.Break()
	x.shows("no answer from the database for ")
	x.keys("q")
	x.asBefore("earlier-line", 0)
}
