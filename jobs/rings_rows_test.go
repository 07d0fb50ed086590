package jobs_test

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A ringing is something that makes work ready, or stops it.
type ringing struct {
	name string
	by   string                     // the Go functions that ring, separated by spaces
	want []string                   // places in the schema and, after "go", channels
	when func(b *bells) (do func()) // prepares
}

var ringings = []ringing{
	{"a message is sent", "", []string{"enqueue_by inbox"}, func(b *bells) func() { return func() { b.sent() } }},
	{"a message is sent again", "", nil, func(b *bells) func() {
		send := func() {
			_, err := b.Enqueue(b.t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x", Key: "k"})
			b.fatal(err)
		}
		send()
		return send
	}},
	{"a message is edited", "", []string{"edit_message inbox"}, func(b *bells) func() {
		id := b.sent()
		return func() { b.Exec("select turnkeeper.edit_message($1, 'better')", id) }
	}},
	{"a message is dropped", "", []string{"drop_message inbox"}, func(b *bells) func() {
		id := b.sent()
		return func() { b.Exec("select turnkeeper.drop_message($1)", id) }
	}},
	{"a message is cancelled", "", []string{"close_cancelled inbox", "close_cancelled turns"}, func(b *bells) func() {
		id := b.Submit("clerk", "", "x")
		return func() { _, err := b.CancelMessage(b.t.Context(), id, "enough"); b.fatal(err) }
	}},
	{"a failed message is retried", "", []string{"enqueue_by inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed,
			StopReason: turnkeeper.StopInferenceError, Reply: "sorry"}},
			turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"}))
		return b.retry(d.Record.Message.ID)
	}},
	{"a turn that waits for its time is retried", "", []string{"retry_message inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.deferred(d)
		return b.retry(d.Record.Message.ID)
	}},
	{"a message that waits for its lane is retried", "operate.tryModelsOf", []string{"retry_message inbox"},
		func(b *bells) func() {
			d := b.Turn("x")
			b.failed(d)
			return b.retry(d.Record.Message.ID)
		}},
	{"a message that is set aside is retried", "operate.RetryAside", []string{"go inbox"}, func(b *bells) func() {
		b.Submit("clerk", "", "x")
		b.Exec(`insert into turnkeeper.set_aside (kind, id, code, error, next_try)
			select 'message', id, 'XX000', 'x', now() + interval '1 hour' from turnkeeper.messages`)
		return func() { b.retryAside(granting.Subject{Kind: "message", ID: b.one("messages")}) }
	}},
	{"all that is set aside is retried", "operate.RetryAside", []string{"go inbox", "go turns"}, func(b *bells) func() {
		return func() { b.retryAside(granting.Subject{}) }
	}},
	{"a delivery that is set aside is retried", "operate.RetryAside", []string{"go inbox", "go turns"},
		func(b *bells) func() {
			b.delivered()
			b.Exec(`insert into turnkeeper.set_aside (kind, id, code, error, next_try)
				select 'delivery', id, 'XX000', 'x', now() + interval '1 hour' from turnkeeper.webhook_deliveries`)
			return func() { b.retryAside(granting.Subject{Kind: "delivery", ID: b.one("webhook_deliveries")}) }
		}},
	{"a pause before a delivery is shortened", "operate.SweepDeliveries operate.ringIfDue", []string{"go turns"},
		func(b *bells) func() {
			b.delivered()
			b.Exec("update turnkeeper.webhook_deliveries set due_at = now() + interval '1 day'")
			return func() { b.fatal(b.SweepDeliveries(b.t.Context())) }
		}},

	{"a turn is granted to a worker", "", []string{"go river_insert"}, func(b *bells) func() {
		b.Submit("clerk", "", "x")
		return func() { b.Dispatch("") }
	}},
	{"a turn ends", "", []string{"end_many inbox freed", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() { d.Finish(b.t, "done") }
	}},
	{"a turn fails and is tried again", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() {
			b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed,
				StopReason: turnkeeper.StopInferenceError, Error: "x", Retry: true, Backoff: time.Second}},
				turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Second}))
		}
	}},
	{"a turn is handed back", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() {
			b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued,
				Error: "bye"}},
				turnlog.Consequence{Log: "handed_back"}))
		}
	}},
	{"a turn waits for a call", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Detached("a", turnkeeper.EffectOnce)
		return func() { d.Wait(b.t) }
	}},
	{"a turn waits for a person, and its lane is free", "", []string{"end_many inbox", "end_many turns",
		"park_turn inbox"},
		func(b *bells) func() {
			d, _ := b.asked(false)
			return func() { d.Wait(b.t) }
		}},
	{"a worker leaves a turn", "grants.GiveBack", []string{"go inbox"}, func(b *bells) func() {
		b.Turn("x")
		return func() { _, err := b.GiveBack(b.t.Context(), "worker-1", 0, nil, nil); b.fatal(err) }
	}},
	{"a lost turn is queued", "grants.RingHolders jobs.Requeue", []string{"end_many inbox", "end_many turns",
		"go cancels"},
		func(b *bells) func() {
			b.lose(b.Turn("x"))
			return func() {
				b.tick(func(tick tickOf) error {
					lost, err := tick.Lost(b.t.Context(), 9)
					b.fatal(err)
					return tick.Requeue(b.t.Context(), lost[0])
				})
			}
		}},
	{"a lost turn is closed", "jobs.CloseLost", []string{"end_many inbox freed", "end_many turns", "go cancels"},
		func(b *bells) func() {
			b.lose(b.Turn("x"))
			return func() {
				b.tick(func(tick tickOf) error {
					lost, err := tick.Lost(b.t.Context(), 9)
					b.fatal(err)
					return tick.CloseLost(b.t.Context(), lost[0])
				})
			}
		}},

	{"a running turn is cancelled", "", []string{"ask_end cancels"}, func(b *bells) func() {
		return b.end(b.Turn("x"), turnlog.EndCancel)
	}},
	{"a running turn is to finish", "", []string{"ask_end cancels"}, func(b *bells) func() {
		return b.end(b.Turn("x"), turnlog.EndFinish)
	}},
	{"a waiting turn is cancelled", "", []string{"ask_end cancels", "close_cancelled inbox", "close_cancelled turns"},
		func(b *bells) func() {
			d, _ := b.asked(true)
			return b.end(d, turnlog.EndCancel)
		}},
	{"a waiting turn is to finish", "", []string{"ask_end cancels", "hurry_turn inbox"}, func(b *bells) func() {
		d, _ := b.asked(true)
		return b.end(d, turnlog.EndFinish)
	}},
	{"a turn that is put off is to finish", "", []string{"ask_end cancels", "hurry_turn inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.deferred(d)
		return b.end(d, turnlog.EndFinish)
	}},

	{"a call asks a person", "", []string{"open_asks asks"}, func(b *bells) func() {
		d := b.Turn("x")
		d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
		return func() { d.Write(b.t, turnlog.Entry{Asks: b.questions()}) }
	}},
	{"an ask is answered", "", []string{"wake_turn inbox"}, func(b *bells) func() {
		_, id := b.asked(true)
		return func() { b.answer(id) }
	}},
	{"an ask of a running turn is answered", "", nil, func(b *bells) func() {
		_, id := b.asked(false)
		return func() { b.answer(id) }
	}},
	{"an ask expires", "", []string{"wake_turn inbox"}, func(b *bells) func() {
		b.asked(true)
		b.Exec(
			"update turnkeeper.asks set opened_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'")
		return func() {
			b.tick(func(tick tickOf) error { _, err := tick.ExpireAsks(b.t.Context(), 9); return err })
		}
	}},

	{"a call is detached", "", []string{"enqueue_by inbox", "ring_detached river_insert " + jobs.CallQueueOf("tool")},
		func(b *bells) func() {
			return func() { b.Detached("a", turnkeeper.EffectOnce) }
		}},
	{"a detached call ends", "", []string{"arrive_call inbox"}, func(b *bells) func() {
		c := b.claimed(true)
		return func() {
			b.fatal(b.Arrive(b.t.Context(), c, storagetest.Result(storagetest.Key(1, 1), "",
				turnkeeper.CallSucceeded, "ok")))
		}
	}},
	{"a detached call of a running turn ends", "", nil, func(b *bells) func() {
		c := b.claimed(false)
		return func() {
			b.fatal(b.Arrive(b.t.Context(), c, storagetest.Result(storagetest.Key(1, 1), "",
				turnkeeper.CallSucceeded, "ok")))
		}
	}},
	{"a detached call is given up", "", []string{"arrive_call inbox", "end_detached calls"}, func(b *bells) func() {
		c := b.claimed(true)
		return func() {
			b.tick(func(tick tickOf) error {
				return tick.EndCall(b.t.Context(), granting.LostCall{Ref: c.Ref, Effect: turnkeeper.EffectOnce})
			})
		}
	}},
	{"a detached call is handed on", "", []string{"ring_detached river_insert " + jobs.CallQueueOf("tool"),
		"run_detached_again calls"},
		func(b *bells) func() {
			c := b.claimed(true)
			return func() { b.fatal(b.Release(b.t.Context(), c)) }
		}},
	{"a worker leaves a detached call", "grants.GiveBackCalls", []string{"go inbox"}, func(b *bells) func() {
		b.claimed(true)
		return func() { _, err := b.GiveBackCalls(b.t.Context(), "worker-1", 0, nil, nil); b.fatal(err) }
	}},
	{"the turn of a detached call is cancelled", "", []string{"ask_end cancels", "close_cancelled inbox",
		"close_cancelled turns",
		"stop_awaiting calls"}, func(b *bells) func() {
		return b.end(b.Waiting("a"), turnlog.EndCancel)
	}},

	{"a sub-agent is spawned", "", []string{"spawn_agents inbox"}, func(b *bells) func() {
		d := b.Turn("do it")
		d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
		entry := b.spawn(d)
		return func() { d.Write(b.t, entry) }
	}},
	{"a sub-agent ends", "", []string{"arrive_call inbox", "end_many inbox freed", "end_many turns"},
		func(b *bells) func() {
			b.spawned().Wait(b.t)
			child := b.Dispatch("worker-1")[0]
			return func() { child.Finish(b.t, "done") }
		}},
	{"a sub-agent ends while its parent's row is locked", "", []string{"end_many inbox freed", "end_many turns",
		"note_spawned_reply inbox"},
		func(b *bells) func() {
			b.spawned()
			child := b.Dispatch("worker-1")[0]
			return func() {
				tx, err := b.Pool().Begin(b.t.Context())
				b.fatal(err)
				defer func() { _ = tx.Rollback(context.Background()) }()
				_, err = tx.Exec(b.t.Context(), "select from turnkeeper.turns where id <> $1 for update",
					child.Grant.TurnID)
				b.fatal(err)
				child.Finish(b.t, "done")
			}
		}},
	{"the parent of a running sub-agent is cancelled", "", []string{
		"ask_end cancels", "close_cancelled inbox", "close_cancelled turns", "stop_awaiting cancels",
		"stop_awaiting inbox",
	}, func(b *bells) func() {
		d := b.spawned()
		d.Wait(b.t)
		b.Dispatch("worker-1")
		return b.end(d, turnlog.EndCancel)
	}},

	{"a model fails", "", []string{"end_many inbox", "end_many turns", "note_models again inbox"},
		func(b *bells) func() {
			d := b.Turn("x")
			return func() { b.failed(d) }
		}},
	{"a model is back", "", []string{"note_models inbox"}, func(b *bells) func() {
		b.failed(b.Turn("x"))
		return func() { b.Exec("select turnkeeper.note_models('{script/m}', '{0}')") }
	}},
	{"a model that was not down answers", "", nil, func(b *bells) func() {
		return func() { b.Exec("select turnkeeper.note_models('{script/m}', '{0}')") }
	}},
	{"a level changes", "", []string{"note_level inbox"}, func(b *bells) func() {
		b.Exec("update turnkeeper.agents set day_calls = 10, levels = '{\"low\": {}}' where name = 'clerk'")
		reserve := func(calls int64) {
			for range calls {
				_, err := b.ReserveSpend(b.t.Context(), grants.SpendRequest{Turn: 1, Agent: "clerk", DayCalls: 10})
				b.fatal(err)
			}
		}
		reserve(9)
		return func() { reserve(1) }
	}},
	{"a level is pinned", "operate.afterTick operate.PinLevel", []string{"go inbox"}, func(b *bells) func() {
		return func() {
			b.fatal(b.PinLevel(b.t.Context(), operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"}))
		}
	}},
	{"a pin ends", "operate.UnpinLevel", []string{"go inbox"}, func(b *bells) func() {
		b.fatal(b.PinLevel(b.t.Context(), operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"}))
		return func() { b.fatal(b.UnpinLevel(b.t.Context(), "clerk")) }
	}},

	{"a schedule is run now", "", []string{"run_schedule inbox"}, func(b *bells) func() {
		b.Register("clerk", false, nightly)
		return func() { _, _, err := b.RunSchedule(b.t.Context(), "clerk", "nightly"); b.fatal(err) }
	}},
	{"a schedule has other times", "operate.ringIfChanged operate.OverrideSchedule", []string{"go inbox"},
		func(b *bells) func() {
			b.Register("clerk", false, nightly)
			return func() { b.fatal(b.OverrideSchedule(b.t.Context(), "clerk", "nightly", "@hourly")) }
		}},
	{"a schedule is resumed", "operate.PauseSchedule", []string{"go inbox"}, func(b *bells) func() {
		b.Register("clerk", false, nightly)
		b.fatal(b.PauseSchedule(b.t.Context(), "clerk", "nightly", true, ""))
		return func() { b.fatal(b.PauseSchedule(b.t.Context(), "clerk", "nightly", false, "")) }
	}},
	{"a reply is to be delivered again", "operate.Redeliver operate.ringIfDue", []string{"go turns"},
		func(b *bells) func() {
			b.delivered()
			return func() { _, err := b.Redeliver(b.t.Context(), "shop", b.reply()); b.fatal(err) }
		}},
	{"dead deliveries are to be delivered again", "operate.RedeliverDead", []string{"go turns"}, func(b *bells) func() {
		b.delivered()
		b.Exec("update turnkeeper.webhook_deliveries set state = 'dead', due_at = null")
		return func() { _, err := b.RedeliverDead(b.t.Context(), "shop"); b.fatal(err) }
	}},
	{"a webhook is resumed", "operate.ResumeWebhook", []string{"go turns"}, func(b *bells) func() {
		b.delivered()
		b.fatal(b.PauseWebhook(b.t.Context(), "shop", "moving"))
		return func() { b.fatal(b.ResumeWebhook(b.t.Context(), "shop")) }
	}},
	{"agents are registered", "storage.registerAll", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.Register("clerk", true) }
	}},
	{"an agent is retired", "operate.RetireAgent", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.RetireAgent(b.t.Context(), "clerk")) }
	}},
	{"an agent is restored", "operate.RestoreAgent", []string{"go inbox"}, func(b *bells) func() {
		b.fatal(b.RetireAgent(b.t.Context(), "clerk"))
		return func() { b.fatal(b.RestoreAgent(b.t.Context(), "clerk")) }
	}},
	{"the scheduler is paused", "operate.PauseScheduler", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.PauseScheduler(b.t.Context(), "repairs")) }
	}},
	{"the scheduler is resumed", "operate.ResumeScheduler", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.ResumeScheduler(b.t.Context())) }
	}},
	{"a hold-off is ended", "operate.EndHold", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.EndHold(b.t.Context())) }
	}},
	{"the scheduler's intervals change", "operate.SetScheduler", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.SetScheduler(b.t.Context(), time.Minute, 9)) }
	}},
	{"a worker starts", "storage.RingInbox app.run", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.RingInbox(b.t.Context())) }
	}},
}
