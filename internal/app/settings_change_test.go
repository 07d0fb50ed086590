package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/internal/app"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/waiting"
	"turnkeeper/jobs"
	"turnkeeper/storage/storagetest"
)

// seenBy returns what a turn of the agent in TestARunningTurnKeepsItsDefinition shows of its definition.
func seenBy(k talk, id turnkeeper.MessageID) string {
	v := k.ended(id)
	requests := k.requests(fmt.Sprintf("said in message %s", k.name))
	last := requests[len(requests)-1]
	var tools []string
	for _, name := range []string{"text", "echo"} {
		if strings.Contains(string(last.Body), fmt.Sprintf(`"name":%q`, name)) {
			tools = append(tools, name)
		}
	}
	asked := "" // the prompt of the definition
	for _, prompt := range []string{"You are old.", "You are new."} {
		if strings.Contains(string(last.Body), prompt) {
			asked += prompt
		}
	}
	return fmt.Sprintf("%s %s %v, %s", last.Chat().Model, asked, tools, ending(v))
}

// TestARunningTurnKeepsItsDefinition changes the file of an agent while a turn of it runs. The turn goes on with the
// definition that it began with, the next one has the new one, and without the settings the defaults are back.
func TestARunningTurnKeepsItsDefinition(t *testing.T) {
	w := newSettingsWorld(t, "max_rounds: 5")
	versions := []string{
		"tools: [meet, text]\nlane: conversation\nmodel: played/old\nmax_rounds: 2",
		"tools: [meet, text, echo]\nlane: conversation\nmodel: played/new\nmax_rounds: 3",
		"tools: [meet, text]\nlane: conversation",
	}
	prompts := []string{"You are old.", "You are new.", "You are new."}
	w.writePrompt("clerk", versions[0], prompts[0])
	w.start()
	k := w.talk(t, "clerk", "")
	script := func(name string) string {
		return fmt.Sprintf(
			`do: meet {} | text {"n":1} | text {"n":2} | text {"n":3} | text {"n":4} | say said in message %s`, name)
	}
	var ids []turnkeeper.MessageID
	for i := range versions {
		if i > 0 {
			w.writePrompt("clerk", versions[i], prompts[i])
			w.again()
		}
		name := fmt.Sprint(i)
		ids = append(ids, k.in(name).send(script(name)))
		k.until(func() bool { return w.tools.met("clerk") > i })
	}
	w.tools.release()
	for i, want := range []string{
		"old You are old. [text], degraded, max_rounds, 2 rounds",
		"new You are new. [text echo], degraded, max_rounds, 3 rounds",
		"default You are new. [text], degraded, max_rounds, 5 rounds",
	} {
		if got := seenBy(k.in(fmt.Sprint(i)), ids[i]); got != want {
			t.Errorf("version %d: %s, want %s", i, got, want)
		}
	}
}

// slowStart is a fault hook that lets time pass between the grant of a turn and its start.
type slowStart time.Duration

func (s slowStart) At(ctx context.Context, point string) {
	if point == jobs.PointFetched {
		_ = pause.For(ctx, time.Duration(s))
	}
}

// TestTheTimeOfATurnCountsFromItsGrant starts a turn late.
func TestTheTimeOfATurnCountsFromItsGrant(t *testing.T) {
	const late = time.Second
	w := newSettingsWorld(t, "max_duration: 30s", "tool_timeout: 200s")
	w.write("clerk", "tools: [deadline]")
	w.run(zap.NewNop(), app.WithTools(w.tools.all()...), app.WithFaults(slowStart(late)))
	v := w.talk(t, "clerk", "main").say("do: deadline {} | say so")
	end, err := time.Parse(time.RFC3339Nano, shown(v)[0])
	if err != nil {
		t.Fatal(err)
	}
	if given := end.Sub(v.Turn.CreatedAt); given < 30*time.Second-late/2 || given > 30*time.Second+late/2 {
		t.Errorf("the turn has %s from its grant", given)
	}
}

// TestTheTimesOfAModelCall asks a model that does not answer: with a short time the call fails, with a long one it
// lasts until its turn ends.
func TestTheTimesOfAModelCall(t *testing.T) {
	for name, set := range map[string]func(*config.Config, time.Duration){
		"model_idle_timeout": func(c *config.Config, d time.Duration) { c.Bounds.ModelIdle = d },
		"model_timeout": func(c *config.Config, d time.Duration) {
			c.Bounds.ModelTimeout = d
			slow := c.Providers["slow"]
			slow.Profile.Stream = new(false)
			c.Providers["slow"] = slow
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 9)
			server := inferencetest.NewServer().Then(func(inferencetest.Recorded) inferencetest.Reply {
				asked <- struct{}{}
				return inferencetest.Hang()
			}).Start(t)
			call := func(ctx context.Context, limit time.Duration) error {
				cfg := config.Default()
				cfg.Providers = map[string]config.Provider{"slow": {Name: "slow", BaseURL: server,
					Profile: config.Profile{Name: "openai"}}}
				set(cfg, limit)
				models, err := setup.NewModels(cfg, nil, setup.Readers{openai.APIChat: completions.Read},
					cfg.Masker(), zap.NewNop())
				if err != nil {
					t.Fatal(err)
				}
				model, _, err := models.Find("slow/m")
				if err != nil {
					t.Fatal(err)
				}
				_, err = model.Generate(ctx, inference.Request{Model: "m",
					Messages: []inference.Message{{Role: inference.RoleUser, Text: "Hello"}}}, func(inference.Delta) {})
				return err
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience/6) // less than the defaults
			defer cancel()
			if err := call(ctx, 100*time.Millisecond); err == nil || ctx.Err() != nil ||
				time.Since(began) < 100*time.Millisecond {
				t.Errorf("with a limit of 100 ms the call ended after %s with %v", time.Since(began), err)
			}
			<-asked
			ctx, cancel = context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- call(ctx, time.Hour) }()
			<-asked
			if err := call(t.Context(), 100*time.Millisecond); err == nil {
				t.Error("the call succeeded")
			}
			select {
			case err := <-ended:
				t.Errorf("with a limit of an hour the call ended with %v", err)
			default:
			}
			cancel()
			if <-ended == nil {
				t.Error("the call succeeded")
			}
		})
	}
}

