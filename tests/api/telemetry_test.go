package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/telemetry"
	"turnkeeper/tests/internal/env"
)

// exportTo makes the processes export to the collector, with short intervals.
func exportTo(e *env.Env, r *collector) {
	e.Vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = r.url
	e.Vars["OTEL_BSP_SCHEDULE_DELAY"] = "50"
	e.Vars["OTEL_METRIC_EXPORT_INTERVAL"] = "200"
}

const (
	senderTrace  = "0af7651916cd43dd8448eb211c80319c"
	senderSpan   = "b7ad6b7169203331"
	senderParent = "00-" + senderTrace + "-" + senderSpan + "-01"
)

// A turn whose worker is killed is one trace, that of its sender. Every span has the right parent, including
// the grant of the lost worker, which it could not export.
func TestATurnIsOneTraceThroughALostWorker(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), env.MarkerReply("mark_none", "b"),
		env.HangOnce(inferencetest.Text("It is marked."))))
	first := e.StartWorker("--log-format", "json")
	message := e.Enqueue("clerk", "Make a mark.", "--trace-parent", senderParent)
	e.AwaitRequests(3)
	tool := r.awaitSpan("execute_tool mark_none", any1)
	r.awaitSpan("round", func(s sentSpan) bool { return s.attribute("turnkeeper.round") == "2" })
	second := e.StartWorker("--log-format", "json")
	e.Kill(first)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 3)
	whole := r.awaitSpan("invoke_agent clerk", any1)
	r.awaitSpan("round", func(s sentSpan) bool { return s.attribute("turnkeeper.round") == "3" })
	lost := r.awaitSpan("dispatch", func(s sentSpan) bool { return s.attribute("turnkeeper.dispatch") == "1" })
	took := r.awaitSpan("dispatch", func(s sentSpan) bool { return s.attribute("turnkeeper.dispatch") == "2" })

	spans := map[string]sentSpan{}
	for _, s := range r.all() {
		if id(s.TraceId) != senderTrace {
			t.Errorf("the span %s is of the trace %s", s.Name, id(s.TraceId))
		}
		if before, twice := spans[id(s.SpanId)]; twice {
			t.Errorf("the span %s has the id of %s", s.Name, before.Name)
		}
		spans[id(s.SpanId)] = s
	}
	path := func(s sentSpan) (path string) {
		for {
			path = "/" + s.Name + path
			up, there := spans[id(s.ParentSpanId)]
			if !there {
				return id(s.ParentSpanId) + path
			}
			s = up
		}
	}
	var paths []string
	for _, s := range r.all() {
		paths = append(paths, path(s)+" "+s.attribute("turnkeeper.dispatch")+s.attribute("turnkeeper.round"))
	}
	root := senderSpan + "/invoke_agent clerk"
	want := []string{
		root + " ",
		root + "/dispatch 1", root + "/dispatch 2",
		root + "/dispatch/round 1", root + "/dispatch/round 2", root + "/dispatch/round 3",
		root + "/dispatch/round/chat scripted ", root + "/dispatch/round/chat scripted ", root +
			"/dispatch/round/chat scripted ",
		root + "/dispatch/round/execute_tool mark_once ", root + "/dispatch/round/execute_tool mark_none ",
	}
	slices.Sort(paths)
	slices.Sort(want)
	if !slices.Equal(paths, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
	}
	if lost.attribute("turnkeeper.dispatch.outcome") != "lost" || lost.attribute("error.type") != "worker_lost" ||
		took.attribute("turnkeeper.dispatch.outcome") != "finished" {
		t.Errorf("the dispatches are\n%v\n%v", lost, took)
	}
	if len(took.Links) != 1 || id(took.Links[0].SpanId) != id(lost.SpanId) {
		t.Errorf("the second dispatch has the links %v", took.Links)
	}
	if tool.instance == whole.instance || lost.instance != whole.instance {
		t.Errorf("the span of the tool is from %s, of the lost grant from %s, of the turn from %s", tool.instance,
			lost.instance, whole.instance)
	}
	for _, s := range spans {
		// The turn's times are those of the database, most others those of a worker.
		if s.EndTimeUnixNano < s.StartTimeUnixNano || s.StartTimeUnixNano+1e9 < whole.StartTimeUnixNano ||
			s.EndTimeUnixNano > whole.EndTimeUnixNano+60e9 {
			t.Errorf("the span %s is from %d to %d, the turn from %d to %d", s.Name, s.StartTimeUnixNano,
				s.EndTimeUnixNano, whole.StartTimeUnixNano, whole.EndTimeUnixNano)
		}
	}
	wantConventions(e, r)
	for _, w := range []*env.Process{first, second} {
		wantTurnInLogs(e, w, turn.ID)
	}
}

