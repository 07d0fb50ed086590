package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// hostile is text of a model, tool or sender that attacks the reader of a page.
const hostile = `<img src=x onerror="window.harmed=1"><script>window.harmed=2</script></pre></main>{{.}}` +
	"\u202egnp.exe\u2066 \x1b[31mred\x07 &amp; <svg onload=window.harmed=3>"

// pagesOf lists the pages of an Env with at least one turn.
var pagesOf = []string{"/", "/turns", "/turns/1", "/turns/1/requests/1", "/turns/1/requests/2",
	"/turns/1/requests/2?part=tools", "/inbox", "/inbox/1", "/replies", "/asks", "/asks/1", "/asks/2", "/agents",
	"/lanes", "/schedules", "/sign-in", "/turns?agent=clerk&state=failed"}

// Every page with hostile text, on a wide and a narrow screen, in light and dark mode: the browser reports no
// error, no foreign script runs, and nothing overflows.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	testrun.OnlyFull(t) // a browser takes seconds of CPU
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "description: >-", "  "+`<b onmouseover="window.harmed=4">Clerk</b>`,
		"schedule:", `  cron: "0 7 * * *"`, "  time_zone: UTC", `  message: "<i>look</i>"`)
	e.Ledger.SetAnswer("x", hostile)
	e.Model.Then(env.Rounds(
		inferencetest.Message(hostile, env.MarkerCall("mark_none", "x"), inferencetest.Call{Name: "mark_once",
			Arguments: fmt.Sprintf(`{"label":%s}`, env.Quote(hostile))},
			inferencetest.Call{Name: "no_such_tool", Arguments: `{"a":"<script>window.harmed=5</script>"}`}),
		inferencetest.Text("Answer: "+hostile),
	))
	w := e.StartWorker()
	e.TurnOf(e.Enqueue("clerk", "Message: "+strings.ReplaceAll(hostile, "\x00", ""), "--conversation", `<b>"talk"</b>`))
	e.Exec(
		`insert into asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, schema, audience, hold, expires_at)
		select 1, 1, 2, kind, 1, 'mark_once', $1, repeat('a', 64), $2, $2, schema, array[$2], false, now() + interval '1 day'
		from (values ('approve', '{}'), ('question', '{"enum":["<b>blue</b>","red"]}')) k (kind, schema)`,
		fmt.Sprintf(`{"label":%s}`, env.Quote(strings.ReplaceAll(hostile, "\x00", ""))),
		strings.ReplaceAll(hostile, "\x00", ""))
	b := openBrowser(t, w.APIURL())
	var ground [2]string
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {360, false}, {360, true}, {1280, true}} {
		b.window(screen.width, 800, screen.dark)
		for _, path := range pagesOf {
			b.open(path)
			if over := eval[int](b, "document.documentElement.scrollWidth - window.innerWidth"); over > 0 {
				t.Errorf("%s is %d pixels wider than a screen of %d: %s", path, over, screen.width,
					eval[string](b, widest))
			}
			if faults := eval[string](b, accessible); faults != "" {
				t.Errorf("%s: %s", path, faults)
			}
			if harm := eval[string](b, harmed); harm != "" {
				t.Errorf("%s: %s", path, harm)
			}
		}
		i := 0
		if screen.dark {
			i = 1
		}
		ground[i] = eval[string](b, "getComputedStyle(document.body).backgroundColor")
	}
	e.Exec("delete from asks") // of a turn that has ended
	if ground[0] == ground[1] {
		t.Errorf("light and dark are both on %s", ground[0])
	}
	b.open("/turns/1")
	shown := eval[string](b, "document.body.textContent")
	for _, text := range []string{`Answer: <img src=x onerror="window.harmed=1">`,
		`\u202egnp.exe\u2066 \x1b[31mred\x07 &amp;`, "no_such_tool", "tool not found: no_such_tool"} {
		if !strings.Contains(shown, text) {
			t.Errorf("the turn's page does not show %q:\n%s", text, shown)
		}
	}
}

// widest names the elements that overflow.
const widest = `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.tagName + "." + e.className).join(", ")`

// harmed names the effects of hostile text.
const harmed = `(() => {
	if (window.harmed) return "foreign text ran as script " + window.harmed;
	if (document.querySelector("main img, main script, main b[onmouseover], main i")) return "foreign text became an element";
	if (/[\u202a-\u202e\u2066-\u2069\u0007\u001b]/.test(document.body.textContent)) return "a control character or a change of direction is on the page";
	return "";
})()`

