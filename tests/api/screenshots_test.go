package api_test

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

var writeScreenshots = flag.Bool("screenshots", false, "write the screenshots of docs/images anew")

// orders is the data of the office's tools.
const orders = `order  customer            item                      paid      sent
1041   Hanna Berg          2 × oak shelf, 80 cm      12 Nov    14 Nov
1042   Ottó Nagy           1 × desk lamp, brass      13 Nov    —
1043   Lucía Fernández     4 × dining chair, ash     13 Nov    15 Nov
1044   Tomasz Wójcik       1 × standing desk         —         —
`

// TestScreenshots simulates a morning in an office and takes the pictures of docs/page.md. A person checks
// their content; the test only checks that each exists and is not blank.
func TestScreenshots(t *testing.T) {
	if !*writeScreenshots {
		testrun.OnlyFull(t)
	}
	t.Parallel()
	e := env.New(t)
	office(e)
	held := make(chan struct{})
	e.Model.Then(officeModel(held))
	w := env.StartProcess(t, "worker", e.Dir, e.Environ(), env.Binary(t, "worker"), "--model-idle-timeout", "5m",
		"--model-timeout", "5m", "--max-duration", "3m")
	w.Await("worker ready")
	send := func(agent, conversation, body string) int64 {
		return e.Enqueue(agent, body, "--conversation", conversation)
	}
	var done []int64
	for _, m := range [][3]string{
		{"orders", "shop", "Has the lamp of order 1042 been sent?"},
		{"orders", "shop", "Hanna Berg asks where her shelf is. Write to her."},
		{"researcher", "markets", "Compare ash and oak as to price and supply this month."},
		{"orders", "shop", "Tomasz Wójcik has paid. Note it, and tell him when his desk comes."},
		{"clerk", "ana", "Put the tax papers on my list, for Friday."},
		{"clerk", "ben", "What comes next on my list?"},
	} {
		done = append(done, send(m[0], m[1], m[2]))
	}
	e.AwaitClosed(done...)
	e.AwaitClosed(send("researcher", "suppliers", "Ask the new supplier for a sample."))
	running := awaitTurnOf(e, send("researcher", "markets", "Write a summary of the week for the team."))
	send("researcher", "markets", "And a shorter one for the customers.")
	b := openBrowser(t, w.APIURL())
	b.window(1280, 800, false)
	b.open(fmt.Sprintf("/turns/%d", running))
	b.await("the turn streams", `document.querySelector("#live").textContent.includes("Oak")`)
	b.await("the page shows its first round", `document.querySelector("#round-1")`)
	b.picture("turn-live")
	b.open("/")
	b.picture("overview")
	b.window(1280, 800, true)
	b.picture("overview-dark")
	letter := env.Query[int64](e, "select turn_id from messages where id = $1", done[1])
	b.window(1280, 800, false)
	b.open(fmt.Sprintf("/turns/%d", letter))
	b.run(`document.querySelectorAll("details.call")[2].open = true`)
	b.picture("turn")
	b.open("/turns")
	b.window(360, 760, false)
	b.view("phone-turns")
	b.window(360, 760, true)
	b.open(fmt.Sprintf("/turns/%d", letter))
	b.run(`document.querySelector("#timeline").scrollIntoView({behavior: "instant"})`)
	b.view("phone-turn")
	close(held)
	e.AwaitClosed(env.Query[int64](e, "select message_id from turns where id = $1", running))
}