// wantConventions compares attributes with OpenTelemetry's conventions for models and agents.
func wantConventions(e *env.Env, r *collector) {
	e.T.Helper()
	for name, want := range map[string]map[string]string{
		"invoke_agent clerk": {
			"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk",
			"gen_ai.conversation.id": "clerk/main",
			"turnkeeper.state":       "succeeded", "turnkeeper.stop_reason": "none", "turnkeeper.rounds": "3",
			"turnkeeper.trigger": "message",
		},
		"chat scripted": {
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "test", "gen_ai.request.model": "scripted",
			"gen_ai.response.finish_reasons": "tool_calls", "turnkeeper.purpose": "round",
		},
		"execute_tool mark_once": {
			"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "mark_once", "gen_ai.tool.type": "function",
			"turnkeeper.call": "round-1-tool-1", "turnkeeper.state": "succeeded", "turnkeeper.effect": "once",
		},
	} {
		span := r.awaitSpan(name, any1)
		for attribute, value := range want {
			if got := span.attribute(attribute); got != value {
				e.T.Errorf("%s: %s is %q, not %q", name, attribute, got, value)
			}
		}
	}
	chat := r.awaitSpan("chat scripted", any1)
	if chat.attribute("gen_ai.usage.input_tokens") == "" || chat.attribute("gen_ai.response.model") == "" ||
		chat.Kind.String() != "SPAN_KIND_CLIENT" {
		e.T.Errorf("the model call's span is %v", chat)
	}
}

// wantTurnInLogs checks that each log line about a turn has its id, agent and trace.
func wantTurnInLogs(e *env.Env, p *env.Process, turn int64) {
	e.T.Helper()
	about := 0
	for line := range strings.Lines(p.Output.String()) {
		var fields struct {
			Message string `json:"msg"`
			Turn    int64  `json:"turn_id"`
			Agent   string `json:"agent"`
			Trace   string `json:"trace_id"`
			Round   *int   `json:"round"`
			Calls   *int   `json:"calls"`
		}
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		if strings.Contains(fields.Message, "worker was lost") { // the scheduler does not read the message
			fields.Trace = senderTrace
		}
		if fields.Turn == 0 {
			continue
		}
		about++
		if fields.Turn != turn || fields.Agent != "clerk" || fields.Trace != senderTrace {
			e.T.Errorf("%s wrote %s", p.Name, line)
		}
		if fields.Message == "tool continuation started" &&
			(fields.Round == nil || *fields.Round < 2 || *fields.Round > 3 || fields.Calls == nil ||
				*fields.Calls != 1) {
			e.T.Errorf("%s wrote %s", p.Name, line)
		}
	}
	if about == 0 {
		e.T.Errorf("%s wrote nothing of the turn:\n%s", p.Name, p.Output.Tail())
	}
}

