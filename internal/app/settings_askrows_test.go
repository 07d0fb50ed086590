package app_test

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// whatIsAsked sends a message, waits for the ask of its turn, and cancels the message. It returns tell of the ask, or
// how the turn ended without one.
func whatIsAsked(k talk, script string, tell func(operate.Ask) string) string {
	id := k.send(script)
	ask, found := k.asks(id)
	if !found {
		return "nothing: " + ending(k.ended(id))
	}
	defer k.drop(id)
	return tell(ask)
}

func askRows() []agentRow {
	const asking = "tools: [act]\napprove: {act: always}"
	const act = `do: act {"text":"x"} | say so`
	return []agentRow{
		{key: "approve", values: [2]string{"{act: always}", "{echo: always}"}, with: "tools: [act, echo]",
			see: func(k talk) string {
				return whatIsAsked(k, `do: echo {"text":"x"} & act {"text":"x"} | say so`, func(a operate.Ask) string {
					return a.Tool
				})
			}, want: [3]string{"act", "echo", "nothing: succeeded, none, 2 rounds"}},
		{key: "while_asking", values: [2]string{"go_on", "hold"}, with: asking, see: func(k talk) string {
			return whatIsAsked(k, act, func(operate.Ask) string {
				second := k.send("do: say so")
				defer k.drop(second)
				return k.waits(second, waiting.ConversationHeld)
			})
		}, want: [3]string{"runs", "conversation_held", "conversation_held"}},
		{key: "ask_timeout", values: [2]string{"1h", "2h"}, with: asking, see: func(k talk) string {
			return whatIsAsked(k, act, func(a operate.Ask) string {
				return a.ExpiresAt.Sub(a.OpenedAt).Round(time.Second).String()
			})
		}, want: [3]string{"1h0m0s", "2h0m0s", "72h0m0s"}},
		{key: "ask_audience", values: [2]string{"[ann]", "[bob]"}, with: asking, see: func(k talk) string {
			return whatIsAsked(k, act, func(a operate.Ask) string { return strings.Join(a.Audience, " ") })
		}, want: [3]string{"ann", "bob", ""}},
		{key: "inbox_labels", values: [2]string{"[private]", "[untrusted]"}, see: func(k talk) string {
			return strings.Join(k.say("do: say so").Reply.Labels, " ")
		}, want: [3]string{"private", "untrusted", ""}},
		{key: "reply_sink", values: [2]string{"withhold", "ask"}, with: "tools: [secret]", see: func(k talk) string {
			return whatIsAsked(k, `do: secret {"text":"x"} | say so`, func(a operate.Ask) string {
				return string(a.Kind)
			})
		}, want: [3]string{"nothing: degraded, withheld, 2 rounds", "reply", "nothing: succeeded, none, 2 rounds"}},
		{key: "durability", values: [2]string{"step", "barrier"}, with: "tools: [echo]", see: func(k talk) string {
			least := 0 // rows of a turn's journal: a slow machine may make more of them
			for range 5 {
				turn := k.say(`do: echo {"text":"x"} | say so`).Turn.ID
				n := storagetest.One[int](k.db, "select count(*) from turnkeeper.journal where turn_id = $1", turn)
				if least == 0 || n < least {
					least = n
				}
			}
			return fmt.Sprint(least, " rows")
		}, want: [3]string{"3 rows", "1 rows", "1 rows"}},
		{key: "on_unknown", values: [2]string{"ask", "degrade"}, with: "tools: [meet_once]", see: func(k talk) string {
			before := k.tools.met(k.agent)
			id := k.send("do: meet_once {} | say so")
			k.until(func() bool { return k.tools.met(k.agent) > before })
			k.db.Exec("update turnkeeper.leases set lease_until = clock_timestamp() where agent = $1", k.agent)
			k.db.Exec(
				"update turnkeeper.turns set lease_until = clock_timestamp() where agent = $1 and state = 'running'",
				k.agent)
			ask, found := k.asks(id)
			if !found {
				return ending(k.ended(id))
			}
			defer k.drop(id)
			return string(ask.Kind)
		}, want: [3]string{string(asks.KindSettle), "degraded, worker_lost, 2 rounds",
			"degraded, worker_lost, 2 rounds"}},
	}
}

// spends sends messages until one waits for the budget of the day, and returns how many calls the day had, if there was
// one.
func spends(k talk) string {
	calls := func() int {
		return storagetest.One[int](k.db,
			"select coalesce(sum(calls), 0)::int from turnkeeper.spend where scope = 'agent:' || $1::text", k.agent)
	}
	for range 4 {
		id := k.send("do: say so # " + strings.Repeat("word ", 200))
		why := ""
		k.until(func() bool {
			m := k.waiting(id)
			for _, wait := range m.Waits {
				if wait.Reason == waiting.BudgetSpent {
					why = string(wait.Reason)
				}
			}
			return why != "" || !m.ClosedAt.IsZero()
		})
		if why != "" {
			k.drop(id)
			return fmt.Sprintf("%s after %d calls", why, calls())
		}
	}
	return "no bound"
}

