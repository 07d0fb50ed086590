package waiting

// A Row is a reason, with all that is said of it in lists, on pages, in documents and to operators. A text may hold
// fields in braces (see texts.go) and parts in brackets, which are left out if a field in them is empty.
type Row struct {
	Reason    Reason
	Fields    string // those of Wait that it uses, apart from Reason
	Everybody bool   // it holds back all messages, not only this one
	Running   bool   // it is about a turn that has been granted, and holds no grant back
	Minor     bool   // lists show it only if the message has no other reason
	Parked    string // behind "waits for", of a turn that this reason parks; empty: it parks none
	Short     string // in a list, behind the state
	Long      string // in a sentence
	Advice    string // to an operator: sentences
	Meaning   string // in documents
}

// Rows lists all reasons. Whatever shows or documents reasons reads this table. The function turnkeeper.blockers
// decides which of them a message has.
var Rows = []Row{
	{
		Reason: UnknownAgent, Fields: "Agent",
		Short:   "unknown agent",
		Long:    "agent {agent} is not registered: no worker has its file",
		Advice:  "Start a worker that has the file of agent {agent}. If the file is new, make the workers read it: send them SIGHUP.",
		Meaning: "no worker has registered its agent",
	}, {
		Reason: AgentRetired, Fields: "Agent Since",
		Short:   "agent retired",
		Long:    "agent {agent} has been retired[ since {since}]",
		Advice:  "Restore the agent: turnctl agents restore {agent}. Or cancel the message: turnctl cancel --message {id}.",
		Meaning: "its agent is retired",
	}, {
		Reason: NotDue, Fields: "Until",
		Short:   "due {ago}",
		Long:    "it is due at {until}",
		Advice:  "To run it at once: turnctl retry {id}.",
		Meaning: "it is not due yet",
	}, {
		Reason: SurvivalLevel, Fields: "Until Agent Count Why",
		Short:   "[level {why}: ]priority below {priority}",
		Long:    "agent {agent} serves only messages of priority {priority} or more[ at its survival level {why}][; the level ends by {until}]",
		Advice:  "Raise the agent's budget of the day. While some of it is left, a pin helps too: turnctl levels pin normal --agent {agent} --for 1h.",
		Meaning: "little is left of its agent's budget of the day, or an operator has pinned a survival level, and its priority is below the `min_priority` of that level",
	}, {
		Reason: EarlierMessage, Fields: "Lane Message Count", Minor: true,
		Short:   "behind {messages}",
		Long:    "it waits behind {messages} of {lane}[: the first is message {first}]",
		Advice:  "See the message ahead: turnctl explain --message {message}.",
		Meaning: "messages of its lane that are due are ahead of it: they have a lower rank, which is the due time less a second for each point of priority",
	}, {
		Reason: EarlierTurn, Fields: "Lane Turn State Why", Minor: true,
		Short:   "behind turn {turn}",
		Long:    "turn {turn} goes back to {lane} before it",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "a turn that waited outside its lane, and goes back to it, is ahead of it",
	}, {
		Reason: LaneHeld, Fields: "Since Until Lane Turn State Worker Why", Minor: true,
		Short:   "behind turn {turn}",
		Long:    "turn {turn}[ of worker {worker}] holds {lane}[ and {doing}][, at most until {lease}][: {why}]",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "another turn of its lane is open: it runs, waits, or is queued",
	}, {
		Reason: ConversationHeld, Fields: "Turn State",
		Short:   "behind turn {turn}[, which {doing}]",
		Long:    "turn {turn}, of the same conversation, [{doing} and ]goes first",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "a turn of its conversation waits for a person outside the lane, or goes back to it, and later messages of the conversation wait (`while_asking: hold`)",
	}, {
		Reason: LanesChanged, Fields: "Since Agent Lane Turn State Worker",
		Short:   "lanes changed[, behind turn {turn}]",
		Long:    "the agent's lanes were changed[ at {since}][, and turn {turn}][ of worker {worker}][ is still open in {rival}][: it moves to {new} at the next tick]",
		Advice:  "See the lanes: turnctl lanes --agent {agent}.",
		Meaning: "the agent's lanes were changed, and a turn is open in an old lane that must not run at the same time",
	}, {
		Reason: SetAside, Fields: "Since Until Why",
		Short:   "set aside",
		Long:    "it has failed[ since {since}] and is set aside[ until {until}][: {why}]",
		Advice:  "Remove what the error names; then it goes on by itself, or at once: turnctl retry {id}.",
		Meaning: "it, or its turn, failed in a tick of the scheduler and is left out until its next try",
	}, {
		Reason: LaneBackoff, Fields: "Until Lane Count Why",
		Short:   "retried {ago}",
		Long:    "{lane} pauses after {failures} in a row[ until {until}][: {why}]",
		Advice:  "Fix the cause; the message is retried by itself, or at once: turnctl retry {id}.",
		Meaning: "its lane pauses after a failed turn",
	}, {
		Reason: DetachedCalls, Fields: "Turn State Count",
		Parked:  "detached calls",
		Short:   "for {calls}",
		Long:    "turn {turn} waits for {calls}",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "its own turn waits for detached calls",
	}, {
		Reason: SubAgents, Fields: "Agent Turn State Message Count",
		Parked:  "sub-agents",
		Short:   "for {agents}",
		Long:    "turn {turn} waits for {agents}[: {agent}][, with message {message}]",
		Advice:  "See the sub-agent's message: turnctl explain --message {message}.",
		Meaning: "its own turn waits for the replies of sub-agents",
	}, {
		Reason: Person, Fields: "Since Until Turn State Count",
		Parked:  "a person",
		Short:   "for a person",
		Long:    "turn {turn} waits for a person to answer {asks}[; the first expires at {until}]",
		Advice:  "See what it asks: turnctl asks --turn {turn}.",
		Meaning: "its own turn waits for a person",
	}, {
		Reason: BudgetSpent, Fields: "Until Turn State Why",
		Parked:  "its budget",
		Short:   "for its budget, due {ago}",
		Long:    "turn {turn} waits for its budget[ until {until}][: {why}]",
		Advice:  "Raise the agent's budget, or wait for the next period. Cancel the message: turnctl cancel --message {id}.",
		Meaning: "its own turn is deferred because a budget is spent",
	}, {
		Reason: NewerWorker, Fields: "Until Turn State Why",
		Parked:  "a newer worker",
		Short:   "no worker can run it, again {ago}",
		Long:    "every live worker has handed turn {turn} back[; they are offered it again at {until}][: {why}]",
		Advice:  "Start a worker with the tools and the version that the turn needs, or take the tools out of the agent's file. Cancel the message: turnctl cancel --message {id}.",
		Meaning: "every live worker has handed its turn back, because it lacks a tool of the agent or is too old",
	}, {
		Reason: Deferred, Fields: "Until Turn State Why",
		Parked:  "its next try",
		Short:   "due {ago}",
		Long:    "turn {turn} is deferred[ until {until}][: {why}]",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "its own turn is deferred for another reason",
	}, {
		Reason: NotTakenUp, Fields: "Since Turn State", Running: true, Minor: true,
		Short:   "not started yet",
		Long:    "turn {turn} is granted, but no worker has started it yet",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "its own turn is granted, but no worker has started it",
	}, {
		Reason: WorkerSilent, Fields: "Since Until Lane Turn State Worker Stopped Silent", Running: true,
		Short:   "{quiet}",
		Long:    "{silence}",
		Advice:  "See the turn: turnctl explain {turn}.",
		Meaning: "the worker of its turn, or of the turn in its way, is silent or has stopped: another one takes over at `until`",
	}, {
		Reason: AgentFull, Fields: "Agent Count", Minor: true,
		Short:   "agent full",
		Long:    "agent {agent} has {turns} running, which is its max_running",
		Advice:  "Raise max_running in the file of agent {agent}.",
		Meaning: "as many turns of its agent run as `max_running` allows",
	}, {
		Reason: ModelDown, Fields: "Since Until Turn Model Why",
		Parked:  "a model",
		Short:   "for {model}",
		Long:    "model {model} has been down[ since {since}][; turn {turn} tries it now][; it is tried again at {until}][: {why}]",
		Advice:  "Fix the cause, as turnctl doctor says. To retry the message at once: turnctl retry {id}.",
		Meaning: "all models of its agent are down, and none is due to be tried again; one entry for each model",
	}, {
		Reason: SchedulerPaused, Fields: "Since Why", Everybody: true,
		Short:   "scheduler paused",
		Long:    "the scheduler has been paused[ since {since}][: {why}]",
		Advice:  "Resume the scheduler: turnctl scheduler resume.",
		Meaning: "an operator paused the scheduler",
	}, {
		Reason: SchedulerHoldsOff, Fields: "Until Why", Everybody: true,
		Short:   "scheduler holds off",
		Long:    "the scheduler holds off[ until {until}][: {why}]",
		Advice:  "Wait until then: turnctl doctor says what was seen.",
		Meaning: "the scheduler does not trust the clock",
	}, {
		Reason: SchedulerSilent, Fields: "Since", Everybody: true,
		Short:   "no scheduler",
		Long:    "no scheduler has run {since or yet}",
		Advice:  "Start a process with the role scheduler: {worker command}.",
		Meaning: "no scheduler has ticked for three minutes, or, in a new database, within half a minute of a worker's start",
	}, {
		Reason: NoWorker, Everybody: true,
		Short:   "no worker",
		Long:    "no worker takes turns",
		Advice:  "Start a worker: {worker command}.",
		Meaning: "no live process takes turns",
	}, {
		Reason: NoFreeSlot, Fields: "Count", Everybody: true, Minor: true,
		Short:   "no free slot",
		Long:    "no slot is free: {slots}",
		Advice:  "Raise worker_slots, or start another worker.",
		Meaning: "all slots of live workers are taken",
	}, {
		Reason: NextTick, Minor: true,
		Short:   "next tick",
		Long:    "nothing blocks it: the scheduler grants it at its next tick",
		Advice:  "Wait for the next tick, which comes within the poll interval: turnctl scheduler shows it.",
		Meaning: "nothing blocks it: the next tick grants it",
	},
}

// RowOf returns the row of a reason. ok is false for one of a later release.
func RowOf(r Reason) (row Row, ok bool) {
	for _, row := range Rows {
		if row.Reason == r {
			return row, true
		}
	}
	return Row{Reason: r, Short: string(r), Long: string(r)}, false
}
