package app_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/bounds"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// settingsElsewhere are the settings that have no row, with the test that checks their effect.
var settingsElsewhere = map[string]string{
	"config":                  "internal/config TestPrecedence",
	"agents_dir":              "internal/cli TestAgentsCheck",
	"data_dir":                "internal/cli TestWorkerWithFaultyAgentsMakesNoDatabase",
	"database_url":            "internal/cli TestUnreadableDatabaseURL",
	"migrate_on_start":        "tests/core TestAWorkerThatDoesNotMigrate",
	"detached_slots":          "tests/core TestThousandsOfTurnsWait",
	"shutdown_grace":          "internal/app TestTheOrderOfAStop",
	"poll_interval":           "tests/core TestPollingSuffices",
	"max_dispatches_per_tick": "scheduler TestRunLooksAgain",
	"max_result_memory":       "tests/mcp TestBulkyResultsTakeLittleMemory",
	"log_level":               "tests/api TestWebhook",
	"log_format":              "tests/api TestATurnIsOneTraceThroughALostWorker",
	"http_connections":        "httpapi TestIdleConnectionsGiveWay",
	"model_timeout":           "internal/app TestTheTimesOfAModelCall",
	"model_idle_timeout":      "internal/app TestTheTimesOfAModelCall",
}

// workerRows have a row for each setting. Those that agents can override are observed as the agents' own.
func workerRows(w *settingsWorld) []workerRow {
	var rows []workerRow
	for _, r := range agentRows(w) {
		if _, shared := ownBounds[r.key]; shared {
			rows = append(rows, workerRow{name: r.key, values: r.values, with: r.with, see: r.see,
				want: [2]string{r.want[0], r.want[1]}})
		}
	}
	for i, r := range rows {
		if strings.Contains(r.with, "%s") {
			rows[i].with = strings.ReplaceAll(r.with, "%s", "")
		}
	}
	return slices.Concat(rows, ownRows(), httpRows(), processRows())
}

// lose ends the lease of an agent's running turn n times, each time once a call of meet has begun, and returns the
// number of grants.
func lose(k talk, n int) string {
	id := k.send("do: meet {} | say so")
	for i := range n {
		k.until(func() bool { return k.tools.met(k.agent) > i || !k.waiting(id).ClosedAt.IsZero() })
		k.db.Exec("update turnkeeper.leases set lease_until = clock_timestamp() where agent = $1", k.agent)
		k.db.Exec("update turnkeeper.turns set lease_until = clock_timestamp() where agent = $1 and state = 'running'",
			k.agent)
	}
	v := k.ended(id)
	return fmt.Sprintf("%s after %d grants", v.Turn.StopReason, v.Turn.Dispatches)
}

