// Package page serves the page that an operator sees in a browser: handlers read what
// is shown and do what forms ask for, and templates make HTML of it.
//
// All text of models, tools and senders is text: the templates escape it, and what
// changes the direction of a line or controls a terminal is written as an escape. No
// page has a script or a style of its own, so that the strictest
// Content-Security-Policy holds; it works without script, which only refreshes it,
// follows a turn and counts times on.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/internal/words"
)

//go:embed templates/*.html
var files embed.FS

// A Viewer is the person who looks at a page.
type Viewer struct {
	Token      string   // name of the token; empty: none, on loopback
	SignedIn   bool     // through the page, and may sign out
	MayOperate bool     // on what is shown
	MaySend    bool     // messages to the agents that are shown
	Agents     []string // that are shown; nil: all
}

// All reports whether the viewer sees everything, and may change what is everybody's.
func (v Viewer) All() bool { return v.Agents == nil }

// A Frame is what is around every page.
type Frame struct {
	Viewer Viewer
	Now    time.Time
	Path   string // of the page, with its query
	Done   string // what was just done: a key of the sentences that the page has; others say nothing
}

// A Page is one of the pages of this package.
type Page interface {
	file() string
	title() string
	section() string // of the navigation; empty: none
}

// data is what a template gets.
type data struct {
	Frame
	Page Page
}

// Write writes a page, whole or not at all.
func Write(w io.Writer, f Frame, p Page) error {
	t := templates()[p.file()]
	if t == nil {
		return fmt.Errorf("there is no template %q", p.file())
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, "layout", data{f, p}); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// They are parsed when a page is first requested: turnctl links this package too.
var templates = sync.OnceValue(parse)

func parse() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	entries, err := files.ReadDir("templates")
	if err != nil {
		panic(err) // the files are built in
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".html")
		all[name] = template.Must(template.Must(shared.Clone()).ParseFS(files, "templates/"+entry.Name()))
	}
	return all
}

var functions = template.FuncMap{
	"plain": words.Plain, "exact": words.Exact, "coarse": words.Coarse,
	"count": func(n int) string { return words.Thousands(int64(n)) }, "thousands": words.Thousands, "plural": words.Plural,
	"sign": sign, "tone": tone, "reason": words.StopReason, "silence": silence, "clause": words.Clause,
	"doing": func(t turnkeeper.Turn, now time.Time) string { return words.Doing(t, agoFrom(now)) },
	"messageState": func(m turnkeeper.WaitingMessage, now time.Time) messageState {
		state, note := words.Standing(m, agoFrom(now))
		return messageState{state, note}
	},
	"brief": words.Brief, "short": func(s string) string { return s[:min(len(s), 12)] }, "stoppedBy": stoppedBy, "join": strings.Join,
	"bytes": inBytes, "add": func(a, b int) int { return a + b }, "args": func(values ...any) []any { return values },
}

// sign returns the sign of a state: that of the terminal, and others for what is open or lasts.
func sign(state any) string {
	switch text := fmt.Sprint(state); text {
	case "running", "started", "held":
		return "▸"
	case "waiting", "queued", "planned", "deferred":
		return "…"
	case "answered", "finished":
		return words.Sign("succeeded")
	case "alive", "serving", "on":
		return "●"
	case "free", "off", "stopped":
		return "○"
	case "paused":
		return "‖"
	default:
		return words.Sign(text)
	}
}

// tone returns the colour of a state, which only repeats what the sign and the word say.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "succeeded", "answered", "alive", "serving", "finished", "on":
		return "good"
	case "failed", "silent", "lost":
		return "bad"
	case "degraded", "denied", "unknown", "cancelled", "draining", "paused", "handed_back", "deferred", "unclaimed":
		return "warn"
	case "running", "started", "held":
		return "active"
	default:
		return "idle"
	}
}

// A messageState is the state of a message, and what holds it up.
type messageState struct{ State, Note string }

func agoFrom(now time.Time) func(time.Time) string {
	return func(t time.Time) string { return words.Ago(now, t) }
}

// silence says that the worker of a turn is silent.
func silence(worker turnkeeper.WorkerID, s *turnkeeper.Silence, turn string, now time.Time) string {
	return words.Silence(worker, *s, turn, momentAt(now))
}

// stoppedBy returns why a turn ended, if there is anything to say.
func stoppedBy(t turnkeeper.Turn) string {
	if t.StopReason != "" && t.StopReason != turnkeeper.StopNone {
		return string(t.StopReason)
	}
	return t.ErrorClass
}

func inBytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
}

// A moment is a time as a page shows it; the zero time is a dash.
type moment struct{ ISO, Full, Ago string }

// At returns a time for the template "time".
func (d data) At(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t = t.UTC()
	return moment{t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05 UTC"), words.Ago(d.Now, t)}
}

// Title returns the page's, for the window.
func (d data) Title() string { return words.Plain(d.Page.title()) }

// A link of the navigation.
type link struct {
	Href, Name string
	Here       bool
}

// Nav returns the navigation.
func (d data) Nav() []link {
	links := []link{
		{"/", "Overview", false}, {"/turns", "Turns", false}, {"/inbox", "Inbox", false}, {"/replies", "Replies", false},
		{"/agents", "Agents", false}, {"/lanes", "Lanes", false}, {"/schedules", "Schedules", false},
	}
	for i := range links {
		links[i].Here = links[i].Href == d.Page.section()
	}
	return links
}

// notices say what was just done, by the query parameter done.
var notices = map[string]string{
	"cancelled": "The turn is cancelled.",
	"told":      "The worker has been told, and ends the turn.",
	"retried":   "The message was put into the inbox again: this is the new one.",
	"repeated":  "The message had been put into the inbox again before: this is the new one.",
	"due":       "The message is due now.",
	"paused":    "The scheduler is paused: no turn is handed out, and what runs goes on.",
	"resumed":   "The scheduler hands out turns again.",
	"schedule":  "The schedule is changed.",
	"sent":      "The message is in the inbox.",
	"ran":       "The schedule runs now: this is its message.",
	"waits":     "A message of the schedule waits already: this is the run.",
}

// Notice returns what was just done, in a sentence; empty: nothing.
func (d data) Notice() string { return notices[d.Done] }

// Bare reports whether a page has no navigation.
func (d data) Bare() bool {
	_, is := d.Page.(SignIn)
	return is
}
