package agentturn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	askings "turnkeeper/asks"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A scene is a turn of a stage as the store has it at the end.
type scene struct {
	turnkeeper.Turn
	rounds []turnkeeper.Round
	events []turnkeeper.Event
	asks   []askings.Ask
	labels map[turnkeeper.CallKey]labelSet // of results; the zero key: of the turn
}

// scenes returns the turns of the message and of its sub-agents, in the order in which they began.
func (s *stage) scenes() (all []scene) {
	for _, m := range s.mem.Messages() {
		if m.TurnID == 0 {
			continue
		}
		turn, rounds, events, _ := s.mem.Turn(m.TurnID)
		c := scene{turn, rounds, events, must(s.conn.Asks(context.Background(), turn.ID)),
			map[turnkeeper.CallKey]labelSet{{}: {}}}
		for _, row := range s.mem.Labels() {
			if row.ID != int64(turn.ID) || row.Kind != turnlog.LabelCall && row.Kind != turnlog.LabelTurn {
				continue
			}
			key := turnkeeper.CallKey{}
			if row.Kind == turnlog.LabelCall {
				key = row.Call
			}
			c.labels[key] = c.labels[key].with(labelSet{row.Label: true})
		}
		all = append(all, c)
	}
	return all
}

// outcome returns what became of the turn.
func (s *stage) outcome() outcome {
	scenes := s.scenes()
	out := outcome{Labels: scenes[0].labels[turnkeeper.CallKey{}].String(), State: scenes[0].State,
		Stop: scenes[0].StopReason}
	for _, call := range callsOf(scenes[0].rounds) {
		if numberOf(call.WireID) == 0 {
			continue
		}
		out.Fates = append(out.Fates, s.fateOf(scenes[0], call))
		for _, c := range scenes[1:] {
			if c.Conversation == turnlog.SpawnConversation(scenes[0].ID, call.Key) {
				for _, call := range callsOf(c.rounds) {
					if numberOf(call.WireID) > 0 {
						out.Fates = append(out.Fates, s.fateOf(c, call))
					}
				}
			}
		}
	}
	reply, _ := s.mem.ReplyTo(s.message)
	out.Reply = strings.ReplaceAll(reply.Body, "server__", "")
	if s.insists && reply.Outcome == turnkeeper.TurnDegraded && out.Stop != turnkeeper.StopWithheld {
		out.Reply = "summary" // promises checks it
	}
	return out
}

// plainText matches the text in the arguments of a call.
var plainText = regexp.MustCompile(`"text":"(?:[^"\\]|\\.)*"`)

func (s *stage) fateOf(c scene, call turnkeeper.ToolCall) fate {
	f := fate{
		Call: call.WireID, Tool: strings.TrimPrefix(call.Name, "server__"), State: call.State,
		Labels: c.labels[call.Key].String(),
	}
	var asked []string
	for _, a := range c.asks {
		if a.Call == call.Key {
			asked = append(asked, fmt.Sprintf("%s %s", a.Kind, a.State))
		}
	}
	f.Asked = strings.Join(asked, ", ")
	for _, r := range s.runs {
		if r.TurnID == c.ID && r.Key == call.Key {
			f.Ran = plainText.ReplaceAllStringFunc(string(r.Arguments), func(text string) string {
				if text == `"text":"words"` {
					return text
				}
				return `"text":"a text"`
			})
		}
	}
	return f
}

// promises returns what is broken of the promises that hold for every turn.
func (s *stage) promises() []string {
	for _, v := range s.mem.Check(24 * time.Hour) {
		s.fault("store: %s", v)
	}
	for _, c := range s.scenes() {
		if !c.State.Terminal() {
			s.fault("turn %d is left %s", c.ID, c.State)
			continue
		}
		for _, call := range callsOf(c.rounds) {
			s.checkEnd(c, call)
			s.checkRuns(c, call)
			s.checkLabels(c, call)
			s.checkOutput(c, call)
		}
		s.checkRequests(c)
		reply, _ := s.mem.ReplyTo(c.MessageID)
		s.faults = append(s.faults, misplacedEvents(c.Turn, c.rounds, c.asks, c.events, reply.Body)...)
	}
	s.checkReply()
	s.checkFamily()
	s.meter.check(s.scenes())
	return s.faults
}