func ownRows() []workerRow {
	const often = "schedule:\n  cron: \"@every 1s\"\n  message: \"do: fails {} | say so\""
	return []workerRow{
		{name: "default_model", values: [2]string{"played/first", "played/second"}, see: func(k talk) string {
			return asked(k.say("do: say so"))
		}, want: [2]string{"first", "second"}},
		{name: "round_ceiling", values: [2]string{"5", "6"}, with: "tools: [text]\nmax_rounds: 10\nmax_tool_calls: 100",
			see: func(k talk) string {
				return ending(k.say(`do: text {"n":1}`))
			}, want: [2]string{"degraded, max_rounds, 5 rounds", "degraded, max_rounds, 6 rounds"}},
		{name: "max_paging_calls", values: [2]string{"1", "2"}, with: "tools: [text]", see: func(k talk) string {
			const page = `get_continuation {"tool_call_id":"1","offset":0}`
			return states(k.say(`do: text {"n":301} | ` + page + " & " + page + " & " + page + " | say so"))
		}, want: [2]string{"succeeded succeeded denied denied", "succeeded succeeded succeeded denied"}},
		{name: "max_attempts", values: [2]string{"1", "2"}, see: func(k talk) string {
			return fmt.Sprint(k.waiting(k.say("do: say ").Message.ID).Attempts)
		}, want: [2]string{"1", "2"}},
		{name: "max_dispatches", values: [2]string{"3", "4"}, with: "tools: [meet]", see: func(k talk) string {
			return lose(k, 4)
		},
			want: [2]string{"worker_lost after 3 grants", "worker_lost after 4 grants"}},
		{name: "roles", values: [2]string{"api,scheduler,worker", "all"}, see: func(k talk) string {
			return storagetest.One[string](k.db, "select array_to_string(roles, ' ') from turnkeeper.worker_heartbeat")
		}, want: [2]string{"api scheduler worker", "api scheduler webhooks worker"}},
		{name: "lease_margin", values: [2]string{"10s", "20s"}, see: func(k talk) string {
			var fit []string
			for _, left := range []time.Duration{10 * time.Second, 10*time.Second + time.Millisecond, 20 * time.Second,
				20*time.Second + time.Millisecond} {
				longest := k.cfg.Bounds.LeaseTTL - left
				fit = append(fit,
					fmt.Sprint((&agentdef.Definition{Overrides: bounds.Overrides{"max_duration": longest}}).Check(
						k.cfg.Bounds) == nil))
			}
			return strings.Join(fit, " ")
		}, want: [2]string{"false true true true", "false false false true"}},
		{name: "lease_ttl", values: [2]string{"200s", "220s"}, see: func(k talk) string {
			return storagetest.One[string](k.db,
				"select (lease_until - granted_at)::text from turnkeeper.ended_grants where turn_id = $1",
				int64(k.say("do: say so").Turn.ID))
		}, want: [2]string{"00:03:20", "00:03:40"}},
		{name: "cooldown_failures", values: [2]string{"2", "3"}, with: "tools: [fails]\n" + often,
			see: func(k talk) string {
				return states(k.scheduled(2)) + " " + states(k.scheduled(3)) + " " + states(k.scheduled(4))
			}, want: [2]string{"failed skipped skipped", "failed failed skipped"}},
		{name: "cooldown_window", values: [2]string{"1000s", "2000s"}, with: "tools: [fails]\n" + often,
			see: func(k talk) string {
				_, after, _ := strings.Cut(shown(k.scheduled(4))[0], "within ")
				return strings.Fields(after + " none")[0]
			}, want: [2]string{"1000", "2000"}},
		{name: "cooldown", values: [2]string{"3000s", "4000s"}, with: "tools: [fails]\n" + often,
			see: func(k talk) string {
				_, after, _ := strings.Cut(shown(k.scheduled(4))[0], "cool-down of ")
				return strings.Fields(after + " none")[0]
			}, want: [2]string{"3000", "4000"}},
		{name: "approve", values: [2]string{`'tool == "pay" ? ask : allow'`, `'tool == "publish" ? ask : allow'`},
			with: "tools: [pay, publish]", see: func(k talk) string {
				return whatIsAsked(k, `do: pay {"text":"x"} & publish {"text":"x"} | say so`,
					func(a operate.Ask) string {
						return a.Tool
					})
			}, want: [2]string{"pay", "publish"}},
		{name: "max_message_bytes", values: [2]string{"70000", "80000"}, see: func(k talk) string {
			var taken []string
			for _, n := range []int{69999, 70000, 70001, 79999, 80000, 80001} {
				_, err := k.db.Enqueue(k.t.Context(), turnkeeper.Submission{Agent: k.agent, Conversation: fmt.Sprint(n),
					Body: "do: say " + strings.Repeat("x", n-8)})
				taken = append(taken, fmt.Sprint(err == nil))
			}
			return strings.Join(taken, " ")
		}, want: [2]string{"true true false false false false", "true true true true true false"}},
		{name: "max_sender_priority", values: [2]string{"10", "20"}, see: func(k talk) string {
			return storagetest.One[string](k.db, "select max_sender_priority::text from turnkeeper.settings")
		}, want: [2]string{"10", "20"}},
		{name: "worker_slots", values: [2]string{"150", "160"}, see: func(k talk) string {
			return storagetest.One[string](k.db, "select string_agg(slots::text, ' ') from turnkeeper.worker_heartbeat")
		}, want: [2]string{"150", "160"}},
		{name: "takeover_after", values: [2]string{"25s", "35s"}, see: func(k talk) string {
			return storagetest.One[string](k.db,
				"select string_agg(takeover_after::text, ' ') from turnkeeper.worker_heartbeat")
		}, want: [2]string{"00:00:25", "00:00:35"}},
	}
}
