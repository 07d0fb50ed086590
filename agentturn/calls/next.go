package calls

import (
	"cmp"
	"encoding/json"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// A Do is the kind of a step.
type Do string

// The kinds of steps. The first four only find something out; after them, call Next again.
const (
	Resolve   Do = "resolve"   // replace the handles in its arguments; see Call.Resolve
	Rule      Do = "rule"      // ask the rules; see Call.Ruling
	Recheck   Do = "recheck"   // whether what a person allowed is still allowed; see Call.Recheck
	Reconcile Do = "reconcile" // ask the tool whether the call happened; see Call.Reconciled

	Leave  Do = "leave"  // nothing
	Answer Do = "answer" // with Step.Result
	Take   Do = "take"   // a person's text, Step.Text, as the result of the tool
	Doubt  Do = "doubt"  // record that the outcome is unknown
	NoTime Do = "notime" // answer this and all other open calls: too little time is left
	Ask    Do = "ask"    // a person Step.Question, and wait
	Wait   Do = "wait"   // for a person who was asked

	Spawn    Do = "spawn"    // give the task to another agent
	Detach   Do = "detach"   // start it in a job of its own
	Read     Do = "read"     // run it without a recorded start, with its neighbours
	Run      Do = "run"      // record a start and run it
	Transact Do = "transact" // run it inside the transaction that records it
	Resume   Do = "resume"   // run the same start again, with the input of a person
	Rerun    Do = "rerun"    // run it again in the background, where it was when its worker was lost
)

// A Step is the next step of a call, as Next decides it.
type Step struct {
	Do       Do
	Result   turnlog.CallResult // for Answer
	Text     string             // for Take
	Question asks.Question      // for Ask
}

// A Phase is what the turn does.
type Phase string

// The phases.
const (
	Running     Phase = ""          // it executes its calls
	Recovering  Phase = "recover"   // it continues from the journal
	Finishing   Phase = "finish"    // it was asked to finish with what it has
	OutOfTime   Phase = "notime"    // its lease is too short for another call
	HandingBack Phase = "hand back" // this dispatch ends, and another continues
	Closing     Phase = "close"     // the turn ends: no call may stay open
)

// A Turn is what Next needs to know about the turn of a call.
type Turn struct {
	Phase   Phase
	Bounds  turnkeeper.Bounds
	Left    int                  // calls that may still run; paging calls do not count
	Time    bool                 // the lease outlasts a run of the call and the margin
	Settles bool                 // a person decides about a call of unknown outcome
	Repeats *turnkeeper.ToolCall // the call that this one repeats: see Call.Repeated; nil: none
	// why the arguments that a person wrote do not fit the tool; empty: they do, or nobody wrote any
	Misfit string
}

// Turn returns what Next needs to know while calls are executed, except for Time and Settles.
func (l *List) Turn(c *Call) Turn {
	t := Turn{Bounds: l.offer.Bounds, Left: l.offer.Bounds.MaxToolCalls - l.Executed(),
		Repeats: c.Repeated(l.backFrom(c))}
	if ask := c.Asks.Approval(); ask != nil && ask.Edited != "" {
		t.Misfit = l.offer.CheckAsWritten(c.Name, ask.Edited)
	}
	return t
}

// Next returns what is to be done with an open call. It changes nothing. The order of its checks is contract.
func (c *Call) Next(t Turn) Step {
	switch t.Phase {
	case Recovering:
		return recovered(c, t)
	case Finishing, OutOfTime, HandingBack, Closing:
		return ended(c, t.Phase)
	}
	switch {
	case !c.Known(): // another worker, which had the tool, planned the call
		return refuse(c, turnlog.RefusedUnknown+": "+c.Name+
			"\nIt was removed after the call was planned. Nothing was run.")
	case c.Spec.Detached && !t.Bounds.Paging:
		return refuse(c, shownUnreadable)
	case c.Spec.Detached && c.Handles:
		return refuse(c, shownNoHandles)
	case c.Handles && !c.resolved:
		return Step{Do: Resolve}
	case c.unresolvable != "":
		return refuse(c, c.unresolvable)
	case t.Repeats != nil:
		result := c.Result(turnkeeper.CallSkipped, RepeatedResult(*t.Repeats))
		result.Preview = t.Repeats.Preview
		return Step{Do: Answer, Result: result}
	case c.State == turnkeeper.CallPlanned && !c.Paging && t.Left < 1:
		return answer(c, turnkeeper.CallDenied, ShownOverCalls(t.Bounds))
	case c.Name == turnkeeper.ToolAskPerson:
		return asked(c)
	}
	if step := allowed(c, t); step.Do != "" {
		return step
	}
	return started(c, t)
}

// started returns how a call that may run is run.
func started(c *Call, t Turn) Step {
	switch {
	case c.Name == turnkeeper.ToolSpawnAgent:
		return Step{Do: Spawn}
	case c.Spec.Detached:
		return Step{Do: Detach}
	case c.Reads() && c.State != turnkeeper.CallRunning && c.Asks.Approval() == nil && !c.Spec.AsksInput:
		return Step{Do: Read}
	case !t.Time:
		return Step{Do: NoTime}
	case c.State == turnkeeper.CallRunning:
		return Step{Do: Rerun}
	case c.Spec.Transactional:
		return Step{Do: Transact}
	case c.AwaitsInput():
		return Step{Do: Resume}
	default:
		return Step{Do: Run}
	}
}

// allowed returns what is to be done before a call may run. The zero Step: it may run.
func allowed(c *Call, t Turn) Step {
	switch {
	case c.AwaitsInput():
		return input(c)
	case c.State == turnkeeper.CallStarted && !c.Effect.Repeatable():
		return settled(c, t)
	case c.Asks.Approval() != nil:
		return approved(c, t)
	case c.State != turnkeeper.CallPlanned || c.ChangesNothing():
		return Step{}
	case c.Ruling == nil:
		return Step{Do: Rule}
	case c.Ruling.Verdict == policy.Deny:
		return answer(c, turnkeeper.CallDenied, ShownRefused(*c.Ruling))
	case c.Ruling.Verdict == policy.Ask:
		return Step{Do: Ask, Question: c.Question(asks.KindApprove, 1, *c.Ruling)}
	default:
		return Step{}
	}
}

// ChangesNothing reports whether no rule applies to the call.
func (c *Call) ChangesNothing() bool { return c.Spec.Paging || c.Name == turnkeeper.ToolAskPerson }

// approved decides by the answer to the ask for approval.
func approved(c *Call, t Turn) Step {
	switch ask := c.Asks.Approval(); {
	case ask.State == asks.Open:
		return Step{Do: Wait}
	case ask.State != asks.Approved:
		return answer(c, turnkeeper.CallDenied, shownNotApproved(ask))
	case t.Misfit != "":
		return answer(c, turnkeeper.CallDenied, turnlog.Denied+turnlog.RefusedEdit+": "+t.Misfit)
	case c.RunHash() != ask.RunHash():
		return refuse(c, "denied: the arguments of this call are no longer those that were approved. Nothing was run.")
	default:
		return standing(c)
	}
}

// standing decides by whether what a person allowed is still allowed.
func standing(c *Call) Step {
	text := turnlog.Denied + turnlog.RefusedSince + ", but " + c.outdated + ". Nothing was run."
	switch {
	case !c.rechecked:
		return Step{Do: Recheck}
	case c.outdated == "":
		return Step{}
	case c.State == turnkeeper.CallPlanned:
		return answer(c, turnkeeper.CallDenied, text)
	case !c.Effect.Repeatable(): // it started, and a person said that it did not happen
		return answer(c, turnkeeper.CallFailed, text)
	default: // it started before, and its worker was lost
		return Step{Do: Doubt}
	}
}

const settleSchema = `{"enum":["happened","did_not_happen","unknown"],"description":"Whether the call happened. After did_not_happen it runs again."}`

// settled decides about a started call of effect once without a result, by the ask about its newest start. It may start
// again if a person says that it did not happen.
func settled(c *Call, t Turn) Step {
	switch ask := c.Settlement(); {
	case ask == nil && t.Settles:
		q := c.Question(asks.KindSettle, c.Starts, policy.Decision{
			Reason: cmp.Or(c.Doubt, "the worker that ran this call was lost, and its outcome is unknown"),
		})
		q.Schema = settleSchema
		return Step{Do: Ask, Question: q}
	case ask == nil:
		return Step{Do: Doubt}
	case !ask.Closed():
		return Step{Do: Wait}
	case ask.Answer == asks.Happened:
		result := c.Result(turnkeeper.CallSucceeded,
			withComment("A person says that this call happened. Its result was lost.", ask))
		result.Ran = true
		return Step{Do: Answer, Result: result}
	case ask.Answer == asks.DidNotHappen && ask.Hash == c.RunHash():
		return standing(c)
	default:
		return Step{Do: Doubt}
	}
}

// input decides about a call that waits for input of a person. After an invalid answer it asks again.
func input(c *Call) Step {
	ask := c.Asks.Input()
	if !ask.Closed() {
		return Step{Do: Wait}
	}
	if _, fault := inputAnswer(ask); fault != "" && ask.N < tools.MaxInputs {
		again := ask.Question
		again.N++
		again.Reason = "The answer was invalid (" + fault + "). " + c.Asks.Of(asks.KindInput, 1).Reason
		return Step{Do: Ask, Question: again}
	}
	return Step{}
}

// personArguments are the arguments of turnkeeper.ToolAskPerson.
type personArguments struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

// asked decides about the model's own question to a person. The answer becomes the call's result.
func asked(c *Call) Step {
	ask := c.Asks.Of(asks.KindQuestion, 1)
	switch {
	case ask == nil:
		var args personArguments
		_ = json.Unmarshal(c.Args(), &args) // they were checked
		q := c.Question(asks.KindQuestion, 1, policy.Decision{Reason: args.Question})
		schema := map[string]any{"type": "string"}
		if len(args.Options) > 0 {
			schema["enum"] = args.Options
		}
		q.Schema = string(prompt.Canonical(schema))
		return Step{Do: Ask, Question: q}
	case ask.State == asks.Open:
		return Step{Do: Wait}
	case ask.State == asks.Answered:
		text := ask.Answer
		var plain string
		if json.Unmarshal([]byte(text), &plain) == nil {
			text = plain
		}
		return Step{Do: Take, Text: withComment(text, ask)}
	case ask.State == asks.Denied:
		return answer(c, turnkeeper.CallDenied, withComment("no answer: a person declined to answer this question.",
			ask))
	default:
		return answer(c, turnkeeper.CallDenied, "no answer: nobody answered this question in time.")
	}
}

// recovered decides about a call that the journal has open. Calls that may run again, and those about which a person
// has answered, are left to be executed.
func recovered(c *Call, t Turn) Step {
	switch ask := c.Settlement(); {
	case c.State == turnkeeper.CallPlanned, c.Effect.Repeatable():
		return Step{Do: Leave}
	case ask != nil && ask.Closed(), c.AwaitsInput():
		return Step{Do: Leave}
	case !c.reconciled:
		return Step{Do: Reconcile}
	case c.State == turnkeeper.CallStarted && t.Settles: // a person is asked when it is executed
		return Step{Do: Leave}
	default:
		return Step{Do: Doubt}
	}
}

// ended decides about an open call that is not executed any more.
func ended(c *Call, phase Phase) Step {
	planned := c.State == turnkeeper.CallPlanned
	switch {
	case phase == HandingBack && (c.Cut == nil || c.Reconciles() || c.Effect.Repeatable()):
		return Step{Do: Leave} // the next dispatch runs it again or reconciles it
	case phase != OutOfTime && c.Cut != nil:
		return Step{Do: Answer, Result: c.CutResult()}
	case phase == Closing && planned:
		return answer(c, turnkeeper.CallCancelled, prompt.ShownNotRun)
	case phase == OutOfTime && planned:
		return answer(c, turnkeeper.CallDenied, prompt.ShownNoTime)
	case phase == Finishing && planned:
		return answer(c, turnkeeper.CallDenied, shownFinish)
	case phase == Finishing && c.Effect == turnkeeper.EffectNone:
		return Step{Do: Answer, Result: c.KeepHandle(c.Result(turnkeeper.CallCancelled, ShownStopped))}
	case phase == Finishing && c.Effect.Repeatable() && !c.AwaitsInput():
		return Step{Do: Leave} // it runs again: only its end tells what has happened
	default: // a lost worker had started it, and there is no time to find out; a person was asked about it; or a panic
		return Step{Do: Doubt}
	}
}

// refuse answers a call that cannot run. The outcome of a call that a lost worker had started is unknown.
func refuse(c *Call, text string) Step {
	if c.State != turnkeeper.CallPlanned {
		return Step{Do: Doubt}
	}
	return answer(c, turnkeeper.CallDenied, text)
}

func answer(c *Call, state turnkeeper.CallState, text string) Step {
	return Step{Do: Answer, Result: c.Result(state, text)}
}

// Texts of calls that do not run.
const (
	// of a detached call with handles: its job cannot read the turn's results
	shownNoHandles = turnlog.RefusedArguments + ": a tool that runs detached takes no output: handles. Nothing was run."
	// of a detached call without paging: nothing could read its result
	shownUnreadable = turnlog.RefusedArguments +
		": this tool runs detached, and paging is off, so its result could not be read. Nothing was run."
	shownFinish = turnlog.Denied + turnlog.RefusedFinish + ". Nothing was run."
	// ShownStopped is the result of a call of effect none that was stopped because its turn is to finish.
	ShownStopped = "cancelled: the turn was asked to finish before this call had ended."
)

// ShownOverCalls is the result of a call over the limit of calls of a turn.
func ShownOverCalls(b turnkeeper.Bounds) string {
	return fmt.Sprintf(OverLimit+"%d tool calls a turn; this one was not run", b.MaxToolCalls)
}