// checkEnd checks that a call has one end, which agrees with what its tool did.
func (s *stage) checkEnd(c scene, call turnkeeper.ToolCall) {
	ends := 0
	for _, e := range c.events {
		var data struct{ Call string }
		if e.Type == turnkeeper.EventToolResult && json.Unmarshal(e.Data, &data) == nil &&
			data.Call == call.Key.String() {
			ends++
		}
	}
	// the events of its transaction come with the next write
	within := propOf(strings.TrimPrefix(call.Name, "server__")).within && ends == 0
	// closed without a worker, as the turn of a lost one, or a sub-agent that nobody waits for; or lost before
	n := len(c.events)
	waited := n > 1 && c.events[n-2].Type == turnkeeper.EventTurnWaiting
	if c.Losses > 2 || waited && c.StopReason == turnkeeper.StopCancelled || c.Losses > 0 && within {
		ends = 1
	}
	if !call.State.Answered() || ends != 1 {
		s.fault("%s is left %s, with %d ends", call.WireID, call.State, ends)
	}
	ran, known := s.ran(c.ID, call.Key), propOf(strings.TrimPrefix(call.Name, "server__")).name != ""
	if !known || call.Effect == turnkeeper.EffectNone || call.Name == turnkeeper.ToolSpawnAgent {
		return
	}
	used := 0 // inputs, each by a further run of the same start
	for _, a := range c.asks {
		if a.Call == call.Key && a.Used {
			used++
		}
	}
	settled := slices.ContainsFunc(c.asks, func(a askings.Ask) bool {
		return a.Call == call.Key && a.Answer == askings.DidNotHappen
	})
	switch {
	case call.State == turnkeeper.CallSucceeded && ran == 0:
		s.fault("%s is told as succeeded, and did not run", call.WireID)
	case propOf(strings.TrimPrefix(call.Name, "server__")).within: // a run that was rolled back leaves nothing
	case (call.State == turnkeeper.CallDenied || call.State == turnkeeper.CallSkipped) && ran > 0:
		s.fault("%s is told as %s, and ran", call.WireID, call.State)
	case call.State == turnkeeper.CallCancelled && ran > 0 && !call.InDoubt():
		s.fault("%s is told as not run, and ran", call.WireID)
	case call.Effect == turnkeeper.EffectOnce && ran > 1+used && !settled:
		s.fault("%s ran %d times", call.WireID, ran)
	}
}

// checkRuns checks that what was approved, checked, hashed and journaled is what the tool received.
func (s *stage) checkRuns(c scene, call turnkeeper.ToolCall) {
	keys := map[string]bool{}
	for _, r := range s.runs {
		if r.TurnID != c.ID || r.Key != call.Key {
			continue
		}
		args := string(r.Arguments)
		if call.State == turnkeeper.CallCancelled && call.Starts == 0 {
			continue // a read of a lost worker, or a run that was rolled back, has no record
		}
		if args != call.AsRun() || tools.Hash(call.Name, args) != call.ArgsHash {
			s.fault("%s ran with %s; the journal says %s, with hash %.8s", call.WireID, args, call.AsRun(),
				call.ArgsHash)
		}
		if r.state == turnkeeper.CallPlanned && call.Effect != turnkeeper.EffectNone && !propOf(r.tool).within {
			s.fault("%s ran before its start was on record", call.WireID)
		}
		for _, a := range c.asks {
			if a.Call == call.Key && a.Kind == askings.KindApprove {
				s.checkApproved(call, args, a)
			}
			if a.Call == call.Key && a.Kind == askings.KindSettle &&
				(canonicalOf(a.Arguments) != args || a.Hash != tools.Hash(call.Name, a.Arguments)) {
				s.fault("%s: a person was asked whether it happened with %s, and it ran with %s", call.WireID,
					a.Arguments, args)
			}
		}
		if rule := s.rules[r.tool]; strings.Contains(rule, " ") && !slices.ContainsFunc(s.decided,
			func(d policy.Call) bool {
				return cmp.Equal(d, policy.Call{
					Tool: call.Name, Arguments: r.Arguments, Effect: call.Effect, Agent: c.Agent, User: c.User,
					Conversation: c.Conversation,
					Trigger:      c.Trigger, Labels: d.Labels,
				}) && (s.isDetached(r.tool) || cmp.Equal(d.Labels, r.Labels, cmpopts.EquateEmpty()))
			}) {
			s.fault("%s ran with %s, labels %v, and its rule did not see all of it: %+v", call.WireID, args,
				r.Labels, s.decided)
		}
		keys[r.IdempotencyKey] = true
	}
	if len(keys) > 1 {
		s.fault("%s ran with the keys %v", call.WireID, keys)
	}
}

func (s *stage) checkApproved(call turnkeeper.ToolCall, args string, a askings.Ask) {
	want := a.Arguments
	if a.Edited != "" {
		want = canonicalOf(a.Edited)
	}
	if a.State != askings.Approved || args != want {
		s.fault("%s ran with %s; the ask is %s for %s", call.WireID, args, a.State, want)
	}
	if a.Hash != tools.Hash(call.Name, a.Arguments) || a.Edited != "" &&
		a.EditedHash != tools.Hash(call.Name, a.Edited) {
		s.fault("%s: the hash of its ask is of other arguments", call.WireID)
	}
}

// canonicalOf returns arguments without spaces, with sorted names and plain numbers.
func canonicalOf(text string) string {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text
	}
	return string(must(json.Marshal(v)))
}

// checkLabels checks that the turn has each label of a result.
func (s *stage) checkLabels(c scene, call turnkeeper.ToolCall) {
	for label := range c.labels[call.Key] {
		if !c.labels[turnkeeper.CallKey{}][label] {
			s.fault("the result of %s is %s, and turn %d is not", call.WireID, label, c.ID)
		}
	}
}

