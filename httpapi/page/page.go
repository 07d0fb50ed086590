// Package page serves the page for operators: handlers read the store and process forms, and templates
// render HTML.
//
// Text of models, tools and senders is untrusted: the templates escape it, and control characters and
// those that change the direction of text are written as escapes. Pages have no inline script or style,
// as the Content-Security-Policy requires. They work without script, which only refreshes lists,
// follows a turn and updates times.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/views/columns"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
)

//go:embed templates/*.html
var files embed.FS

// A Viewer is the user of a page, and what the user may see and do.
type Viewer struct {
	Token      string   // name of the token; empty: a local request without a token
	SignedIn   bool     // has a session, and may sign out
	MayOperate bool     // has the scope operate
	MaySend    bool     // has the scope send
	MayAnswer  bool     // has the scope answer
	Agents     []string // visible agents; nil: all
}

// All reports whether the viewer sees all agents.
func (v Viewer) All() bool { return v.Agents == nil }

// ReadOnly reports whether the viewer can change nothing.
func (v Viewer) ReadOnly() bool { return !v.MayOperate && !v.MaySend && !v.MayAnswer }

// A Frame is the data around the content of every page.
type Frame struct {
	Viewer Viewer
	Now    time.Time
	Path   string // path of the page, with its query
	Done   string // key of a notice about the last action; unknown keys show none

	OpenAsks string // number of open asks; empty: none
}

// A Page is one of the pages of this package.
type Page interface {
	file() string
	title() string
	section() string // path of its entry in the navigation; empty: none
}

// data is the input of a template.
type data struct {
	Frame
	Page Page
}

// Write renders a page. On an error of the template it writes nothing.
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

// templates parses the templates at their first use: turnctl links this package too.
var templates = sync.OnceValue(parse)

func parse() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html",
		"templates/parts.html"))
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
	"count": func(n int) string {
		return words.Thousands(int64(n))
	}, "why": func(e *turnkeeper.Epoch) string { return prompt.Why(*e) },
	"thousands": words.Thousands, "plural": words.Plural,
	"sign": sign, "tone": tone, "state": func(state any) string {
		return words.State(fmt.Sprint(state))
	}, "millis": func(ms int64) time.Duration {
		return time.Duration(ms) * time.Millisecond
	}, "reason": words.StopReason, "silence": silence, "refusing": func(r presence.Refusal) string {
		return words.Refusing(r.For, r.Attempts, r.SQLState)
	}, "clause": words.Clause,
	"doing": func(t waiting.Turn, now time.Time) string { return waiting.Doing(t, agoFrom(now)) },
	"waits": func(all []waiting.Tally, now time.Time) (lines []string) {
		for _, t := range all {
			lines = append(lines, t.Long(agoFrom(now)))
		}
		return lines
	},
	"notes": func(now time.Time, inside, outside []waiting.Wait) string {
		return waiting.Notes(agoFrom(now), inside, outside)
	},
	"messageState": func(m waiting.Message, now time.Time) messageState {
		state, note := waiting.Standing(m, agoFrom(now))
		return messageState{state, note}
	},
	"conversation": words.Conversation, "brief": words.Brief, "quote": words.Quote, "short": func(s string) string {
		return s[:min(len(s), 12)]
	}, "stoppedBy": stoppedBy, "join": strings.Join,
	"turnHeadings":    func() []cell { return headings(columns.OfTurns) },
	"turnCells":       func(t waiting.Turn) []cell { return cells(columns.OfTurns, t) },
	"messageHeadings": func() []cell { return headings(columns.OfMessages) },
	"messageCells":    func(m waiting.Message) []cell { return cells(columns.OfMessages, m) },
	"bytes":           inBytes,
	"add":             func(a, b int) int { return a + b },
	"args":            func(values ...any) []any { return values },
}

// A look is the symbol and the colour of a state. The colour adds nothing to the symbol and the word.
type look struct{ sign, tone string }

