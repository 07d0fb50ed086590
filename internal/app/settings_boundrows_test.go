package app_test

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// laneRows have agents whose calls of meet last until the message is dropped.
func laneRows() []agentRow {
	// startMany sends messages in conversations of their own, and returns what each waits for once it runs or waits for
	// its agent.
	startMany := func(k talk, n int) string {
		var whys []string
		var ids []turnkeeper.MessageID
		for i := range n {
			id := k.in(fmt.Sprintf("%s-%d", k.name, i)).send("do: meet {}")
			ids, whys = append(ids, id), append(whys, k.waits(id, waiting.EarlierMessage, waiting.EarlierTurn,
				waiting.LaneHeld, waiting.AgentFull))
		}
		k.drop(ids...)
		return strings.Join(whys, " ")
	}
	return []agentRow{
		{key: "lane", values: [2]string{"conversation", "agent"}, with: "tools: [meet]", see: func(k talk) string {
			return startMany(k, 2)
		},
			want: [3]string{"runs runs", "runs lane_held", "runs lane_held"}},
		{key: "max_running", values: [2]string{"1", "2"}, with: "tools: [meet]\nlane: conversation",
			see:  func(k talk) string { return startMany(k, 3) },
			want: [3]string{"runs agent_full agent_full", "runs runs agent_full", "runs runs runs"}},
		{key: "notes", values: [2]string{"agent", "user"}, with: "tools: [note_write, note_read]",
			see: func(k talk) string {
				k.user = "ann"
				k.say(fmt.Sprintf(`do: note_write {"name":"n","text":%q} | say so`, k.name))
				k.user = "bob"
				return fmt.Sprint(strings.Contains(shown(k.say(`do: note_read {"name":"n"} | say so`))[0], k.name))
			}, want: [3]string{"true", "false", "false"}},
	}
}

func subAgentRows() []agentRow {
	three := "do: " + spawn("child", "say one") + " & " + spawn("child", "say two") + " & " +
		spawn("child", "say three") + " | say so"
	spawned := func(k talk) string { return states(k.say(three)) }
	deep := "do: " + spawn("child", spawn("grandchild", spawn("last", "say so")+"; say so")+"; say so") + " | say so"
	return []agentRow{
		{key: "sub_agents", values: [2]string{"[child]", "[last]"}, see: func(k talk) string {
			return states(k.say("do: " + spawn("child", "say so") + " & " + spawn("last", "say so") + " | say so"))
		}, want: [3]string{"succeeded denied", "denied succeeded", "denied denied"}},
		{key: "max_sub_agents", values: [2]string{"1", "2"}, with: "sub_agents: [child]", see: spawned,
			want: [3]string{"succeeded denied denied", "succeeded succeeded denied", "succeeded succeeded succeeded"}},
		{key: "max_tree_sub_agents", values: [2]string{"1", "2"}, with: "sub_agents: [child]", see: spawned,
			want: [3]string{"succeeded failed failed", "succeeded succeeded failed", "succeeded succeeded succeeded"}},
		{key: "max_sub_agent_depth", values: [2]string{"1", "2"}, with: "sub_agents: [child]",
			see: func(k talk) string {
				return fmt.Sprint(storagetest.One[int](k.db,
					"select count(*)::int from turnkeeper.spawned_calls where root = $1 and child is not null",
					int64(k.say(deep).Turn.ID)))
			}, want: [3]string{"1", "2", "3"}},
		{key: "sub_agent_timeout", values: [2]string{"1h", "2h"}, with: "sub_agents: [child]",
			see: func(k talk) string {
				v := k.say("do: " + spawn("child", "say so") + " | say so")
				return storagetest.One[string](k.db,
					"select date_trunc('second', deadline - spawned_at + interval '0.5 s')::text from turnkeeper.spawned_calls where turn_id = $1",
					int64(v.Turn.ID))
			}, want: [3]string{"01:00:00", "02:00:00", "03:00:00"}},
	}
}

// givenTime returns how long a call of deadline has from a moment, to ten seconds.
func givenTime(v operate.TurnView, from func(turnkeeper.ToolCall) time.Time) string {
	texts := shown(v)
	if len(texts) == 0 {
		return ending(v)
	}
	end, err := time.Parse(time.RFC3339Nano, texts[0])
	if err != nil {
		return err.Error()
	}
	return end.Sub(from(v.Rounds[0].Calls[0])).Round(10 * time.Second).String()
}