// TestScreenshotsOfAsks takes the pictures of docs/asks.md: an ask that waits for an approval, a question, and what a
// person changed.
func TestScreenshotsOfAsks(t *testing.T) {
	if !*writeScreenshots {
		testrun.OnlyFull(t)
	}
	t.Parallel()
	e := env.New(t)
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`default_model: local/qwen3-32b
providers:
  local:
    base_url: %s
    api_key_env: TEST_API_KEY
tools:
  pay_invoice:
    description: Pays an invoice.
    command: [sh, -c, "echo paid"]
    arguments: {type: object, properties: {invoice: {type: string}, to: {type: string}, amount: {type: number}, currency: {type: string}}}
    effect: once
`, e.ModelURL))
	e.WriteAgent("boss", "sub_agents: [invoices]")
	e.WriteAgent("invoices", "tools: [pay_invoice, ask_person]",
		`approve: {pay_invoice: 'args.amount > 500 ? ask("the amount is above 500 EUR") : allow'}`)
	pays := func(arguments string) inferencetest.Reply {
		return inferencetest.Calls(inferencetest.Call{Name: "pay_invoice", Arguments: arguments})
	}
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss": env.ReportResult(env.Spawn("invoices Pay what is due to Northwind.")),
		"invoices": func(r inferencetest.Recorded) inferencetest.Reply {
			message := env.NewestMessage(r)
			switch {
			case strings.Contains(message, "Acme"):
				return env.Rounds(
					pays(`{"invoice":"A-1041","to":"DE02120300000000202051","amount":1200,"currency":"EUR"}`),
					inferencetest.Text("Paid."))(r)
			case strings.Contains(message, "Globex"):
				return env.Rounds(inferencetest.Calls(inferencetest.Call{Name: "ask_person",
					Arguments: `{"question":"Globex has sent invoice G-3 twice, with different amounts. Which one shall I pay?","options":["the one of 3 November, 410 EUR","the one of 9 November, 385 EUR","neither"]}`}),
					inferencetest.Text("Thank you."))(r)
			}
			return env.Rounds(pays(`{"invoice":"N-77","to":"DE02500105170137075030","amount":1890,"currency":"EUR"}`),
				inferencetest.Text("Paid."))(r)
		},
	}))
	w := env.StartProcess(t, "worker", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	ask := func(agent, conversation, message string) int64 {
		before := env.Query[int64](e, "select coalesce(max(id), 0) from asks")
		e.Enqueue(agent, message, "--conversation", conversation)
		e.Await("a turn asks", "select max(id) > $1 from asks", before)
		return env.Query[int64](e, "select max(id) from asks")
	}
	edited := ask("invoices", "acme", "Pay the invoice of Acme.")
	b := openBrowser(t, w.APIURL())
	b.window(1280, 800, false)
	b.open(fmt.Sprintf("/asks/%d", edited))
	b.run(`document.querySelector("input[name=answered_by]").value = "ann"`)
	b.run(`document.querySelector("details.edit").open = true`)
	b.run(`const a = document.querySelector("textarea[name=arguments]"); a.value = a.value.replace("1200", "1020")`)
	b.run(`document.querySelector("textarea[name=comment]").value = "15 % less, as agreed with Acme."`)
	b.run(`document.querySelector("button[value=approved]").click()`)
	b.await("the diff", `document.querySelector(".diff .added") && document.readyState === "complete"`)
	b.picture("ask-edited")
	question := ask("invoices", "globex", "Pay the invoices of Globex.")
	open := ask("boss", "main", "Pay what is due.")
	b.open(fmt.Sprintf("/asks/%d", open))
	b.picture("ask")
	b.open(fmt.Sprintf("/asks/%d", question))
	b.picture("ask-question")
}

// office writes the agents and their tools, which are programs.
func office(e *env.Env) {
	e.T.Helper()
	e.WriteFile("turnkeeper.yaml", fmt.Sprintf(`default_model: local/qwen3-32b
providers:
  local:
    base_url: %s
    api_key_env: TEST_API_KEY
tools:
  look_up_order:
    description: Looks an order up.
    command: [cat, orders.txt]
    arguments: {type: object, properties: {order: {type: integer}}}
    effect: none
  send_mail:
    description: Sends a mail to a customer.
    command: [sh, -c, "sleep 0.4; echo accepted for delivery"]
    arguments: {type: object, properties: {to: {type: string}, subject: {type: string}, text: {type: string}}}
    effect: once
  search_news:
    description: Searches the news.
    command: [sh, -c, "sleep 0.7; cat orders.txt"]
    arguments: {type: object, properties: {query: {type: string}}}
    effect: none
`, e.ModelURL))
	e.WriteFile("orders.txt", orders)
	e.WriteAgent("orders", "description: Answers questions about orders and writes to customers.",
		"tools: [look_up_order, send_mail, clock]")
	e.WriteAgent("researcher", "description: Reads the news of the trade and sums them up.",
		"tools: [search_news, send_mail]",
		"schedule:", `  cron: "0 7 * * 1-5"`, "  time_zone: Europe/Berlin", "  message: What is new in the trade?")
	e.WriteAgent("clerk", "description: Keeps a list of things to do and says what is next.", "lane: conversation",
		"tools: [note_write, note_read]",
		"schedule:", `  cron: "30 16 * * 5"`, "  time_zone: Europe/Berlin",
		"  message: Which papers are due next week?")
}

const summary = `This week in short.

Oak is dearer: sawmills in the south ask 6 % more than a month ago, and deliver two weeks later. Ash is steady, at about the price of spring, and there is enough of it.

What that means for us: `

const summaryRest = `the dining chairs stay in ash, as planned. For the shelves we should decide before the 30th whether we raise the price or offer ash beside oak.`

