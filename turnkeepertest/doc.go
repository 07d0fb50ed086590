// Package turnkeepertest tests tools and agents where it hurts: it runs a user's
// own tools and agent against a scripted model, in memory, kills or stops the
// worker at any point, lets another take over, and checks that nothing was done
// twice and nothing was lost. An ordinary go test with it needs no Postgres and
// no network, and takes a millisecond or so a crash.
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
// Run runs a scenario once, with the faults it is given: CrashAt, PauseAt,
// LoseAnswer. CrashEverywhere, PauseEverywhere and LoseAnswersEverywhere learn
// where a fault can strike and try every place, each in a fresh world and as a
// subtest of its own.
//
// # What is real
//
// The scheduler, leases, heartbeats, recovery and the turn's own loop are those
// of a worker; a killed worker's turn is found and taken over as in production.
// The database is one in memory that keeps the same rules and passes the same
// test suite as Postgres does. The model is a script.
//
// # What is checked
//
// After each run, beside the scenario's own Check:
//
//   - Turnkeeper's invariants: one reply a message, no open call under a closed
//     turn, no plain success over an unknown outcome, no write under an old
//     grant, leases that never overlap, and so on.
//   - A tool of effect once was not started twice for one call.
//   - A tool of effect keyed, started again, had no effect again: it passed on
//     the idempotency key.
//   - A tool of effect none had no effect.
//   - A transactional tool did nothing outside of its transaction that was then
//     done again.
//
// The last three see the effects that the tools' fakes write in a Ledger. What
// fails is reported with a trace of the run.
//
// # Points
//
// A run can be crashed and paused wherever it passes one of these points. One
// that ends in .before and .after stands for a write to the journal.
//
//	turn.start             a worker has taken the turn and read its journal
//	recover.reconcile      before a tool is asked what became of a call
//	recover.verdict.before calls of a lost worker are to be written down as unknown
//	recover.verdict.after
//	model.before           the request is ready
//	stream.before          what the model has streamed is to be written
//	stream.after
//	model.first            the first piece of a streamed answer has come
//	model.more             a later piece has
//	model.after            the answer is read
//	model.planned          the answer's calls are checked, nothing is written
//	plan.before            the answer and its calls are to be written
//	plan.after
//	call.start.before      the start of a call with an effect is to be written
//	call.start.after
//	call.checked           there is time enough; the tool runs next
//	effect.before          within the tool, in Ledger.Do: before the effect
//	effect.after           the same, after the effect
//	call.effect_done       the tool has returned, nothing is written
//	call.reads_done        the same for tools of effect none
//	call.transact.before   before the transaction of a transactional tool
//	call.transact.ran      in the transaction, after the tool
//	call.transact.after    it has committed
//	call.results.before    results are to be written
//	call.results.after
//	finish.before          the reply and the turn's end are to be written
//	finish.after
//	detached.claimed       a worker has claimed a detached call; the tool runs next
//	detached.ran           the tool of a detached call has returned, nothing is written
//	detached.arrived       its result is on record
//	turn.late              a worker that has lost its turn is about to tell a late result
//
// # Time
//
// A run is a bubble of testing/synctest: time is fake and passes at once when
// everything in the bubble waits, so the fifteen seconds until a silent worker
// is replaced cost nothing. That asks three things of tools and fakes. They must
// not wait for anything outside of the bubble: no network (net.Pipe is fine), no
// child process, no channel made elsewhere; they must return when their context
// ends; and all goroutines that they start must have ended with the run. For
// tools that cannot, set Scenario.RealTime, and patience.
//
// # What it cannot show
//
// A goroutine cannot be killed from outside. A worker that is killed passes no
// further point, and a tool of it that runs beside has no more effects in a
// Ledger, but sees its context end, which a tool of a process killed for real
// does not. What a fake does without a Ledger is not held back.
//
// A transactional tool that asks for its transaction (storage.TxFrom) finds
// none: that needs Postgres. Put your writes behind an interface, test the tool
// here with a fake that writes in OnCommit, and your SQL against a Postgres.
//
// Schedules, budgets, the freshness window, sub-agents and signals are not part of a
// run.
package turnkeepertest