// looks has each state that a page can show. Colours are good, bad, warn, active and idle.
var looks = map[string]look{
	// Turns, messages and calls.
	"queued": {"…", "idle"}, "waiting": {"…", "idle"}, "planned": {"…", "idle"}, "deferred": {"…", "warn"},
	"running": {"▸", "active"}, "started": {"▸", "active"}, "sending": {"▸", "active"},
	"succeeded": {"✓", "good"}, "degraded": {"!", "warn"}, "failed": {"✗", "bad"}, "cancelled": {"!", "warn"},
	"skipped": {"↷", "idle"}, "denied": {"!", "warn"}, "unknown": {"?", "warn"},
	// Asks.
	"open": {"…", "warn"}, "approved": {"✓", "good"}, "answered": {"✓", "good"}, "expired": {"!", "warn"},
	"withdrawn": {"·", "idle"},
	// Workers and models: what is down is as bad as what has failed.
	"alive": {"●", "good"}, "serving": {"●", "good"}, "draining": {"!", "warn"}, "silent": {"✗", "bad"},
	"stopped": {"○", "idle"},
	"up":      {"●", "good"}, "down": {"✗", "bad"}, "probing": {"▸", "warn"}, "unused": {"○", "idle"},
	// Lanes and ends of dispatches.
	"held": {"▸", "active"}, "free": {"○", "idle"}, "finished": {"✓", "good"}, "lost": {"✗", "bad"},
	"handed_back": {"!", "warn"}, "unclaimed": {"!", "warn"},
	// Schedules.
	"on": {"●", "good"}, "off": {"○", "idle"}, "paused": {"‖", "warn"},
	// Webhooks and deliveries.
	"active": {"●", "good"}, "failing": {"✗", "bad"}, "no_worker": {"✗", "bad"}, "asked_to_wait": {"…", "warn"},
	"pending": {"…", "idle"}, "delivered": {"✓", "good"}, "dead": {"✗", "bad"},
	// Survival levels and findings of doctor.
	"normal": {"●", "good"}, "low": {"!", "warn"}, "critical": {"✗", "bad"},
	"ok": {"✓", "good"}, "fail": {"✗", "bad"}, "warn": {"!", "warn"},
}

// lookOf returns the look of a state; one that is not known is a plain word.
func lookOf(state any) look {
	if l, known := looks[fmt.Sprint(state)]; known {
		return l
	}
	return look{"·", "idle"}
}

func sign(state any) string { return lookOf(state).sign }

func tone(state any) string { return lookOf(state).tone }

// A messageState is the state of a message, and why it waits.
type messageState struct{ State, Note string }

func agoFrom(now time.Time) func(time.Time) string {
	return func(t time.Time) string { return words.Ago(now, t) }
}

// silence returns a clause about a worker's silence.
func silence(worker turnkeeper.WorkerID, s *turnkeeper.Silence, turn string, now time.Time) string {
	return words.Silence(worker, *s, turn, momentAt(now))
}

// stoppedBy returns a turn's stop reason, else its error class; empty: neither.
func stoppedBy(t waiting.Turn) string {
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

// Title returns the title of the window.
func (d data) Title() string { return words.Plain(d.Page.title()) }

// Paths of entries in the navigation.
const (
	asksSection     = "/asks"
	agentsSection   = "/agents"
	webhooksSection = "/webhooks"
)

// A link of the navigation.
type link struct {
	Href, Name string
	Here       bool
}

// Nav returns the navigation.
func (d data) Nav() []link {
	links := []link{
		{"/", "Overview", false}, {"/turns", "Turns", false}, {"/inbox", "Inbox", false}, {asksSection + "?state=open",
			"Asks", false}, {"/replies", "Replies", false},
		{agentsSection, "Agents", false}, {"/lanes", "Lanes", false}, {"/schedules", "Schedules", false},
		{webhooksSection, "Webhooks", false}, {"/doctor", "Doctor", false},
	}
	if !d.Viewer.All() { // webhooks serve all agents
		links = slices.DeleteFunc(links, func(l link) bool { return l.Href == webhooksSection })
	}
	for i := range links {
		path, _, _ := strings.Cut(links[i].Href, "?")
		links[i].Here = path == d.Page.section()
	}
	return links
}

// notices maps values of the query parameter done to sentences about the last action.
var notices = map[string]string{
	"cancelled": "The turn is cancelled.",
	"told":      "Cancellation requested: the worker will end the turn.",
	"finishing": "The turn was asked to finish: its next model call is the last one.",
	"retried":   "The message was retried as this new message.",
	"repeated":  "The message had already been retried as this one.",
	"due":       "The message is due now.",
	"paused":    "The scheduler is paused: no turn is dispatched; running turns continue.",
	"resumed":   "The scheduler dispatches turns again.",
	"schedule":  "The schedule was changed.",
	"pinned":    "The survival level is pinned.",
	"unpinned":  "The pin of this agent has ended.",
	"sent":      "The message is in the inbox.",
	"ran":       "The schedule runs now, with this message.",
	"approved":  "The ask is approved: its turn continues.",
	"denied":    "The ask is denied: its turn continues without it.",
	"answered":  "The ask is answered: its turn continues.",
	"waits":     "This message of the schedule was already waiting; no other was added.",
}

// Notice returns a sentence about the last action; empty: none.
func (d data) Notice() string { return notices[d.Done] }

// Bare reports whether a page has no navigation.
func (d data) Bare() bool {
	_, is := d.Page.(SignIn)
	return is
}
