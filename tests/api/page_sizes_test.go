package api_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// wider names the elements that are wider than the window, reach beyond it or the content's edge, or have text that
// their box cuts off.
const wider = `(edge => [...document.querySelectorAll("body *")].filter(e => {
	const box = e.getBoundingClientRect();
	return e.checkVisibility() && !e.closest(".unseen, .skip, thead, pre, select, svg") && (box.width > innerWidth || box.right > innerWidth + 1 || box.left < -1 || e.matches("main *") && box.right > edge + 1 ||
		e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden");
}).slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)).join(", "))(document.querySelector("main").getBoundingClientRect().right - parseFloat(getComputedStyle(document.querySelector("main")).paddingRight))`

// Maximum heights of the overview on a phone, in pixels: with ordinary names, and with the longest ones and everything
// that can fail.
const (
	phoneOverview = 2500
	longOverview  = 3000
)

// The longest names of agents, users, conversations, tools, schedules and models fit on every page, on a wide screen
// and on a phone, where the overview stays short. What is down is marked, and the page says when it was updated.
func TestLongNamesInABrowser(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	long := func(letter string, n int) string { return strings.Repeat(letter, n) }
	agent, tool := long("a", 63), long("t", 64)
	e.WriteAgent(agent, env.MarkerTools, "description: "+long("d", 200), "sub_agents: ["+long("n", 63)+"]",
		"budget: {day_calls: 1000}",
		"schedule:", "  name: "+long("s", 60), `  cron: "0 7 * * *"`, "  time_zone: UTC", "  message: "+long("m", 200))
	e.WriteAgent(long("n", 63))
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{Name: tool, Arguments: `{"a":"` + long("x",
		300) + `"}`}), inferencetest.Text(long("r", 400))))
	e.AddWebhook(long("w", 60), "http://127.0.0.1:9/hook")
	w := e.StartWorker()
	e.TurnOf(e.Enqueue(agent, long("b", 200), "--user", long("u", 200), "--conversation", long("c", 200)))
	for i := range 13 {
		e.AwaitClosed(e.Enqueue(agent, "Hello", "--user", long("u", 200), "--conversation",
			fmt.Sprint(long("c", 190), i)))
	}
	e.Await("the webhook fails", "select exists (select from webhooks where failed_at is not null)")
	model := "scripted/" + long("z", 200)
	e.Exec("update agents set models = array_append(models, $1)", model)
	e.Exec(
		"insert into model_health (model, down_since, until, failures, error_class, error) values ($1, now(), now() + interval '1 hour', 3, 'auth', $2)", model, long("e", 400))
	e.Exec("insert into pinned_levels (agent, level, pinned_by, reason) values ($1, 'low', $2, $3)", agent,
		long("p", 200), long("q", 300))
	e.Exec(
		`insert into asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, schema, audience, hold, expires_at)
		values (1, 1, 1, 'approve', 1, $1, $2, repeat('a', 64), $3, $3, '{}', array[$3], false, now() + interval '1 day')`, tool, `{"a":"`+long("x", 300)+`"}`, long("y", 300))
	b := openBrowser(t, w.APIURL())
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {390, false}, {390, true}, {1280, true}} {
		b.window(screen.width, 800, screen.dark)
		for _, path := range []string{
			"/", "/turns", "/turns/1", "/inbox", "/inbox/1", "/replies", "/asks", "/asks/1", "/agents", "/agents/" +
				agent, "/lanes", "/schedules",
			"/webhooks", "/webhooks/" + long("w", 60), "/doctor", "/conversation?agent=" + agent + "&user=" +
				long("u", 200) + "&conversation=" + long("c", 200),
		} {
			b.open(path)
			b.run(`document.querySelectorAll("details").forEach(e => { e.open = true; })`)
			if found := eval[string](b, wider); found != "" {
				t.Errorf("%.40s at %d pixels: %s", path, screen.width, found)
			}
			if faults := eval[string](b, accessible); faults != "" {
				t.Errorf("%.40s: %s", path, faults)
			}
		}
	}
	b.window(390, 800, false)
	b.open("/")
	if height := eval[int](b, "document.documentElement.scrollHeight"); height >= longOverview {
		t.Errorf("the overview is %d pixels high on a phone", height)
	}
	if grey := eval[string](b,
		`[...document.querySelectorAll(".state.idle")].map(e => e.textContent).filter(s => /down|silent|dead|failing|no worker/.test(s)).join(", ")`); grey != "" {
		t.Errorf("what is down is grey: %s", grey)
	}
	if !eval[bool](b, `document.querySelector("#models .state.bad")?.textContent.includes("down")`) {
		t.Error("the model that is down is not marked")
	}
	e.Exec("delete from asks") // of a turn that has ended
}

// On a phone the overview stays short, with open and ended turns.
func TestTheOverviewIsShortOnAPhone(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if strings.Contains(env.NewestMessage(r), "long") {
			return inferencetest.HangAfter(inferencetest.OpenSSE(pieces("I begin.")...))
		}
		return inferencetest.Text("Done.")
	})
	w := e.StartWorker()
	for range 13 {
		e.AwaitClosed(e.Enqueue("clerk", "Hello"))
	}
	for i := range 3 {
		awaitTurnOf(e, e.Enqueue("clerk", "Work for long.", "--conversation", fmt.Sprint("shop-", i)))
	}
	b := openBrowser(t, w.APIURL())
	b.window(390, 800, false)
	b.open("/")
	if n := eval[int](b, `document.querySelectorAll("#open tbody tr").length`); n != 3 {
		t.Errorf("%d open turns are shown", n)
	}
	if height := eval[int](b, "document.documentElement.scrollHeight"); height >= phoneOverview {
		t.Errorf("the overview is %d pixels high on a phone", height)
	}
}

// The page says that it was updated just now only while that is true.
func TestThePageSaysWhenItWasUpdated(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	w := e.StartWorker()
	b := openBrowser(t, w.APIURL())
	const footer = `document.querySelector("footer p").innerText.trim()`
	b.open("/turns")
	b.await("the page is fresh", footer+` === "Updated just now"`)
	b.expect("Failed to load resource")
	if code := w.Terminate(); code != 0 {
		t.Fatal(code)
	}
	b.await("the page is stale", footer+`.match(/^Updated \d+ s ago\. The server does not answer, retrying$/)`)
}