func budgetRows() []agentRow {
	row := func(key, first, second string, with string, see func(k talk) string, want [3]string) agentRow {
		return agentRow{key: "budget." + key, values: [2]string{first, second}, with: with + "\nbudget: {%s}",
			see: see, want: want}
	}
	rounds := func(k talk) string { return ending(k.say(`do: text {"n":1}`)) }
	const tools, child = "tools: [text]\nmax_output_tokens: 100\nmax_rounds: 4\nmax_tool_calls: 100",
		"sub_agents: [child]\nmax_output_tokens: 100"
	tree := func(k talk) string { return ending(k.say("do: " + spawn("child", "say so") + " | say so")) }
	return []agentRow{
		row("turn_calls", "1", "2", tools, rounds, [3]string{"degraded, budget, 1 rounds", "degraded, budget, 2 rounds",
			"degraded, max_rounds, 4 rounds"}),
		row("turn_tokens", "2000", "1000000", tools, func(k talk) string {
			return string(k.say(`do: text {"n":1}`).Turn.StopReason)
		},
			[3]string{"budget", "max_rounds", "max_rounds"}),
		row("day_calls", "1", "2", "", spends, [3]string{"budget_spent after 1 calls",
			"budget_spent after 2 calls", "no bound"}),
		row("day_tokens", "1500", "1000000", "max_output_tokens: 100", func(k talk) string {
			return strings.Split(spends(k), " ")[0]
		},
			[3]string{"budget_spent", "no", "no"}),
		levelOf("day_calls"), levelOf("day_tokens"),
		row("tree_calls", "2", "3", child, tree, [3]string{"degraded, budget, 1 rounds", "succeeded, none, 2 rounds",
			"succeeded, none, 2 rounds"}),
		row("tree_tokens", "1500", "1000000", child, tree, [3]string{"degraded, budget, 1 rounds",
			"succeeded, none, 2 rounds", "succeeded, none, 2 rounds"}),
		{key: "budget.on_limit", values: [2]string{"ask", "end"}, with: tools + "\nbudget:\n  turn_calls: 1\n  %s",
			see: func(k talk) string {
				return whatIsAsked(k, `do: text {"n":1}`, func(a operate.Ask) string { return string(a.Kind) })
			}, want: [3]string{"budget", "nothing: degraded, budget, 1 rounds", "nothing: degraded, budget, 1 rounds"}},
	}
}

// levelOf observes a budget of the day by the survival level that begins when less than 20 % of it is left.
func levelOf(key string) agentRow {
	const with = "model: played/base\nlevels: {low: {model: played/low}}\nbudget: {%s}"
	column := strings.TrimPrefix(key, "day_")
	return agentRow{key: "budget." + key, as: key + "-level", values: [2]string{"1000000", "2000000"}, with: with,
		see: func(k talk) string {
			k.say("do: say so")
			k.db.Exec(fmt.Sprintf("update turnkeeper.spend set %s = 900000 where scope = 'agent:' || $1::text",
				column), k.agent)
			k.say("do: say so") // its usage makes the level known
			return asked(k.say("do: say so"))
		}, want: [3]string{"low", "base", "base"}}
}

func levelRows(level string) []agentRow {
	pinned := func(see func(k talk) string) func(k talk) string {
		return func(k talk) string {
			if err := k.db.PinLevel(k.t.Context(), operate.Pin{Agent: k.agent, Level: survival.Level(level),
				By: "ada"}); err != nil {
				k.t.Fatal(err)
			}
			return see(k)
		}
	}
	row := func(key, first, second string, with string, see func(k talk) string, want [3]string) agentRow {
		return agentRow{key: "levels." + level + "." + key, values: [2]string{first, second},
			with: with + "\nlane: conversation\nlevels: {" + level + ": {%s}}", see: pinned(see), want: want}
	}
	return []agentRow{
		row("model", "played/one", "played/two", "model: played/base", func(k talk) string {
			return asked(k.say("do: say so"))
		}, [3]string{"one", "two", "base"}),
		row("schedules", "false", "true", "schedule: {cron: \"@every 1s\"}", func(k talk) string {
			began, ran := storagetest.One[time.Time](k.db, "select clock_timestamp()"), false
			k.until(func() bool {
				ran = storagetest.One[bool](k.db,
					"select exists (select from turnkeeper.messages where agent = $1 and slot > $2)", k.agent, began)
				return ran || storagetest.One[bool](k.db,
					"select exists (select from turnkeeper.schedules where agent = $1 and skipped_slot > $2)",
					k.agent, began)
			})
			return fmt.Sprint(ran)
		}, [3]string{"false", "true", "true"}),
		row("min_priority", "10", "5", "", func(k talk) string {
			var whys []string
			var ids []turnkeeper.MessageID
			for _, priority := range []int{4, 5, 9, 10} {
				c := k.in(fmt.Sprintf("%s-%d", k.name, priority))
				id := c.submit(turnkeeper.Submission{Body: "do: say so", Priority: priority})
				ids, whys = append(ids, id), append(whys, k.waits(id, waiting.SurvivalLevel))
			}
			k.drop(ids...)
			return strings.Join(whys, " ")
		}, [3]string{"survival_level survival_level survival_level runs", "survival_level runs runs runs",
			"runs runs runs runs"}),
	}
}