// checkRequests rebuilds each request from the journal.
func (s *stage) checkRequests(c scene) {
	message, _ := s.mem.Message(c.MessageID)
	record := &turnlog.Record{Turn: c.Turn, Message: message, Rounds: c.rounds}
	for _, round := range c.rounds {
		for _, fault := range noticeFaults(round.Recipe) {
			if s.lost != 0 && strings.HasSuffix(fault, noSize) { // the store may not have answered
				continue
			}
			s.fault("the notice of round %d of turn %d: %s", round.Number, c.ID, fault)
		}
		parts, err := s.conn.RequestParts(context.Background(), prompt.PartsOf(record, round.Number)...)
		if err != nil {
			s.fault("the parts of round %d: %v", round.Number, err)
			continue
		}
		rebuilt, err := prompt.Rebuild(record, s.worker.defined[c.Agent], round.Number, parts)
		if err != nil {
			s.fault("the request of round %d: %v", round.Number, err)
			continue
		}
		if inference.SentAs("", prompt.Canonical(rebuilt.Request)).SHA256 != round.Recipe.SHA256 {
			s.fault("the request of round %d of turn %d is made again in another form", round.Number, c.ID)
		}
	}
}

// checkReply checks what the reply tells of the calls.
func (s *stage) checkReply() {
	c := s.scenes()[0]
	reply, ok := s.mem.ReplyTo(s.message)
	if !ok {
		s.fault("there is no reply")
		return
	}
	calls := callsOf(c.rounds)
	if len(reply.Calls) != len(calls) {
		s.fault("the reply has %d calls of %d", len(reply.Calls), len(calls))
		return
	}
	n, lines, doubts := map[string]int{}, "", ""
	for i, call := range calls {
		told := reply.Calls[i]
		if told.Key != call.Key || told.Name != call.Name || told.State != call.State {
			s.fault("the reply has call %+v for %s, which is %s", told, call.WireID, call.State)
		}
		word := wordOf(call)
		n[word]++
		lines += fmt.Sprintf("\n- %s: %s", call.Name, word)
		if word == "unknown" {
			doubts += fmt.Sprintf("\n- %s: unknown: it may or may not have happened", call.Name)
		}
	}
	unknown := ""
	if n["unknown"] > 0 {
		unknown = fmt.Sprintf(", %d unknown", n["unknown"])
	}
	head := fmt.Sprintf("Tool results: %d succeeded, %d failed%s.", n["succeeded"],
		n["failed"]+n["denied"]+n["cancelled"], unknown)
	switch {
	case c.StopReason == turnkeeper.StopWithheld || strings.HasPrefix(reply.Body,
		"This message could not be answered: "):
	case strings.HasPrefix(reply.Body, "Tool results: "):
		got := strings.Split(reply.Body, "\n")
		if want := strings.Split(head+lines, "\n"); len(got) != len(want) || got[0] != want[0] ||
			slices.ContainsFunc(want, func(line string) bool {
				return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, line) })
			}) {
			s.fault("the reply is\n%s\nfor\n%s", reply.Body, head+lines)
		}
	default:
		if doubts != "" {
			doubts = "\n" + doubts
		}
		if want := "All is done." + doubts; reply.Body != want {
			s.fault("the reply is %q, want %q", reply.Body, want)
		}
		if (c.State == turnkeeper.TurnSucceeded) != (doubts == "") && c.StopReason != turnkeeper.StopWorkerLost {
			s.fault("the turn %s with unknown calls %q", c.State, doubts)
		}
	}
}

// wordOf returns the word for the state of a call in a closing reply.
func wordOf(call turnkeeper.ToolCall) string {
	switch {
	case call.State == turnkeeper.CallUnknown,
		call.State == turnkeeper.CallCancelled && call.Effect != turnkeeper.EffectNone && call.Nonce != "":
		return "unknown"
	default:
		return string(call.State)
	}
}

// uncertain reports whether a strike has left a call whose outcome the turn could not know by itself.
func (s *stage) uncertain() bool {
	if s.scenes()[0].Losses > 2 { // it was answered without another run
		return true
	}
	for _, c := range s.scenes() {
		for _, call := range callsOf(c.rounds) {
			doubts := propOf(strings.TrimPrefix(call.Name, "server__")).ends == "doubts"
			settles := 0
			for _, a := range c.asks {
				if a.Call == call.Key && a.Kind == askings.KindSettle {
					settles++
				}
			}
			lost := doubts && call.State == turnkeeper.CallUnknown && strings.HasPrefix(call.Shown, prompt.ShownUnknown)
			stopped := lost || call.State == turnkeeper.CallCancelled ||
				strings.HasPrefix(call.Shown, "not run: ") || strings.HasPrefix(call.Shown, "not finished: ")
			if settles > 1 || !doubts && (settles > 0 || wordOf(call) == "unknown") || stopped {
				return true
			}
		}
	}
	return false
}