// A turn without a trace of a sender, for example of a schedule, is its own trace, with the id in logs and in
// turnctl.
func TestATurnWithoutASenderIsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(inferencetest.Text("Hello.")))
	w := e.StartWorker()
	first, second := e.TurnOf(e.Enqueue("clerk", "One.")),
		e.TurnOf(env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Two.', trace_parent => 'no trace at all')"))
	traces := map[string]bool{}
	for _, turn := range []env.Turn{first, second} {
		whole := r.awaitSpan("invoke_agent clerk", func(s sentSpan) bool {
			return s.attribute("turnkeeper.turn.id") == fmt.Sprint(turn.ID)
		})
		if len(whole.ParentSpanId) != 0 {
			t.Errorf("it has the parent %s", id(whole.ParentSpanId))
		}
		traces[id(whole.TraceId)] = true
		if page := e.Turnctl("show", fmt.Sprint(turn.ID)); !strings.Contains(page.Stdout, id(whole.TraceId)) {
			t.Errorf("turnctl does not mention the trace %s:\n%s", id(whole.TraceId), page.Stdout)
		}
		w.Await(id(whole.TraceId))
	}
	if len(traces) != 2 {
		t.Errorf("the traces are %v", traces)
	}
}

// The span of a detached call is below its turn, whichever worker runs it, as are both dispatches of the turn.
func TestAWaitingTurnIsOneTrace(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.WriteAgent("clerk", env.DetachedTools)
	e.Ledger.Hold("a")
	e.Model.Then(env.DetachedTurn("mark_far_once", "a"))
	e.StartWorker()
	message := e.Enqueue("clerk", "Work.", "--trace-parent", senderParent)
	e.Await("the turn waits", "select exists (select from turns where state = 'waiting')")
	e.Ledger.Release()
	e.TurnOf(message)
	whole := r.awaitSpan("invoke_agent clerk", any1)
	tool := r.awaitSpan("execute_tool mark_far_once", any1)
	waited := r.awaitSpan("dispatch", func(s sentSpan) bool {
		return s.attribute("turnkeeper.dispatch.outcome") == "waiting"
	})
	went := r.awaitSpan("dispatch", func(s sentSpan) bool {
		return s.attribute("turnkeeper.dispatch.outcome") == "finished"
	})
	for _, s := range []sentSpan{tool, waited, went} {
		if id(s.ParentSpanId) != id(whole.SpanId) || id(s.TraceId) != senderTrace {
			t.Errorf("%s is below %s of %s", s.Name, id(s.ParentSpanId), id(s.TraceId))
		}
	}
	if len(went.Links) != 1 || id(went.Links[0].SpanId) != id(waited.SpanId) ||
		tool.attribute("turnkeeper.detached") != "true" {
		t.Errorf("the second dispatch has the links %v; the tool is %v", went.Links, tool)
	}
}