// settingsColumns says for each column of turnkeeper.settings that an operator may change what is observed without a
// value and with two. A nil function: the scheduler writes the column.
var settingsColumns = map[string]func(db *storagetest.DB, set func(value string)) (got, want []string){
	"max_message_bytes": func(db *storagetest.DB, set func(string)) (got, want []string) {
		for _, value := range []int{100, 200} {
			set(fmt.Sprint(value))
			for _, n := range []int{value - 1, value, value + 1} {
				_, err := db.Enqueue(db.T.Context(), turnkeeper.Submission{Agent: "clerk",
					Body: strings.Repeat("x", n)})
				got, want = append(got, fmt.Sprint(err == nil)), append(want, fmt.Sprint(n <= value))
			}
		}
		return got, want
	},
	"max_sender_priority": nil, // needs a role that may only send: see package storage
	"poll_interval": func(db *storagetest.DB, set func(string)) (got, want []string) {
		for _, value := range []string{"'1 s'", "'2 s'", "null"} {
			set(value)
			sit, _ := db.Snapshot()
			got = append(got, sit.PollInterval.String())
		}
		return got, []string{"1s", "2s", "0s"}
	},
	"max_dispatches_per_tick": func(db *storagetest.DB, set func(string)) (got, want []string) {
		for _, value := range []string{"1", "2", "null"} {
			set(value)
			sit, _ := db.Snapshot()
			got = append(got, fmt.Sprint(sit.MaxDispatches))
		}
		return got, []string{"1", "2", "0"}
	},
	"paused_at": func(db *storagetest.DB, set func(string)) (got, want []string) {
		id := db.Submit("clerk", "paused", "Hello")
		for _, value := range []string{"now(), paused_reason = 'repairs'", "now(), paused_reason = 'holidays'",
			"null, paused_reason = null"} {
			set(value)
			got = append(got, pausedFor(db, id))
		}
		return got, []string{"repairs", "holidays", ""}
	},
	"paused_reason": nil, // set with paused_at
	"kept_for": func(db *storagetest.DB, set func(string)) (got, want []string) {
		for _, value := range []string{"'1 h'", "'2 h'", "null"} {
			set(value)
			kept, err := db.KeptFor(db.T.Context())
			if err != nil {
				db.T.Fatal(err)
			}
			got = append(got, kept.String())
		}
		return got, []string{"1h0m0s", "2h0m0s", "0s"}
	},
	"singleton": nil, "last_tick_at": nil, "timeline": nil, "server_started": nil, "hold_until": nil,
	"hold_reason": nil, "silence_from": nil,
}

func pausedFor(db *storagetest.DB, id turnkeeper.MessageID) string {
	m, err := db.WaitingMessage(db.T.Context(), id)
	if err != nil {
		db.T.Fatal(err)
	}
	for _, wait := range m.Waits {
		if wait.Reason == waiting.SchedulerPaused {
			return wait.Why
		}
	}
	return ""
}

// TestEveryColumnOfTheSettingsHasAnEffect changes each column of turnkeeper.settings.
func TestEveryColumnOfTheSettingsHasAnEffect(t *testing.T) {
	db := storagetest.New(t)
	if err := db.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{{Name: "clerk",
		DefinitionHash: strings.Repeat("a", 64), Definition: []byte("---\n---\nHi"),
		Models: []string{"m/m"}}}); err != nil {
		t.Fatal(err)
	}
	columns := storagetest.One[[]string](db,
		"select array_agg(column_name::text) from information_schema.columns where table_schema = 'turnkeeper' and table_name = 'settings'")
	for _, column := range columns {
		see, known := settingsColumns[column]
		if !known {
			t.Errorf("the column %s has no row: add one, so that a test fails if it has no effect", column)
		}
		if see == nil {
			continue
		}
		got, want := see(db, func(value string) {
			db.Exec(fmt.Sprintf("update turnkeeper.settings set %s = %s", column, value))
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", column, got, want)
		}
	}
	if len(columns) != len(settingsColumns) {
		t.Errorf("%d columns, %d rows", len(columns), len(settingsColumns))
	}
}
