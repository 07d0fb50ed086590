package page

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A Listing is what lists have in common.
type Listing struct {
	Agents []string // to choose from
	States []string // to choose from; nil: none
	Agent  string   // that was chosen; empty: all
	State  string   // that was chosen; empty: all
	Newer  bool     // there is a first page before this one
	First  string   // its address
	Next   string   // address of the next page; empty: there is none
	Find   *Find    // nil: the list cannot be searched
}

// A Find is what a list was searched for; empty: not for that.
type Find struct {
	Conversation, Text, ErrorClass, Since, Until string
	Further                                      bool // not all was looked at, and the next page looks on
}

// Asked reports whether anything was asked for.
func (f Find) Asked() bool {
	return f.Conversation+f.Text+f.ErrorClass+f.Since+f.Until != ""
}

// Narrowed reports whether the list shows a part of what there is.
func (l Listing) Narrowed() bool {
	return l.Agent != "" || l.State != "" || l.Newer || l.Find != nil && (l.Find.Asked() || l.Find.Further)
}

// Overview is the first page.
type Overview struct {
	Figures   *operate.Figures // nil: not for this viewer
	Scheduler operate.SchedulerSettings
	Workers   []turnkeeper.Heartbeat // nil: not for this viewer
	Open      []turnkeeper.Turn
	Ended     []turnkeeper.Turn        // the newest
	Agents    []string                 // by name
	Down      []turnkeeper.ModelHealth // models that are down
	NoWorker  bool                     // nobody takes turns
}

func (Overview) file() string    { return "overview" }
func (Overview) title() string   { return "Overview" }
func (Overview) section() string { return "/" }

// Slots counts the live workers, and the turns that they take at once.
func (p Overview) Slots() (s struct{ Slots, Workers int }) {
	for _, w := range p.Workers {
		if w.State() == turnkeeper.WorkerAlive {
			s.Slots += w.Slots
			s.Workers++
		}
	}
	return s
}

// Turns is a list of turns.
type Turns struct {
	Listing
	Turns []turnkeeper.Turn
}

func (Turns) file() string    { return "turns" }
func (Turns) title() string   { return "Turns" }
func (Turns) section() string { return "/turns" }

// Inbox is a list of messages.
type Inbox struct {
	Listing
	Messages []turnkeeper.WaitingMessage
	Number   string // of the form that sends a message: no other page has it
}

func (Inbox) file() string    { return "inbox" }
func (Inbox) title() string   { return "Inbox" }
func (Inbox) section() string { return "/inbox" }

// Transcript is a part of a conversation, oldest first. Next is the address of what was before.
type Transcript struct {
	Listing
	Conversation string
	Exchanges    []operate.Exchange
}

func (Transcript) file() string    { return "transcript" }
func (p Transcript) title() string { return "Conversation " + p.Conversation }
func (Transcript) section() string { return "/inbox" }

// Message is one message.
type Message struct {
	Message turnkeeper.WaitingMessage
	Reply   *turnkeeper.Reply // nil: none yet
	Turns   []turnkeeper.Turn
	As, Of  turnkeeper.MessageID // it was tried again as, and is a retry of; 0: none
}

func (Message) file() string    { return "message" }
func (p Message) title() string { return fmt.Sprintf("Message %d", p.Message.ID) }
func (Message) section() string { return "/inbox" }

// Waits returns what it waits for, in words.
func (p Message) Waits(now time.Time) (said []string) {
	for _, w := range p.Message.Waits {
		said = append(said, words.Sentence(words.Wait(w, momentAt(now))))
	}
	return said
}

// momentAt writes times with how far they are from now.
func momentAt(now time.Time) func(time.Time) string {
	return func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") + " (" + words.Ago(now, t) + ")" }
}

// Open reports whether it can be cancelled.
func (p Message) Open() bool { return p.Message.ClosedAt.IsZero() }

// Replies is a list of replies.
type Replies struct {
	Listing
	Replies []turnkeeper.Reply
}

func (Replies) file() string    { return "replies" }
func (Replies) title() string   { return "Replies" }
func (Replies) section() string { return "/replies" }

// Agents is a list of agents.
type Agents struct {
	Listing
	Agents []turnkeeper.AgentRegistration
}

func (Agents) file() string    { return "agents" }
func (Agents) title() string   { return "Agents" }
func (Agents) section() string { return "/agents" }

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

// Output is a stored result, or a part of its text.
type Output struct {
	Output   turnkeeper.Output
	Text     string // from character From to To
	From, To int64
	Step     int64 // characters of a part
}

func (Output) file() string    { return "output" }
func (p Output) title() string { return "Output " + string(p.Output.ID) }
func (Output) section() string { return "/turns" }

// Binary reports whether there is no text.
func (p Output) Binary() bool { return p.Output.Bytes != nil }

// Prev and Next begin the parts before and after; -1: there is none.
func (p Output) Prev() int64 {
	if p.From == 0 {
		return -1
	}
	return max(p.From-p.Step, 0)
}

// Next begins the part after this one; -1: there is none.
func (p Output) Next() int64 {
	if p.To >= p.Output.Chars {
		return -1
	}
	return p.To
}

// SignIn asks for a token.
type SignIn struct {
	Next  string // where to go then: a path
	Wrong string // what is wrong with the one that was given; empty: nothing
}

func (SignIn) file() string    { return "signin" }
func (SignIn) title() string   { return "Sign in" }
func (SignIn) section() string { return "" }

// Problem says what is wrong.
type Problem struct {
	Status string
	Detail string
	Back   string // a path; empty: the overview
}

func (Problem) file() string    { return "problem" }
func (p Problem) title() string { return p.Status }
func (Problem) section() string { return "" }