// The turns of sub-agents are below the calls that spawned them, down the tree, and turnctl show has the same
// trace for all.
func TestSubAgentsAreOneTrace(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.WriteTeam()
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":   env.ReportResult(env.Spawn("scout find it", "nobody do it")),
		"scout":  env.ReportResult(env.Spawn("runner fetch it")),
		"runner": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("fetched")),
	}))
	w := e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	e.AwaitWaiting(2)
	e.Ledger.Release()
	turn := e.TurnOf(message)
	root := r.awaitSpan("invoke_agent boss", any1)
	if len(root.ParentSpanId) != 0 {
		t.Errorf("the boss's turn has the parent %s", id(root.ParentSpanId))
	}
	above := root
	for _, agent := range []string{"scout", "runner"} {
		called := r.awaitSpan("execute_tool spawn_agent", func(s sentSpan) bool {
			return s.attribute("turnkeeper.sub_agent") == agent
		})
		child := r.awaitSpan("invoke_agent "+agent, any1)
		if id(called.ParentSpanId) != id(above.SpanId) || id(child.ParentSpanId) != id(called.SpanId) {
			t.Errorf("%s has the parent %s, and its call %s below %s", agent, id(child.ParentSpanId), id(called.SpanId),
				id(called.ParentSpanId))
		}
		if id(child.TraceId) != id(root.TraceId) || id(called.TraceId) != id(root.TraceId) {
			t.Errorf("%s is in the trace %s", agent, id(child.TraceId))
		}
		number := env.Query[int64](e, "select id from turns where agent = $1", agent)
		if called.attribute("turnkeeper.sub_agent.turn.id") != fmt.Sprint(number) ||
			called.attribute("turnkeeper.state") != "succeeded" ||
			called.attribute("gen_ai.tool.name") != "spawn_agent" ||
			called.attribute("gen_ai.operation.name") != "execute_tool" ||
			called.attribute("turnkeeper.call") != "round-1-tool-1" {
			t.Errorf("the call is %v", called)
		}
		if called.StartTimeUnixNano > child.StartTimeUnixNano+1e9 || called.EndTimeUnixNano+
			1e9 < child.EndTimeUnixNano {
			t.Errorf("the call is from %d to %d, the turn of %s from %d to %d", called.StartTimeUnixNano,
				called.EndTimeUnixNano, agent, child.StartTimeUnixNano, child.EndTimeUnixNano)
		}
		if page := e.Turnctl("show", fmt.Sprint(number)); !strings.Contains(page.Stdout, id(root.TraceId)) {
			t.Errorf("turnctl does not show that %s is in the trace %s:\n%s", agent, id(root.TraceId), page.Stdout)
		}
		above = child
	}
	if n := env.Sum(env.Scrape(t, w.APIURL()), "turnkeeper_tool_duration_seconds", "tool", "spawn_agent", "state",
		"succeeded"); n != 2 {
		t.Errorf("%g replies of sub-agents are counted", n)
	}
	w.Terminate()
	seen := map[string]bool{}
	for _, s := range r.all() {
		if seen[id(s.SpanId)] {
			t.Errorf("%s has the id of another span", s.Name)
		}
		seen[id(s.SpanId)] = true
	}
	_ = turn
}

// If a turn is not sampled, its sub-agents are not sampled.
func TestSubAgentsAreSampledAsTheirParent(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.Vars["OTEL_TRACES_SAMPLER"] = "parentbased_always_off"
	e.WriteTeam()
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{"boss": env.ReportResult(
		env.Spawn("scout find it")), "scout": env.Rounds(inferencetest.Text("found"))}))
	w := e.StartWorker()
	e.TurnOf(e.Enqueue("boss", "Get it done."))
	e.TurnOf(e.Enqueue("boss", "Get it done.", "--trace-parent", senderParent)) // the sender's trace is sampled
	r.awaitSpan("invoke_agent scout", any1)
	w.Terminate()
	for _, s := range r.all() {
		if id(s.TraceId) != senderTrace {
			t.Errorf("the span %s of another trace is sent", s.Name)
		}
	}
}

// summed returns the sum of a histogram's observations.
func summed(families map[string]*dto.MetricFamily, name string, labels ...string) (total float64) {
	for _, m := range families[name].GetMetric() {
		if env.HasLabels(m, labels) {
			total += m.GetHistogram().GetSampleSum()
		}
	}
	return total
}

