package protocoltest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d transcripts, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) != 2 || archive.Files[0].Name != "model" || archive.Files[1].Name != "transcript" {
				t.Fatalf("%s must have the files model and transcript", file)
			}
			want := string(archive.Files[1].Data)
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(archive.Files[0].Data), want) })
			if *update {
				archive.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s differs (-want +got); -update rewrites it:\n%s", file, diff)
			}
		})
	}
}

// play runs the commands of a transcript and returns it with their current output.
func play(t *testing.T, model, transcript string) string {
	e := newEnv(t, model)
	defer e.close()
	var out strings.Builder
	for line := range strings.Lines(transcript) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "> ")
		if !found {
			continue
		}
		e.command(command)
		synctest.Wait()
		fmt.Fprintf(&out, "> %s\n", command)
		for _, line := range append(e.takeEvents(), e.changes()...) {
			fmt.Fprintf(&out, "  %s\n", line)
		}
		out.WriteString("\n")
	}
	for _, violation := range e.store.Check(time.Minute) {
		t.Errorf("broken invariant: %s", violation)
	}
	if len(e.answers) > 0 {
		t.Errorf("the model was not asked for the last %d of its answers", len(e.answers))
	}
	for _, name := range e.names {
		if w := e.workers[name]; w.stopAt != "" || w.lose != "" {
			t.Errorf("%s never reached %q", name, w.stopAt+w.lose)
		}
	}
	return out.String()
}

// command runs one command.
func (e *env) command(line string) {
	words, text, _ := strings.Cut(line, ` "`)
	text = strings.TrimSuffix(text, `"`)
	args := strings.Fields(words)
	need := func(n int) {
		if len(args) < n {
			e.t.Fatalf("%q has too few arguments", line)
		}
	}
	need(1)
	switch args[0] {
	case "register":
		need(2)
		e.register(args[1], strings.Join(args[2:], " "))
	case "start":
		need(2)
		e.start(args[1])
	case "enqueue":
		need(2)
		e.enqueue(args[1], text)
	case "tick":
		e.tick()
	case "work":
		need(2)
		e.worker(args[1]).until(args[2:]).work()
	case "run-calls":
		need(2)
		e.worker(args[1]).until(args[2:]).runCalls()
	case "continue":
		need(2)
		e.worker(args[1]).resume()
	case "kill":
		need(2)
		e.worker(args[1]).kill()
	case "lose-answer":
		need(3)
		e.worker(args[1]).lose = strings.Join(args[2:], " ")
	case "give-again":
		need(2)
		e.giveAgain(e.number(args[1]))
	case "cancel":
		need(3)
		e.cancel(args[1], e.number(args[2]))
	case "advance":
		need(2)
		e.advance(args[1])
	case "stabilize":
		need(2)
		e.stabilize(e.worker(args[1]))
	default:
		e.t.Fatalf("unknown command %q", args[0])
	}
}

// stabilize runs ticks and jobs until a tick changes nothing.
func (e *env) stabilize(w *worker) {
	const limit = 20
	for range limit {
		report := e.tick()
		w.work()
		w.runCalls()
		synctest.Wait()
		if report.Requeued+report.Closed+report.Calls+report.Spawns+report.Slots+report.Granted == 0 {
			return
		}
	}
	e.t.Fatalf("the scheduler still had work after %d ticks", limit)
}
