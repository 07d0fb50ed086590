package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A settingsWorld is a worker in this process whose messages say what its models answer. A test observes in it what a
// setting changes.
//
// A message "do: STEP | STEP" holds the model's answer of each round; the last one is repeated. The task of a sub-agent
// begins with "sub:", and has semicolons between its steps. OUTPUT stands for the newest handle. A step is "say TEXT",
// "fail STATUS", or calls "NAME ARGUMENTS & NAME ARGUMENTS".
type settingsWorld struct {
	t      *testing.T
	db     *storagetest.DB
	cfg    *config.Config
	ready  app.Ready
	model  *inferencetest.Server
	tools  *playedTools
	folder string // holds the agents' folder
	reload chan os.Signal
	read   chan string // what is logged of a reload
	site   string      // address of a server on a loopback address
}

// newSettingsWorld prepares a world with more lines in the file of settings; start starts its worker.
func newSettingsWorld(t *testing.T, more ...string) *settingsWorld {
	w := &settingsWorld{t: t, model: inferencetest.NewServer().Then(playMessage), tools: newPlayedTools(),
		reload: make(chan os.Signal), read: make(chan string, 1)}
	w.db = storagetest.Open(t, storagetest.URL(t))
	w.folder = t.TempDir()
	agents := filepath.Join(w.folder, "agents")
	if err := os.Mkdir(agents, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("database_url: %s\nagents_dir: %s\nproviders: {played: {base_url: %s}}\n%s", w.db.URL, agents,
		w.model.Start(t), strings.Join(more, "\n"))
	for key, value := range map[string]string{"default_model": "played/default", "listen": "127.0.0.1:0"} {
		if !strings.Contains(text, "\n"+key+":") {
			text += "\n" + key + ": " + value
		}
	}
	w.load(text)
	return w
}

// load reads the settings from a file.
func (w *settingsWorld) load(text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.folder, "turnkeeper.yaml"), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.reloadWith(nil, nil)
}

// reloadWith reads the settings again, with variables and flags.
func (w *settingsWorld) reloadWith(env, flags map[string]string) {
	w.t.Helper()
	cfg, err := config.Load(config.LoadOptions{
		File: filepath.Join(w.folder, "turnkeeper.yaml"), Flags: flags, Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.cfg = cfg
}

func (w *settingsWorld) start() {
	w.t.Helper()
	w.run(zap.New(&told{zapcore.NewNopCore(), w.read}), app.WithTools(w.tools.all()...), app.WithReload(w.reload))
}

// run runs the worker until the test ends, and returns when it is ready.
func (w *settingsWorld) run(log *zap.Logger, options ...app.WorkerOption) {
	w.t.Helper()
	soft, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- app.RunWorker(soft, soft, w.cfg, log, func(r app.Ready) { w.ready = r; close(ready) }, options...)
	}()
	w.t.Cleanup(func() {
		w.tools.release()
		w.model.Release()
		stop()
		w.t.Logf("the worker ended: %v", <-ended) // a turn that still runs is no fault of the test
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		w.t.Fatalf("the worker did not start: %v", err)
	}
}

// told sends what the worker logs of a reload.
type told struct {
	zapcore.Core
	read chan<- string
}

func (c *told) Enabled(level zapcore.Level) bool  { return level >= zapcore.InfoLevel }
func (c *told) With([]zapcore.Field) zapcore.Core { return c }

func (c *told) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(e, c)
}

func (c *told) Write(e zapcore.Entry, _ []zapcore.Field) error {
	if strings.Contains(e.Message, "reload") {
		c.read <- e.Message
	}
	return nil
}

// again reloads the agents' files.
func (w *settingsWorld) again() {
	w.t.Helper()
	w.reload <- os.Interrupt
	select {
	case message := <-w.read:
		if message != "reloaded the agents" {
			w.t.Fatal(message)
		}
	case <-time.After(patience):
		w.t.Fatal("the agents were not reloaded")
	}
}

// write writes an agent's file.
func (w *settingsWorld) write(agent, front string) { w.writePrompt(agent, front, "You help.") }

// writePrompt writes an agent's file with a system prompt.
func (w *settingsWorld) writePrompt(agent, front, prompt string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.cfg.AgentsDir, agent+".md"), []byte("---\n"+front+"\n---\n"+prompt+"\n"),
		0o600); err != nil {
		w.t.Fatal(err)
	}
}