// accessible names elements that cannot be used without a mouse or by a screen reader, or lack contrast.
const accessible = `(() => {
	const faults = [];
	const need = (ok, what) => { if (!ok) faults.push(what); };
	need(document.documentElement.lang, "no language");
	need(document.querySelectorAll("main").length === 1, "not one main");
	need(document.querySelectorAll("h1").length === 1, "not one h1");
	need(document.querySelector("a.skip[href='#main']"), "no way past the navigation");
	for (const t of document.querySelectorAll("table")) {
		need(t.querySelectorAll("thead th[scope=col]").length > 0, "a table without headers");
		need(t.closest("[aria-labelledby], main"), "a table without a name");
	}
	for (const e of document.querySelectorAll("input:not([type=hidden], [hidden]), select")) need(e.labels.length > 0, "a field without a label");
	for (const e of document.querySelectorAll("button, a[href], summary")) need((e.getAttribute("aria-label") || e.textContent).trim(), "a control without a name: " + e.outerHTML);
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	need(new Set(ids).size === ids.length, "an id twice: " + ids.filter((id, i) => ids.indexOf(id) !== i).join(", "));
	for (const e of document.querySelectorAll("[aria-labelledby]")) need(document.getElementById(e.getAttribute("aria-labelledby")), "a name that is not there");
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest("noscript, .skip")) continue;
		const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
		need((a + 0.05) / (b + 0.05) >= 4.5, "too faint (" + ((a + 0.05) / (b + 0.05)).toFixed(2) + "): " + e.outerHTML.slice(0, 80));
	}
	return [...new Set(faults)].join("; ");
})()`

// A turn is followed while its model streams over a connection that breaks. In the end the page shows the
// reply.
func TestATurnIsFollowedInABrowser(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	answer := "It is done. " + strings.Repeat("Each word <b>counts</b>, ünd këeps its place; ", 120)
	spoken, goOn := make(chan struct{}), make(chan struct{})
	e.Model.Add(
		env.MarkerReply("mark_none", "a"),
		inferencetest.ResetAfter(inferencetest.WaitFor(spoken,
			inferencetest.OpenSSE(pieces("This is void. "+answer[:900])...))),
		func(x *inferencetest.Exchange) {
			inferencetest.OpenSSE(pieces(answer[:2500])...)(x)
			if x.Wait(goOn) {
				inferencetest.SSE(append(pieces(answer[2500:]), ending)...)(x)
			}
		},
	)
	w := e.StartWorker()
	b := openBrowser(t, w.APIURL())
	message := e.Enqueue("clerk", "Talk to me.")
	e.AwaitRequests(2)
	turn := env.Query[int64](e, "select turn_id from messages where id = $1", message)
	b.open(fmt.Sprintf("/turns/%d", turn))
	close(spoken)
	const live = `[...document.querySelectorAll("#live article:not([data-void]) [data-kind=text]")].map(e => e.textContent).join("")`
	b.await("the round that broke is void", `document.querySelector("#live [data-void]")`)
	b.await("text streams", live+".length > 1000")
	so := eval[string](b, live)
	if !strings.HasPrefix(answer, so) {
		t.Errorf("while it streams, the page has %q", so)
	}
	if state := env.Query[string](e, "select state from turns where id = $1", turn); state != "running" {
		t.Fatalf("the turn is %s", state)
	}
	// The page may list it below by now, as the text of a failed attempt.
	if strings.Contains(eval[string](b, `document.querySelector("#live").textContent`), "This is void") {
		t.Error("the rolled-back text is still in the live text")
	}
	close(goOn)
	b.await("the end is shown", `document.querySelector("#live").dataset.over === "succeeded"`)
	b.await("the page has the reply",
		`document.querySelector("#answer .reply") && document.querySelector("h1 .state").textContent.includes("succeeded")`)
	reply := e.TurnOf(message).Reply.Body
	if got := eval[string](b, live); got != reply || reply != answer {
		t.Errorf("the live text is not the reply:\n%q\n%q\n%q", got, reply, answer)
	}
	if got := eval[string](b, `document.querySelector("#answer .reply").textContent`); got != reply {
		t.Errorf("the page's reply is %q", got)
	}
	if !strings.Contains(eval[string](b, `document.querySelector("#timeline").textContent`), "retried 1 time") {
		t.Error("the time line does not tell of the retry")
	}
}

// pieces returns the chunks of a stream with this text.
func pieces(said string) (chunks []string) {
	for runes := []rune(said); len(runes) > 0; {
		n := min(300, len(runes))
		chunks = append(chunks,
			fmt.Sprintf(
				`{"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":null}]}`, env.Quote(string(runes[:n]))))
		runes = runes[n:]
	}
	return chunks
}