func boundRows() []agentRow {
	many := func(call string, n int) string {
		return "do: " + strings.TrimSuffix(strings.Repeat(call+" & ", n), " & ") + " | say so"
	}
	return []agentRow{
		{key: "max_rounds", values: [2]string{"2", "3"}, with: "tools: [text]\nmax_tool_calls: 100",
			see: func(k talk) string { return ending(k.say(`do: text {"n":1}`)) },
			want: [3]string{"degraded, max_rounds, 2 rounds", "degraded, max_rounds, 3 rounds",
				"degraded, max_rounds, 4 rounds"}},
		{key: "max_duration", values: [2]string{"30s", "50s"}, with: "tools: [deadline]\ntool_timeout: 200s",
			see: func(k talk) string {
				v := k.say("do: deadline {} | say so")
				return givenTime(v, func(turnkeeper.ToolCall) time.Time { return v.Turn.CreatedAt })
			}, want: [3]string{"30s", "50s", "1m0s"}},
		{key: "tool_timeout", values: [2]string{"20s", "30s"}, with: "tools: [deadline]\nmax_duration: 100s",
			see: func(k talk) string {
				return givenTime(k.say("do: deadline {} | say so"), func(c turnkeeper.ToolCall) time.Time {
					return c.EndedAt
				})
			}, want: [3]string{"20s", "30s", "40s"}},
		{key: "max_tool_calls", values: [2]string{"1", "2"}, with: "tools: [text]", see: func(k talk) string {
			return states(k.say(many(`text {"n":1}`, 4)))
		},
			want: [3]string{"succeeded denied denied denied", "succeeded succeeded denied denied",
				"succeeded succeeded succeeded denied"}},
		{key: "continuation", values: [2]string{"false", "true"}, with: "tools: [text]", see: func(k talk) string {
			return ending(k.say(many(`text {"n":1}`, 1)))
		},
			want: [3]string{"succeeded, none, 1 rounds", "succeeded, none, 2 rounds", "succeeded, none, 2 rounds"}},
		{key: "give_up_after", values: [2]string{"0s", "1h"}, with: "model: played/%a", see: func(k talk) string {
			id := k.send("do: fail 401")
			why := ""
			k.until(func() bool {
				m := k.waiting(id)
				why = string(m.State)
				return !m.ClosedAt.IsZero() || m.State == turnkeeper.MessageWaiting && m.Attempts > 0
			})
			k.drop(id)
			return why + " " + storagetest.One[string](k.db,
				"select give_up_after::text from turnkeeper.agents where name = $1", k.agent)
		}, want: [3]string{"failed 00:00:00", "waiting 01:00:00", "waiting 02:00:00"}},
		{key: "freshness_window", values: [2]string{"500s", "700s"},
			with: "tools: [act]\nschedule:\n  cron: \"@every 1s\"\n  message: 'do: act {\"text\":\"same\"} | say so'\n%s",
			see: func(k talk) string {
				return strings.Join(regexp.MustCompile(`within \d+ second`).FindAllString(shown(k.scheduled(2))[0], 1),
					"")
			}, want: [3]string{"within 500 second", "within 700 second", "within 900 second"}},
	}
}

// cuts says of each result how many characters of it are shown, and whether it was cut, or that a handle is.
func cuts(v operate.TurnView) string {
	var all []string
	for _, call := range v.Rounds[0].Calls {
		switch line, marker, _ := strings.Cut(call.Shown, "\n\n"); {
		case strings.HasPrefix(line, "Tool Output ID"):
			all = append(all, "handle")
		case marker != "":
			all = append(all, fmt.Sprintf("%d, cut", len(line)))
		default:
			all = append(all, fmt.Sprint(len(line)))
		}
	}
	return strings.Join(all, "; ")
}

func resultRows() []agentRow {
	texts := func(sizes ...int) func(k talk) string {
		var calls []string
		for _, n := range sizes {
			calls = append(calls, fmt.Sprintf(`text {"n":%d}`, n))
		}
		return func(k talk) string { return cuts(k.say("do: " + strings.Join(calls, " & ") + " | say so")) }
	}
	const tools = "tools: [text, echo, slow]\nmax_tool_calls: 20"
	return []agentRow{
		{key: "max_tool_result_chars", values: [2]string{"100", "200"}, with: tools, see: texts(99, 100, 101, 199, 200,
			201, 299, 300, 301), want: [3]string{
			"99; 100; 100, cut; 100, cut; 100, cut; 100, cut; 100, cut; 100, cut; 100, cut",
			"99; 100; 101; 199; 200; 200, cut; 200, cut; 200, cut; 200, cut",
			"99; 100; 101; 199; 200; 201; 299; 300; 300, cut"}},
		{key: "async_token_threshold", values: [2]string{"50", "100"}, with: tools + "\nmax_tool_result_chars: 1000",
			see: texts(159, 160, 161, 319, 320, 321, 479, 480, 481), want: [3]string{
				"159; 160; handle; handle; handle; handle; handle; handle; handle",
				"159; 160; 161; 319; 320; handle; handle; handle; handle",
				"159; 160; 161; 319; 320; 321; 479; 480; handle"}},
		{key: "paging", values: [2]string{"false", "true"}, with: tools, see: func(k talk) string {
			return strings.Join(shown(k.say(`do: text {"n":301} | get_continuation {"tool_call_id":"1"} | say so`))[1:],
				"")
		}, want: [3]string{"tool not found: get_continuation", "x", "x"}},
		{key: "async", values: [2]string{"false", "true"}, with: tools, see: texts(1000), want: [3]string{"300, cut",
			"handle", "handle"}},
		{key: "async_timeout", values: [2]string{"50ms", "10s"}, with: tools, see: func(k talk) string {
			v := k.say(`do: slow {"n":300} | wait_for_tool_output {} | say so OUTPUT`)
			return fmt.Sprint(body(v) != "so ") // the model was given a handle
		}, want: [3]string{"true", "false", "false"}},
		{key: "output_handles", values: [2]string{"true", "false"}, with: tools + "\nasync_token_threshold: 0",
			see: func(k talk) string {
				v := k.say(`do: echo {"text":"abc"} | echo {"text":"output:OUTPUT"} | say so`)
				return fmt.Sprint(strings.Contains(v.Rounds[1].Calls[0].AsRun(), "abc"))
			}, want: [3]string{"true", "false", "false"}},
	}
}