// A talk is a conversation with an agent of the world.
type talk struct {
	*settingsWorld
	t     testing.TB
	db    *storagetest.DB // that fails t
	agent string
	name  string // of the conversation
	user  string
}

// talk returns a conversation with an agent, for a test or subtest.
func (w *settingsWorld) talk(t testing.TB, agent, name string) talk {
	db := *w.db
	db.T = t
	return talk{settingsWorld: w, t: t, db: &db, agent: agent, name: name}
}

// send enqueues a message.
func (k talk) send(body string) turnkeeper.MessageID {
	k.t.Helper()
	return k.submit(turnkeeper.Submission{Body: body})
}

func (k talk) submit(s turnkeeper.Submission) turnkeeper.MessageID {
	k.t.Helper()
	s.Agent, s.User, s.Conversation = k.agent, k.user, k.name
	id, err := k.db.Enqueue(k.t.Context(), s)
	if err != nil {
		k.t.Error(err)
	}
	return id
}

// in returns the talk in another conversation.
func (k talk) in(name string) talk {
	k.name = name
	return k
}

// say sends a message and waits for the end of its turn.
func (k talk) say(body string) operate.TurnView {
	k.t.Helper()
	return k.ended(k.send(body))
}

// ended waits for the reply to a message, and returns its turn.
func (k talk) ended(id turnkeeper.MessageID) operate.TurnView {
	k.t.Helper()
	k.until(func() bool { _, err := k.db.ReplyTo(k.t.Context(), id); return !errors.Is(err, turnkeeper.ErrNotFound) })
	return k.turnOf(id)
}

// turnOf returns the newest turn of a message.
func (k talk) turnOf(id turnkeeper.MessageID) operate.TurnView {
	k.t.Helper()
	turns, err := k.db.TurnsOf(k.t.Context(), id)
	if err != nil || len(turns) == 0 {
		k.t.Errorf("message %d has %d turns, %v", id, len(turns), err)
		return operate.TurnView{}
	}
	newest := slices.MaxFunc(turns, func(a, b waiting.Turn) int { return int(a.ID - b.ID) })
	view, err := k.db.ViewTurn(k.t.Context(), newest.ID)
	if err != nil {
		k.t.Error(err)
	}
	return view
}

// scheduled waits until the n-th turn that a schedule started with the agent's current definition has ended, and
// returns it.
func (k talk) scheduled(n int) operate.TurnView {
	k.t.Helper()
	var ids []turnkeeper.TurnID
	k.until(func() bool {
		ids = storagetest.One[[]turnkeeper.TurnID](k.db,
			`select coalesce(array_agg(id order by id), '{}') from turnkeeper.turns
			where agent = $1 and trigger = 'schedule' and ended_at is not null
			and definition_hash = (select definition_hash from turnkeeper.agents where name = $1)`, k.agent)
		return len(ids) >= n
	})
	view, err := k.db.ViewTurn(k.t.Context(), ids[n-1])
	if err != nil {
		k.t.Error(err)
	}
	return view
}

// until polls until so returns true.
func (k talk) until(so func() bool) {
	k.t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(patience / 2); !so(); <-poll.C {
		if time.Now().After(end) {
			k.t.Fatalf("%s: what is awaited did not happen", k.agent)
		}
	}
}

// waiting returns a message with what it waits for.
func (k talk) waiting(id turnkeeper.MessageID) waiting.Message {
	k.t.Helper()
	m, err := k.db.WaitingMessage(k.t.Context(), id)
	if err != nil {
		k.t.Fatal(err)
	}
	return m
}

// waits waits until a message waits for one of the reasons, or has ended or runs, and returns which: the reason or
// "runs".
func (k talk) waits(id turnkeeper.MessageID, reasons ...waiting.Reason) (why string) {
	k.t.Helper()
	k.until(func() bool {
		m := k.waiting(id)
		for _, wait := range m.Waits {
			if slices.Contains(reasons, wait.Reason) {
				why = string(wait.Reason)
				return true
			}
		}
		why = "runs"
		return m.State != turnkeeper.MessageWaiting
	})
	return why
}

// drop cancels messages and waits for their end.
func (k talk) drop(ids ...turnkeeper.MessageID) {
	k.t.Helper()
	for _, id := range ids {
		_, err := k.db.CancelMessage(k.t.Context(), id, "observed") // it may have ended
		k.until(func() bool { return !k.waiting(id).ClosedAt.IsZero() })
		if err != nil && !errors.Is(err, turnkeeper.ErrWrongState) {
			k.t.Errorf("message %d: %v", id, err)
		}
	}
}