const ending = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// An operator signs in and acts with the keyboard alone. A reader sees no actions, and is refused.
func TestOperatingInABrowser(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.HangAfter(inferencetest.OpenSSE(pieces(strings.Repeat("I begin, and go on. ", 100))...))
	})
	full := env.Turnctl[struct{ Token string }](e, "tokens", "create", "full", "--scopes", "read,operate")
	reads := env.Turnctl[struct{ Token string }](e, "tokens", "create", "reads", "--scopes", "read")
	w := e.StartWorker("--listen", "0.0.0.0:0", "--model-idle-timeout", "5m", "--model-timeout", "5m",
		"--lease-ttl", "20m", "--max-duration", "15m")
	base := strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(w.APIURL())
	turn := awaitTurnOf(e, e.Enqueue("clerk", "Work for long."))
	path := fmt.Sprintf("/turns/%d", turn)
	b := openBrowser(t, base)
	b.expect("status of 401") // for the wrong token

	b.open(path)
	b.awaitPage("/sign-in?next=%2Fturns%2F" + fmt.Sprint(turn))
	b.signIn("tk_wrong")
	b.await("the token is refused", `document.querySelector("[role=alert]")?.textContent.includes("unknown")`)
	b.signIn(reads.Token)
	b.awaitPage(path)
	b.await("a stream by the session", `document.querySelector("#live").dataset.seq > 0`)
	if eval[bool](b, `Boolean(document.querySelector("main form, main button"))`) {
		t.Error("a reader sees forms")
	}
	if cookie := eval[string](b, "document.cookie"); cookie != "" {
		t.Errorf("a script can read %q", cookie)
	}
	b.expect("status of 403")
	if status := eval[int](b, post403(path+"/cancel")); status != http.StatusForbidden {
		t.Errorf("a form sent by a reader is answered %d", status)
	}
	b.tabTo("Sign out")
	b.press(kb.Enter)
	b.awaitPage("/sign-in")
	b.signIn(full.Token)
	b.awaitPage("/")

	b.press(kb.Tab)
	if b.focus() != "Skip to content" || !eval[bool](b, `document.activeElement.getBoundingClientRect().top >= 0`) {
		t.Errorf("the first tab stop is %q, or is invisible", b.focus())
	}
	if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
		t.Error("the focus is invisible")
	}
	b.press(kb.Enter)
	b.await("the content has the focus", `document.activeElement.id === "main" || location.hash === "#main"`)
	b.tabTo("Pause the scheduler…")
	b.press(kb.Enter)
	b.tabTo("Reason")
	b.press("I look at <b>something</b>")
	b.press(kb.Enter)
	b.awaitPage("/?done=paused")
	b.await("the pause is shown",
		`document.querySelector("#scheduler").textContent.includes("I look at <b>something</b>")`)
	b.tabTo("Resume")
	b.press(kb.Enter)
	b.awaitPage("/?done=resumed")
	if paused := env.Turnctl[struct {
		At *string `json:"paused_at"`
	}](e, "scheduler", "status"); paused.At != nil {
		t.Error("the scheduler is still paused")
	}

	b.open(path)
	b.await("the page follows", `document.querySelector("#live").dataset.seq > 0`)
	b.tabTo("Cancel the turn…")
	b.press(kb.Enter)
	b.tabTo("Reason")
	b.press("It takes too long")
	b.tabTo("Cancel the turn")
	b.press(kb.Enter)
	b.await("the turn is cancelled", `document.querySelector("h1 .state")?.textContent.includes("cancelled")`)
	if said := eval[string](b, "document.querySelector('main').textContent"); !strings.Contains(said,
		"It takes too long") {
		t.Errorf("the page does not say why: %s", said)
	}
	b.await("it can be tried again", `document.querySelector("#retry-turn")`)
	b.tabTo("Retry the message…")
	b.press(kb.Enter)
	b.tabTo("Retry") // no tool has run: nothing is to be confirmed
	b.press(kb.Enter)
	b.await("the new message is shown", `location.pathname.startsWith("/inbox/") && document.querySelector("h1")`)
	if n := env.Query[int](e, "select count(*) from retries"); n != 1 {
		t.Errorf("there are %d retries", n)
	}
	again := env.Query[int64](e, "select retried_as from retries")
	awaitTurnOf(e, again)
	b.await("its turn is shown", `document.querySelector("main tbody a[href^='/turns/']")`)
	if r := e.Turnctl("cancel", "--message", fmt.Sprint(again)); r.Code != 0 {
		t.Error(r.Stderr)
	}
	e.AwaitClosed(again)

	// Revoking a token ends its sessions.
	if r := e.Turnctl("tokens", "revoke", "full"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	b.open("/turns")
	b.awaitPage("/sign-in?next=%2Fturns")
}

// signIn types a token.
func (b *browser) signIn(token string) {
	b.t.Helper()
	b.tabTo("Token")
	b.press(token)
	b.press(kb.Enter)
}

// post403 returns an expression that sends a form from a script of the page and has its status.
func post403(path string) string {
	return fmt.Sprintf(`(() => { const r = new XMLHttpRequest(); r.open("POST", %q, false);
		r.setRequestHeader("Content-Type", "application/x-www-form-urlencoded"); r.send("reason=x"); return r.status; })()`, path)
}

