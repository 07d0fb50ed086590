// Package turnkeepertest crash-tests tools and agents: it runs your tools and
// agent in memory against a scripted model, kills or pauses the worker at any
// point, lets another take over, and checks that nothing was done twice or lost.
// It needs no Postgres and no network, and takes about a millisecond per crash.
//
//	func TestOrder(t *testing.T) {
//		turnkeepertest.CrashEverywhere(t, func(t *testing.T) turnkeepertest.Scenario {
//			shop := &fakeShop{}
//			return turnkeepertest.Scenario{
//				AgentFile: "agents/clerk.md",
//				Tools:     []tools.Tool{orderTool(shop)},
//				Talk: []turnkeepertest.Exchange{{Say: "order tea", Model: []turnkeepertest.Step{
//					turnkeepertest.Call("order", `{"item":"tea"}`), turnkeepertest.Text("Ordered."),
//				}}},
//				Check: func(t testing.TB, r *turnkeepertest.Result) {
//					if n := shop.ledger.Count("order of tea"); n > 1 {
//						t.Errorf("ordered %d times", n)
//					}
//				},
//			}
//		})
//	}
//
// Run runs a scenario once, with the given faults: CrashAt, PauseAt, LoseAnswer.
// CrashEverywhere, PauseEverywhere and LoseAnswersEverywhere find all points of a
// run and inject a fault at each, in a new run and a separate subtest.
//
// # What is real
//
// The scheduler, leases, heartbeats, recovery and the turn's loop are those of a
// worker; a killed worker's turn is taken over as in production. The store is in
// memory and passes the same test suite as the Postgres store. The model is a
// script.
//
// # What is checked
//
// After each run, in addition to the scenario's Check:
//
//   - Turnkeeper's invariants: one reply per message, no open call in a closed
//     turn, no plain success with an unknown outcome, no write under an old
//     grant, no overlapping leases, and so on.
//   - A tool of effect once was started at most once for each call.
//   - A tool of effect keyed that was started again had its effect only once: it
//     passed on the idempotency key.
//   - A tool of effect none had no effect.
//   - A transactional tool repeated no effect outside its transaction.
//
// The last three checks see the effects that the tools' fakes record in a Ledger.
// A failure is reported with a trace of the run.
//
// # Points
//
// A run can be crashed and paused at these points. Those that end in .before and
// .after surround a write to the journal.
//
//	turn.start             the worker owns the grant and has read the turn's journal
//	recover.reconcile      before Reconcile asks a tool's service whether a call happened
//	recover.verdict.before before open calls of a lost worker are written as unknown
//	recover.verdict.after
//	model.before           before the request is sent
//	stream.before          before the events of a streamed answer are written
//	stream.after
//	model.first            the first piece of a streamed answer was received
//	model.more             a later piece was received
//	model.after            the whole answer was received
//	model.planned          the answer's calls are checked, but nothing is written
//	model.probed           a model that was down has answered a request of the worker's own
//	plan.before            before the answer and its calls are written
//	plan.after
//	ask.open.before        before an ask is written
//	ask.open.after
//	ask.seen.before        before the turn records that it has seen an answer
//	ask.seen.after
//	call.start.before      before the start of a call with an effect, or the use of its input, is written
//	call.start.after
//	call.checked           enough time is left; the tool runs next
//	effect.before          in the tool, in Ledger.Do: before the effect
//	effect.after           in Ledger.Do, after the effect
//	call.effect_done       the tool has returned, but nothing is written
//	call.reads_done        the same for tools of effect none
//	call.transact.before   before the transaction of a transactional tool
//	call.transact.ran      in the transaction, after the tool
//	call.transact.after    it has committed
//	call.results.before    before results are written
//	call.results.after
//	finish.before          before the reply and the turn's end are written
//	finish.after
//	detached.claimed       a worker has claimed a detached call; the tool runs next
//	detached.ran           the tool of a detached call has returned, but nothing is written
//	detached.arrived       its result is stored
//	turn.late              a worker that has lost its turn is about to report a late result
//
// # People
//
// A turn that asks a person gets its answer from Exchange.Answers: Approve,
// ApproveChanged, Deny or Reply, at once or later (After). An ask without an answer
// expires after ten minutes, which denies it. Result.Asks lists all asks. The rules
// "always" and "never" need no compiler. For rules in CEL set Scenario.Rules to
// cel.Compile.
//
// # Time
//
// A run is a bubble of testing/synctest: time is fake and advances when everything
// in the bubble waits, so the fifteen seconds until a take-over cost nothing. Tools
// and fakes must therefore not wait for anything outside the bubble: no network
// except net.Pipe, no child process, no channel made outside. They must return when
// their context ends, and must end all their goroutines with the run. For tools
// that cannot, set Scenario.RealTime. Such runs take real time.
//
// # What it cannot show
//
// A goroutine cannot be killed. A killed worker passes no further point, and its
// running tools have no more effects in a Ledger. But their context ends, unlike in
// a process that is really killed. Effects of a fake without a Ledger
// are not suppressed.
//
// A transactional tool finds no transaction (storage.TxFrom): that needs Postgres.
// Put your writes behind an interface, test the tool here with a fake that writes
// in OnCommit, and test your SQL against Postgres.
//
// Schedules, budgets, the freshness window, sub-agents and signals are not part of a
// run.
package turnkeepertest