// Prometheus' metrics agree with the journal and with the documentation.
func TestMetricsAreWhatTheJournalHas(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	r := newCollector(t)
	exportTo(e, r)
	e.WriteAgent("clerk", env.MarkerTools)
	e.WriteAgent("capped", env.MarkerTools, "max_rounds: 2")
	e.WriteAgent("broken")
	w := e.StartWorker("--metrics-listen", "127.0.0.1:0")
	e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall("mark_none", "a"), env.MarkerCall("mark_once", "b")),
		env.MarkerReply("mark_keyed", "c"), inferencetest.Text("Done.")))
	e.TurnOf(e.Enqueue("clerk", "Three rounds."))
	e.Model.Then(env.Rounds(inferencetest.Text("Hello.")))
	e.TurnOf(e.Enqueue("clerk", "One round."))
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return env.MarkerReply("mark_none", "again") })
	e.TurnOf(e.Enqueue("capped", "Never done."))
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "no")
	})
	failing := e.Enqueue("broken", "It fails.")
	e.Await("the turn failed", "select exists (select from turns where message_id = $1 and state = 'failed')", failing)
	e.PauseScheduler("two messages wait")
	e.Enqueue("clerk", "It waits.")
	e.Await("no turn runs", "select not exists (select from turns where ended_at is null)")

	var got map[string]*dto.MetricFamily
	e.Poll("the message, and an earlier request for metrics, are in the metrics", func() bool {
		got = env.Scrape(t, w.APIURL())
		return env.Sum(got, "turnkeeper_queue_messages") == 2 && // including the failing one
			env.Sum(got, "http_server_request_duration_seconds", "http_route", "/metrics",
				"http_response_status_code", "200") > 0
	})
	wantMetricsOfJournal(e, got)
	for name, want := range map[string]float64{
		"turnkeeper_scheduler_tick_age_seconds": 1, "turnkeeper_event_watchers": 1, "turnkeeper_leases_held": 1,
		"turnkeeper_turns_open": 3, "turnkeeper_queue_age_seconds": 1, "go_goroutines": 1, "target_info": 1,
	} {
		if n := float64(len(got[name].GetMetric())); n != want {
			t.Errorf("%s has %v series", name, n)
		}
	}
	documented(t, got)
	at := regexp.MustCompile(`"url": "(http://[^"]+)/metrics"`).FindStringSubmatch(w.Output.String())
	if at == nil {
		t.Fatalf("the worker did not say where its metrics are:\n%s", w.Output.Tail())
	}
	if own := env.Scrape(t, at[1]); env.Sum(own, "turnkeeper_turns_total") != env.Sum(got, "turnkeeper_turns_total") {
		t.Errorf("at their own address the metrics are others")
	}
	for _, m := range telemetry.Metrics() {
		if _, there := got[m.Prometheus()]; there {
			await(r, "metric "+m.Name, func() (bool, bool) { return true, r.metrics[m.Name] })
		}
	}
}

// wantMetricsOfJournal compares the metrics with the database.
func wantMetricsOfJournal(e *env.Env, got map[string]*dto.MetricFamily) {
	e.T.Helper()
	rows, err := e.DB.Query(e.T.Context(), `
		select 'turnkeeper_turns_total', array['agent', agent, 'state', state::text, 'stop_reason', stop_reason::text], count(*)::float8 from turns where ended_at is not null group by agent, state, stop_reason
		union all select 'turnkeeper_turn_duration_seconds', array['agent', agent, 'state', state::text], count(*) from turns where ended_at is not null group by agent, state
		union all select 'turnkeeper_dispatches_total', array['outcome', outcome], count(*) from lease_log where ended_at is not null group by outcome
		union all select 'turnkeeper_dispatch_latency_seconds', array[]::text[], count(*) from lease_log
		union all select 'turnkeeper_tool_duration_seconds', array['tool', name, 'state', state::text], count(*) from calls where duration_ms is not null group by name, state
		union all select 'turnkeeper_tokens_total', array['agent', t.agent, 'model', 'scripted', 'type', 'input'], sum(r.input_tokens) from rounds r join turns t on t.id = r.turn_id group by t.agent
		union all select 'turnkeeper_tokens_total', array['agent', t.agent, 'type', 'output'], sum(r.output_tokens) from rounds r join turns t on t.id = r.turn_id group by t.agent
		union all select 'gen_ai_client_token_usage', array['gen_ai_token_type', 'input', 'gen_ai_request_model', 'scripted', 'gen_ai_provider_name', 'test'], count(*) from rounds
		union all select 'gen_ai_client_operation_duration_seconds', array['gen_ai_operation_name', 'chat'], sum(attempts) + (select count(*) from turns where state = 'failed') from rounds
		union all select 'gen_ai_client_operation_duration_seconds', array['error_type', 'auth'], count(*) from turns where state = 'failed'
		union all select 'tool_continuation_count', array['agent', t.agent], count(*) from turns t where (select count(*) from rounds r where r.turn_id = t.id) > 1 group by t.agent
		union all select 'tool_continuation_duration', array['agent', 'clerk'], 1
		union all select 'tool_continuation_iterations', array['agent', 'clerk'], 1`)
	if err != nil {
		e.T.Fatal(err)
	}
	type expectation struct {
		Metric string
		Labels []string
		Value  float64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[expectation])
	if err != nil {
		e.T.Fatal(err)
	}
	if len(all) < 18 {
		e.T.Errorf("little is recorded: %v", all)
	}
	for _, want := range all {
		if value := env.Sum(got, want.Metric, want.Labels...); value != want.Value {
			e.T.Errorf("%s%q is %v, and recorded are %v", want.Metric, want.Labels, value, want.Value)
		}
	}
	if n := summed(got, "tool_continuation_iterations", "agent", "clerk"); n != 2 {
		e.T.Errorf("the clerk went on %v times", n)
	}
	if ran := summed(got, "tool_continuation_duration", "agent", "clerk"); ran <= 0 || ran > env.Patience.Seconds() {
		e.T.Errorf("the clerk went on for %v s", ran)
	}
}