// awaitTurnOf waits for the model request of a message, and returns its turn.
func awaitTurnOf(e *env.Env, message int64) int64 {
	e.T.Helper()
	e.Await("the message has a turn",
		"select coalesce(turn_id, 0) > 0 and state = 'running' from messages where id = $1", message)
	return env.Query[int64](e, "select turn_id from messages where id = $1", message)
}

// The page of a turn shows its whole tree of agents, links to each by keyboard, and updates itself, in both
// color schemes and on a narrow screen.
func TestATreeOfAgentsInABrowser(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteTeam("budget: {tree_calls: 40}")
	e.Ledger.Hold("a")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":   env.ReportResult(env.Spawn("scout find it", "nobody do it")),
		"scout":  env.ReportResult(env.Spawn("runner fetch it")),
		"runner": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("fetched")),
	}))
	w := e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	e.Ledger.Await("a", 1)
	e.AwaitWaiting(2)
	b := openBrowser(t, w.APIURL())
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {360, true}} {
		b.window(screen.width, 800, screen.dark)
		b.open("/turns/2")
		if over := eval[int](b, "document.documentElement.scrollWidth - window.innerWidth"); over > 0 {
			t.Errorf("%d pixels wider than a screen of %d: %s", over, screen.width, eval[string](b, widest))
		}
		if faults := eval[string](b, accessible); faults != "" {
			t.Error(faults)
		}
	}
	const line = `(li => li.querySelector("strong").textContent + " " + li.querySelector(".state").textContent.replace(/[^a-z]/g, "") + " " + li.querySelector("a").textContent)`
	const tree = `[...document.querySelectorAll("#tree li")].map(` + line + `).join(", ")`
	if got := eval[string](b, tree); got != "boss waiting turn 1, scout waiting turn 2, runner running turn 3" {
		t.Errorf("the tree is %q", got)
	}
	if depth := eval[int](b,
		`(e => { let n = 0; for (; e && e.id !== "tree"; e = e.parentElement) n += e.tagName === "UL"; return n; })(document.querySelector("#tree a[href='/turns/3']"))`); depth != 3 {
		t.Errorf("the runner is at depth %d", depth)
	}
	if here := eval[string](b, `document.querySelector("#tree [aria-current]").textContent`); here != "turn 2" {
		t.Errorf("this one is %q", here)
	}
	if facts := eval[string](b, `document.querySelector("#tree .about").textContent`); !strings.HasPrefix(facts,
		"2 sub-agents, ") || !strings.Contains(facts, " of 40 model calls of the budget") {
		t.Errorf("the tree has taken %q", facts)
	}
	b.tabTo("turn 3")
	b.press(kb.Enter)
	b.awaitPage("/turns/3")
	b.tabTo("turn 1")
	b.press(kb.Enter)
	b.awaitPage("/turns/1")
	e.Ledger.Release()
	e.TurnOf(message)
	b.await("the tree updates itself",
		tree+` === "boss succeeded turn 1, scout succeeded turn 2, runner succeeded turn 3"`)
}

// A list updates itself and keeps focus, scroll position and open details.
func TestAListRefreshesItself(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("done") })
	w := e.StartWorker()
	var last int64
	for range 27 {
		last = e.Enqueue("clerk", "Hello")
	}
	e.AwaitClosed(last)
	b := openBrowser(t, w.APIURL())
	b.window(1280, 500, false)
	b.open("/turns")
	b.await("the list is there", `document.querySelectorAll("main tbody tr").length === 25`)
	_ = eval[bool](b,
		`(() => { const a = document.querySelector("#turn-12 a"); a.focus(); a.scrollIntoView({block: "center", behavior: "instant"}); window.stays = a; return true; })()`)
	before := eval[float64](b, `document.activeElement.getBoundingClientRect().top`)
	newer := e.Enqueue("clerk", "One more")
	e.AwaitClosed(newer)
	turn := env.Query[int64](e, "select turn_id from messages where id = $1", newer)
	b.await("the new turn is in the list, ended", fmt.Sprintf(
		`document.querySelector("#turn-%d .state")?.textContent.includes("succeeded")`, turn))
	if n := eval[int](b, `document.querySelectorAll("main tbody tr").length`); n != 25 {
		t.Errorf("the list has %d rows", n)
	}
	if !eval[bool](b, `document.activeElement === window.stays`) {
		t.Errorf("the focus went to %q", b.focus())
	}
	if after := eval[float64](b, `document.activeElement.getBoundingClientRect().top`); after < before-60 ||
		after > before+60 {
		t.Errorf("the focused row went from %g to %g", before, after)
	}
	b.press(kb.Enter)
	b.awaitPage("/turns/12")
}