// officeModel is the scripted model of the office. The summary stays unfinished until held is closed.
func officeModel(held <-chan struct{}) func(inferencetest.Recorded) inferencetest.Reply {
	mail := func(to, subject, text string) inferencetest.Call {
		return inferencetest.Call{Name: "send_mail", Arguments: fmt.Sprintf(`{"to":%s,"subject":%s,"text":%s}`,
			env.Quote(to), env.Quote(subject), env.Quote(text))}
	}
	order := func(n int) inferencetest.Call {
		return inferencetest.Call{Name: "look_up_order", Arguments: fmt.Sprintf(`{"order":%d}`, n)}
	}
	search := inferencetest.Call{Name: "search_news", Arguments: `{"query":"ash and oak, prices and supply"}`}
	scripts := []struct {
		about   string
		replies []inferencetest.Reply
	}{
		{"lamp of order 1042", []inferencetest.Reply{inferencetest.Calls(order(1042)),
			inferencetest.Text(
				"No. Order 1042 (Ottó Nagy, one brass desk lamp) was paid on 13 November and has not been sent yet. It has waited the longest of the paid ones.")}},
		{"Hanna Berg", []inferencetest.Reply{
			inferencetest.Message("I look at the order, and at what day it is.", order(1041),
				inferencetest.Call{Name: "clock"}),
			inferencetest.Message("It went out on the 14th, so it should be there tomorrow.",
				mail("hanna.berg@example.org", "Your oak shelves",
					"Dear Hanna Berg,\nboth shelves left us on 14 November and take two to three working days. You should have them tomorrow.\nKind regards, the workshop")),
			inferencetest.Text(
				"Both shelves of order 1041 were sent on 14 November. I wrote to Hanna Berg that she should have them tomorrow."),
		}},
		{"Tomasz", []inferencetest.Reply{inferencetest.Calls(order(1044), mail("tomasz.wojcik@example.org",
			"Your standing desk", "Thank you, your payment is here.")),
			inferencetest.Fault(400, "invalid_request_error", "the model is not available to this key")}},
		{"Compare ash", []inferencetest.Reply{inferencetest.Calls(search),
			inferencetest.Text(
				"Ash is about a fifth cheaper than oak this month, and there is enough of it. Oak is scarce until January.")}},
		{"new supplier", []inferencetest.Reply{inferencetest.Fault(400, "invalid_request_error",
			"the model does not answer such requests")}},
		{"tax papers", []inferencetest.Reply{inferencetest.Calls(inferencetest.Call{Name: "note_write",
			Arguments: `{"name":"todo-ana","text":"Friday: tax papers"}`}),
			inferencetest.Text("It is on your list: tax papers, Friday.")}},
		{"comes next", []inferencetest.Reply{inferencetest.Text("Nothing: your list is empty.")}},
		{"summary of the week", []inferencetest.Reply{
			inferencetest.Message("I look what there was.", search),
			func(x *inferencetest.Exchange) {
				for word := range strings.SplitAfterSeq(summary, " ") { // at the speed of a model
					inferencetest.OpenSSE(pieces(word)...)(x)
					x.Wait(env.After(20 * time.Millisecond))
				}
				if x.Wait(held) {
					inferencetest.SSE(append(pieces(summaryRest), ending)...)(x)
				}
			},
		}},
		{"", []inferencetest.Reply{inferencetest.Text(
			"Oak is dearer and late, ash is not: chairs come as promised, shelves may take two weeks longer.")}},
	}
	return func(r inferencetest.Recorded) inferencetest.Reply {
		for i, s := range scripts {
			if strings.Contains(env.NewestMessage(r), s.about) {
				return thinks(time.Duration(400+170*i)*time.Millisecond, env.Rounds(s.replies...)(r))
			}
		}
		return inferencetest.Text("")
	}
}

// thinks delays an answer, for a picture.
func thinks(d time.Duration, answer inferencetest.Reply) inferencetest.Reply {
	if !*writeScreenshots {
		return answer
	}
	return inferencetest.WaitFor(env.After(d), answer)
}

// picture takes a screenshot of the whole page, view one of its visible part.
func (b *browser) picture(name string) { b.keep(name, do(b, chromedp.FullScreenshot(100))) }
func (b *browser) view(name string)    { b.keep(name, do(b, chromedp.CaptureScreenshot())) }

// keep checks that a picture is not blank, and writes it with -screenshots.
func (b *browser) keep(name string, content []byte) {
	b.t.Helper()
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		b.t.Fatal(err)
	}
	colours := map[string]bool{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 7 {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x += 3 {
			colours[fmt.Sprint(picture.At(x, y))] = true
		}
	}
	if len(colours) < 10 {
		b.t.Errorf("the picture %s has %d colours", name, len(colours))
	}
	if !*writeScreenshots {
		return
	}
	path := env.Path("docs/images/" + name + ".png")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