// documented fails the test if a metric or label is missing in the catalogue. It skips the labels of the Go
// collectors.
func documented(t *testing.T, got map[string]*dto.MetricFamily) {
	t.Helper()
	known := map[string]telemetry.Metric{}
	for _, m := range telemetry.Metrics() {
		known[m.Prometheus()] = m
	}
	seen := 0
	for name, family := range got {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name,
			"promhttp_") || name == "target_info" {
			continue
		}
		m, ok := known[name]
		if !ok {
			t.Errorf("%s is not in the catalogue", name)
			continue
		}
		seen++
		if kind := strings.ToLower(family.GetType().String()); kind != string(m.Kind) {
			t.Errorf("%s is a %s, and the catalogue says %s", name, kind, m.Kind)
		}
		for _, series := range family.Metric {
			for _, label := range series.Label {
				if !slices.Contains(m.PrometheusLabels(), label.GetName()) {
					t.Errorf("%s has the label %s", name, label.GetName())
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d metrics are there", seen)
	}
}

// A collector that never answers, and one that does not exist, delay neither turns nor the shutdown.
func TestAReceiverThatHangsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(testing.TB) string{
		"it hangs":        func(t testing.TB) string { return newCollector(t).hangs().url },
		"it is not there": func(testing.TB) string { return "http://127.0.0.1:1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.Vars["OTEL_EXPORTER_OTLP_ENDPOINT"] = to(t)
			e.Vars["OTEL_BSP_SCHEDULE_DELAY"] = "10"
			e.Vars["OTEL_BSP_MAX_QUEUE_SIZE"] = "8" // full at once
			e.Vars["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "4"
			e.Vars["OTEL_EXPORTER_OTLP_TIMEOUT"] = "300"
			e.Vars["OTEL_METRIC_EXPORT_INTERVAL"] = "100"
			e.WriteAgent("clerk", "lane: conversation", env.MarkerTools)
			e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), inferencetest.Text("Done.")))
			w := e.StartWorker()
			var messages []int64
			for n := range 20 {
				messages = append(messages, env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Work.', $1)",
					fmt.Sprint("c", n)))
			}
			e.AwaitClosed(messages...)
			if n := env.Query[int](e,
				"select count(*) from turns where state = 'succeeded' and dispatches = 1"); n != len(messages) {
				t.Errorf("%d of %d turns succeeded", n, len(messages))
			}
			w.Await("telemetry could not be sent; turns continue")
			if code := w.Terminate(); code != 0 {
				t.Errorf("the worker ended with %d:\n%s", code, w.Output.Tail())
			}
		})
	}
}

