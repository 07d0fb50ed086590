package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/client"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A draft puts together what a client shows of a message while it is written.
type draft struct {
	turn   turnkeeper.TurnID
	blocks map[int]string // by number
	rounds map[int]int    // of the blocks
	order  []int
}

func (d *draft) take(e client.MessageEvent) {
	switch e.Type {
	case turnkeeper.EventTurnStart:
		*d = draft{turn: e.TurnID, blocks: map[int]string{}, rounds: map[int]int{}}
	case turnkeeper.EventBlockDelta:
		if _, there := d.blocks[e.Block]; !there {
			d.order = append(d.order, e.Block)
		}
		d.blocks[e.Block] += e.Text()
		d.rounds[e.Block] = e.Round
	case turnkeeper.EventRoundRollback:
		for block, round := range d.rounds {
			if round == e.Round {
				d.blocks[block] = ""
			}
		}
	}
}

func (d *draft) text() string {
	var b strings.Builder
	for _, block := range d.order {
		b.WriteString(d.blocks[block])
	}
	return b.String()
}

// TestAMessageIsWatchedOverALostWorker kills the worker that writes, while connections are cut. Who watches with a
// token that may only send gets each event once, and ends with the text of the reply.
func TestAMessageIsWatchedOverALostWorker(t *testing.T) {
	s := newResponsesEnv(t)
	posted, accepted := post(t, s.front.APIURL(), `{"agent":"clerk","body":"long"}`, "Authorization", "Bearer "+s.key)
	if posted.StatusCode != http.StatusCreated {
		t.Fatalf("answered %s", posted.Status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	watch := client.Server{URL: s.cutter.URL, Token: s.key,
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	seen, shown, rollbacks, killed := map[string]bool{}, draft{}, 0, false
	var reply *turnkeeper.Reply
	for e, err := range watch.Watch(ctx, turnkeeper.MessageID(accepted.ID), "") {
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.ID] && e.ID != "" {
			t.Errorf("event %s came twice", e.ID)
		}
		seen[e.ID] = true
		shown.take(e)
		if e.Type == turnkeeper.EventRoundRollback {
			rollbacks++
		}
		if !killed && shown.text() != "" {
			killed = true
			s.loseTheWorker()
		}
		reply = e.Reply
	}
	if reply == nil || reply.Body != s.long || shown.text() != s.long {
		t.Errorf("the client shows %d bytes, and the reply is %+v", len(shown.text()), reply)
	}
	if rollbacks == 0 || s.cutter.cuts.Load() < 3 {
		t.Errorf("%d roll-backs and %d cuts: too few to show anything", rollbacks, s.cutter.cuts.Load())
	}
}

// TestAGuardedAgentIsWatched watches an agent whose replies may be held back: a token that may only send gets no text
// before the reply.
func TestAGuardedAgentIsWatched(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "reply_sink: ask")
	e.Model.Add(inferencetest.Message("The secret is 4711.", inferencetest.Call{Name: "the_secret_is_4711",
		Arguments: `{"text":"4711"}`}))
	e.Model.Add(inferencetest.Text("It is 4711."))
	base := e.StartWorker().APIURL()
	tokens := map[string]string{}
	for _, scope := range []string{"send", "read"} {
		tokens[scope] = env.Turnctl[struct{ Token string }](e, "tokens", "create", scope, "--scopes", scope).Token
	}
	_, accepted := post(t, base, `{"agent":"clerk","body":"Talk."}`)
	for scope, token := range tokens {
		text := ""
		for event, err := range (client.Server{URL: base, Token: token}).Watch(t.Context(),
			turnkeeper.MessageID(accepted.ID), "") {
			if err != nil {
				t.Fatal(err)
			}
			if event.Reply != nil {
				if event.Reply.Body != "It is 4711." {
					t.Errorf("the reply is %q", event.Reply.Body)
				}
				continue
			}
			text += string(event.Data)
		}
		if guarded := !strings.Contains(text, "4711"); guarded != (scope == "send") ||
			!strings.Contains(text, "tool_use") {
			t.Errorf("who may %s got %s", scope, text)
		}
	}
}

// TestWhoMayWatch watches messages that do not exist, and those of other agents.
func TestWhoMayWatch(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.WriteAgent("desk")
	e.Model.Then(env.Echo("answer to "))
	base := e.StartWorker().APIURL()
	desk := env.Turnctl[struct{ Token string }](e, "tokens", "create", "desk", "--scopes", "send",
		"--agents", "desk").Token
	_, accepted := post(t, base, `{"agent":"clerk","body":"Talk."}`)
	for id, c := range map[int64]client.Server{accepted.ID: {URL: base, Token: desk}, 987654321: {URL: base}} {
		for event, err := range c.Watch(t.Context(), turnkeeper.MessageID(id), "") {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint("there is no message ", id)) {
				t.Errorf("message %d: %v, %v", id, event, err)
			}
		}
	}
	for _, err := range (client.Server{URL: base, Token: "tk_wrong"}).Watch(t.Context(), 1, "") {
		if err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("a wrong token: %v", err)
		}
	}
}

// TestAGeneratedClientStreams generates a client in TypeScript from the description, compiles it with a program that
// streams a message, and runs that. The model goes on only after the program has shown its first text.
func TestAGeneratedClientStreams(t *testing.T) {
	testrun.OnlyFull(t) // needs npm's packages
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "max_duration: 200s", env.MarkerTools)
	e.Vars["TURNKEEPER_MODEL_TIMEOUT"] = "190s"
	enough := make(chan struct{})
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), untilEnough(enough)))
	base := e.StartWorker().APIURL()
	token := env.Turnctl[struct{ Token string }](e, "tokens", "create", "shop", "--scopes", "send").Token
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	dir := t.TempDir()
	run := func(script string, args ...string) {
		t.Helper()
		if out, err := env.NodeProgram(ctx, t, nil, script, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	run("node_modules/@hey-api/openapi-ts/bin/run.js", "-i", base+"/openapi.json", "-o",
		filepath.Join(dir, "generated"), "--silent")
	program, err := os.ReadFile(env.Path("tests/internal/clients/stream.ts"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "stream.ts"), program, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run("node_modules/typescript/bin/tsc", "--strict", "--target", "es2022", "--lib",
		"es2023,dom,dom.iterable,dom.asynciterable", "--module", "commonjs",
		"--skipLibCheck", "--outDir", filepath.Join(dir, "built"), filepath.Join(dir, "stream.ts"))
	cmd := env.NodeProgram(ctx, t, []string{"TOKEN=" + token}, "run.mjs", filepath.Join(dir, "built",
		"stream.js"), base)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		var problems strings.Builder
		cmd.Stderr = &problems
		defer func() { t.Log(problems.String()) }()
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := json.NewDecoder(stdout)
	var first, last struct {
		Text, Reply, Outcome string
		Tools                []string
	}
	if err := said.Decode(&first); err != nil || first.Text == "" {
		t.Fatalf("the program said %+v, %v", first, err)
	}
	close(enough)
	if err := said.Decode(&last); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	turn := e.TurnOf(accepted(e))
	if turn.Reply == nil || last.Reply != turn.Reply.Body || last.Text != last.Reply || last.Outcome != "succeeded" ||
		strings.Join(last.Tools, " ") != "mark_none" {
		t.Errorf("the program ended with %d bytes of text, a reply of %d, %s, and the tools %s", len(last.Text),
			len(last.Reply), last.Outcome, last.Tools)
	}
}

// accepted returns the id of the one message.
func accepted(e *env.Env) int64 { return env.Query[int64](e, "select id from messages") }