// asks waits for the ask of an open turn of a message, or its end, and returns the ask.
func (k talk) asks(id turnkeeper.MessageID) (ask operate.Ask, asked bool) {
	k.t.Helper()
	k.until(func() bool {
		if _, err := k.db.ReplyTo(k.t.Context(), id); err == nil {
			return true
		}
		all, err := k.db.ListAsks(k.t.Context(), operate.AskFilter{Agent: k.agent})
		if err != nil {
			k.t.Fatal(err)
		}
		for _, a := range all {
			if turns, err := k.db.TurnsOf(k.t.Context(), id); err == nil && len(turns) > 0 &&
				turns[len(turns)-1].ID == a.Turn {
				ask, asked = a, true
			}
		}
		return asked
	})
	return ask, asked
}

// shown returns the first lines of the results that the model of a turn was shown, in the order of the calls.
func shown(v operate.TurnView) (texts []string) {
	for _, round := range v.Rounds {
		for _, call := range round.Calls {
			line, _, _ := strings.Cut(call.Shown, "\n")
			texts = append(texts, line)
		}
	}
	return texts
}

// states returns the states of a turn's calls, as in "succeeded denied".
func states(v operate.TurnView) string {
	var all []string
	for _, round := range v.Rounds {
		for _, call := range round.Calls {
			all = append(all, string(call.State))
		}
	}
	return strings.Join(all, " ")
}

// ending returns state, stop reason and number of rounds of a turn.
func ending(v operate.TurnView) string {
	return fmt.Sprintf("%s, %s, %d rounds", v.Turn.State, v.Turn.StopReason, v.Turn.InferenceRounds)
}

// body returns the text of a turn's reply.
func body(v operate.TurnView) string {
	if v.Reply == nil {
		return "no reply"
	}
	return v.Reply.Body
}

// requests returns the bodies of the requests that a text of the messages identifies.
func (k talk) requests(mark string) (found []inferencetest.Recorded) {
	for _, r := range k.model.Requests() {
		if strings.Contains(string(r.Body), mark) {
			found = append(found, r)
		}
	}
	return found
}

// playMessage answers a request as its newest message says.
func playMessage(r inferencetest.Recorded) inferencetest.Reply {
	if strings.HasPrefix(r.Chat().Model, "missing") {
		return inferencetest.Fault(http.StatusNotFound, "model_not_found", "There is no such model.")
	}
	steps, round, output := []string{"say A summary."}, 1, ""
	for _, m := range r.Chat().Messages {
		text := m.Text()
		if _, id, ok := strings.Cut(text, "Tool Output ID: "); ok && m.Role == "tool" {
			output, _, _ = strings.Cut(id, "\n")
		}
		switch script, task := strings.CutPrefix(text, "sub: "); {
		case m.Role == "assistant":
			round++
		case m.Role != "user":
		case task:
			steps, round = strings.Split(script, "; "), 1
		case strings.HasPrefix(text, "do: "):
			steps, round = strings.Split(strings.TrimPrefix(text, "do: "), " | "), 1
		}
	}
	return playStep(strings.ReplaceAll(steps[min(round, len(steps))-1], "OUTPUT", output))
}

func playStep(step string) inferencetest.Reply {
	if text, says := strings.CutPrefix(step, "say "); says {
		return inferencetest.Text(text)
	}
	if status, fails := strings.CutPrefix(step, "fail "); fails {
		code := 0
		_, _ = fmt.Sscan(status, &code)
		return inferencetest.Fault(code, "scripted", "A scripted failure.")
	}
	var calls []inferencetest.Call
	for call := range strings.SplitSeq(step, " & ") {
		name, arguments, _ := strings.Cut(call, " ")
		calls = append(calls, inferencetest.Call{Name: name, Arguments: arguments})
	}
	return inferencetest.Calls(calls...)
}

// spawn returns a call that gives an agent a task.
func spawn(agent, task string) string {
	arguments, err := json.Marshal(map[string]string{"agent": agent, "task": "sub: " + task})
	if err != nil {
		panic(err)
	}
	// What separates steps and calls is escaped, so that it separates only those of the task.
	return "spawn_agent " + strings.NewReplacer("&", `\u0026`, "|", `\u007c`, ";", `\u003b`).Replace(string(arguments))
}
