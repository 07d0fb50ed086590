package page

import (
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A Listing is the common data of lists.
type Listing struct {
	Agents []string // options of the filter
	States []string // options of the filter; nil: no filter by state
	Agent  string   // chosen agent; empty: all
	State  string   // chosen state; empty: all
	Newer  bool     // this is not the first page
	First  string   // path of the first page
	Next   string   // path of the next page; empty: none
	Find   *Find    // nil: the list has no search
}

// A Find holds the terms of a search; empty: no such term.
type Find struct {
	User, Conversation, Text, ErrorClass, Since, Until string
	Further                                            bool // the search was cut short; the next page continues it
}

// Asked reports whether there is a search term.
func (f Find) Asked() bool {
	return f.User+f.Conversation+f.Text+f.ErrorClass+f.Since+f.Until != ""
}

// Narrowed reports whether the list is filtered, searched or not at its first page.
func (l Listing) Narrowed() bool {
	return l.Agent != "" || l.State != "" || l.Newer || l.Find != nil && (l.Find.Asked() || l.Find.Further)
}

// Overview is the first page.
type Overview struct {
	Totals    *operate.Totals // nil: not visible to this viewer
	Scheduler operate.SchedulerSettings
	Workers   []presence.Heartbeat // nil: not visible to this viewer
	Open      []waiting.Turn
	Ended     []waiting.Turn       // newest first
	Agents    []string             // names
	Down      []modelhealth.Health // models that are down
	Levels    []views.AgentLevel   // that are not normal, or are pinned
	Webhooks  []views.Webhook      // that fail, or deliver nothing
	NoWorker  bool                 // no live worker runs turns
	Refused   *presence.Refusal    // the longest refusal of the database, of any worker or this process; nil: none
}

// Advice says what to do about what the database refuses.
func (p Overview) Advice() string { return words.WriteAdvice(p.Refused.SQLState) }

func (Overview) file() string    { return "overview" }
func (Overview) title() string   { return "Overview" }
func (Overview) section() string { return "/" }

// Slots returns the number of live workers and of their slots.
func (p Overview) Slots() (s struct{ Slots, Workers int }) {
	for _, w := range p.Workers {
		if w.State() == presence.Alive {
			s.Slots += w.Slots
			s.Workers++
		}
	}
	return s
}

// Turns is a list of turns.
type Turns struct {
	Listing
	Turns []waiting.Turn
}

func (Turns) file() string    { return "turns" }
func (Turns) title() string   { return "Turns" }
func (Turns) section() string { return "/turns" }

// Inbox is a list of messages.
type Inbox struct {
	Listing
	Messages []waiting.Message
	Number   string // unique number of the form that sends a message
}

func (Inbox) file() string    { return "inbox" }
func (Inbox) title() string   { return "Inbox" }
func (Inbox) section() string { return "/inbox" }

// Transcript is a part of a conversation, oldest first. Next is the path of the part before.
type Transcript struct {
	Listing
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Exchanges    []operate.Exchange
}

func (Transcript) file() string { return "transcript" }
func (p Transcript) title() string {
	return "Conversation " + words.Conversation(p.User, p.Conversation)
}
func (Transcript) section() string { return "/inbox" }

// Message is one message.
type Message struct {
	Message waiting.Message
	Reply   *turnkeeper.Reply // nil: none yet
	Turns   []waiting.Turn
	As, Of  turnkeeper.MessageID // its retry, and the message it is a retry of; 0: none
}

func (Message) file() string    { return "message" }
func (p Message) title() string { return fmt.Sprintf("Message %d", p.Message.ID) }
func (Message) section() string { return "/inbox" }

// Waits returns the reasons why the message waits, as sentences.
func (p Message) Waits(now time.Time) []string { return sentences(p.Message.Waits, now) }

// ToDo returns what an operator can do about it.
func (p Message) ToDo() []string {
	var all []string
	for _, w := range p.Message.Waits {
		if advice := w.Advice(p.Message.ID, "worker"); advice != "" && !slices.Contains(all, advice) {
			all = append(all, advice)
		}
	}
	return all
}

func sentences(waits []waiting.Wait, now time.Time) (all []string) {
	for _, w := range waits {
		all = append(all, words.Sentence(w.Long(momentAt(now))))
	}
	return all
}

// momentAt formats a time with its distance from now.
func momentAt(now time.Time) func(time.Time) string {
	return func(t time.Time) string {
		layout := "15:04:05 UTC"
		if t.UTC().Format(time.DateOnly) != now.UTC().Format(time.DateOnly) {
			layout = "2006-01-02 " + layout
		}
		return t.UTC().Format(layout) + " (" + words.Ago(now, t) + ")"
	}
}

// Open reports whether the message is open.
func (p Message) Open() bool { return p.Message.ClosedAt.IsZero() }

// Replies is a list of replies.
type Replies struct {
	Listing
	Replies []turnkeeper.Reply
}

func (Replies) file() string    { return "replies" }
func (Replies) title() string   { return "Replies" }
func (Replies) section() string { return "/replies" }

// Lanes is a list of lanes.
type Lanes struct {
	Listing
	Scheduler operate.SchedulerSettings
	Lanes     []operate.LaneView
}

func (Lanes) file() string    { return "lanes" }
func (Lanes) title() string   { return "Lanes" }
func (Lanes) section() string { return "/lanes" }

// Schedules is a list of schedules.
type Schedules struct {
	Listing
	Scheduler operate.SchedulerSettings
	Schedules []turnkeeper.Schedule
}

func (Schedules) file() string    { return "schedules" }
func (Schedules) title() string   { return "Schedules" }
func (Schedules) section() string { return "/schedules" }

// Output is a stored result with a part of its text.
type Output struct {
	Output   turnkeeper.Output
	Text     string // characters From to To, exclusive
	From, To int64
	Step     int64 // length of a part in characters
}

func (Output) file() string    { return "output" }
func (p Output) title() string { return "Output " + string(p.Output.ID) }
func (Output) section() string { return "/turns" }

// Binary reports whether the output is binary.
func (p Output) Binary() bool { return p.Output.Bytes != nil }

// Prev returns the start of the previous part; -1: none.
func (p Output) Prev() int64 {
	if p.From == 0 {
		return -1
	}
	return max(p.From-p.Step, 0)
}

// Next returns the start of the next part; -1: none.
func (p Output) Next() int64 {
	if p.To >= p.Output.Chars {
		return -1
	}
	return p.To
}

// SignIn is the sign-in form.
type SignIn struct {
	Next  string // path to redirect to after signing in
	Wrong string // error about the given token; empty: none
}

func (SignIn) file() string    { return "signin" }
func (SignIn) title() string   { return "Sign in" }
func (SignIn) section() string { return "" }

// Problem shows an error.
type Problem struct {
	Status string
	Detail string
	Back   string // path of the page before; empty: the overview
}

func (Problem) file() string    { return "problem" }
func (p Problem) title() string { return p.Status }
func (Problem) section() string { return "" }