// By default no span, metric or log line has content of turns. With content enabled, none has secrets.
func TestWhatIsSaidIsNotToldOf(t *testing.T) {
	t.Parallel()
	const asks, argues, answers, replies, complains = "canary-message-1f", "canary-argument-2e", "canary-result-3d",
		"canary-reply-4c", "canary-error-5b"
	for name, content := range map[string]bool{"by default": false, "when it is asked for": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			r := newCollector(t)
			exportTo(e, r)
			e.Vars["OTEL_EXPORTER_OTLP_HEADERS"] = "api-key=" + headerCanary
			e.Vars["TURNKEEPER_TELEMETRY_CONTENT"] = fmt.Sprint(content)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Ledger.SetAnswer(argues, answers+" "+env.ModelAPIKey)
			e.Model.Add(inferencetest.Fault(http.StatusInternalServerError, "server_error", complains+" about "+asks))
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall("mark_none", argues)),
				inferencetest.Text(replies)))
			w := e.StartWorker()
			turn := e.TurnOf(env.EnqueueByProgram(e, "clerk", asks+" "+env.ModelAPIKey)) // it masks the key
			e.WantReply(turn, replies)
			metrics := fmt.Sprint(env.Scrape(t, w.APIURL()))
			r.awaitSpan("invoke_agent clerk", any1)
			w.Terminate()
			sent := r.everything()
			for _, canary := range []string{env.ModelAPIKey, headerCanary} {
				if strings.Contains(sent+metrics+w.Output.String(), canary) {
					t.Errorf("the secret %q is in telemetry", canary)
				}
			}
			for _, canary := range []string{asks, argues, answers, replies, complains} {
				if strings.Contains(metrics, canary) {
					t.Errorf("%q is in a metric", canary)
				}
				if found := strings.Contains(sent, canary); found != (content && canary != complains) {
					t.Errorf("%q is in telemetry: %v", canary, found)
				}
				// the provider's error is logged for operators
				if strings.Contains(w.Output.String(), canary) && canary != complains && canary != asks {
					t.Errorf("%q is in the log", canary)
				}
			}
		})
	}
}

// A worker with an invalid telemetry setting exits with a plain error before it takes work.
func TestBadTelemetrySettings(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	for _, c := range []struct{ name, value, says string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318",
			"otlp_endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT): it must be a URL such as http://localhost:4318"},
		{"TURNKEEPER_OTLP_ENDPOINT", "http://me:" + headerCanary + "@collector",
			"it must hold no user or password: send these by OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: it must be a URL"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": it must be http/protobuf`},
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER is "zipkin": it must be otlp or none`},
		{"OTEL_TRACES_SAMPLER_ARG", "2", `OTEL_TRACES_SAMPLER_ARG is "2": it must be a number from 0 to 1`},
		{"OTEL_EXPORTER_OTLP_HEADERS", headerCanary, "OTEL_EXPORTER_OTLP_HEADERS must be name=value"},
		{"OTEL_SDK_DISABLED", "perhaps", `OTEL_SDK_DISABLED is "perhaps": it must be true or false`},
		{"TURNKEEPER_METRICS_LISTEN", "9464",
			"metrics_listen (TURNKEEPER_METRICS_LISTEN) is 9464: it must be HOST:PORT"},
		{"TURNKEEPER_METRICS_LISTEN", "192.0.2.1:9464", "cannot listen on 192.0.2.1:9464 (setting metrics_listen)"},
		{"TURNKEEPER_TELEMETRY_CONTENT", "some", "telemetry_content (TURNKEEPER_TELEMETRY_CONTENT) is some"},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			environ := append(e.Environ(), c.name+"="+c.value)
			if !strings.HasSuffix(c.name, "ENDPOINT") {
				environ = append(environ, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")
			}
			p := env.StartProcess(t, c.name, e.Dir, environ, env.Binary(t, "markerworker"))
			if code := p.Wait(); code == 0 || !strings.Contains(p.Output.String(), c.says) {
				t.Errorf("it ended with %d and said:\n%s", code, p.Output.String())
			}
			if strings.Contains(p.Output.String(), headerCanary) {
				t.Errorf("it repeats a secret:\n%s", p.Output.String())
			}
		})
	}
}
