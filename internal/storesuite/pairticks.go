package storesuite

import (
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

func (c *side) scheduler() scheduler.Store { return c.Scheduler() }

func tickOnceOp(c *side) {
	c.beat(first, second)
	tickSilentOp(c)
}

func tickSilentOp(c *side) {
	report, err := scheduler.New(scheduler.Config{Store: c.scheduler()}).Tick(c.Context())
	c.says("%s, %d granted", c.outcome(err), report.Granted)
	c.add("report", report)
}

// A slots is the worker of a scheduler's own process. It has free slots for some turns.
type slots struct {
	*side
	free   int
	handed []granting.Handed
}

func (s *slots) Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID) {
	var ids []turnkeeper.GrantID
	for range min(n, s.free) {
		s.grants++
		ids = append(ids, turnkeeper.GrantID(fmt.Sprintf("11111111-0000-4000-8000-%012d", s.grants)))
	}
	return first, ids
}
func (s *slots) Start(turns []granting.Handed) { s.handed = append(s.handed, turns...) }
func (s *slots) Release([]turnkeeper.GrantID)  {}

// tickLocalOp ticks with a worker in the same process, which gets turns without a queue.
func tickLocalOp(c *side) {
	c.beat(first, second)
	local := &slots{side: c, free: pick(c, 1, 3)}
	report, err := scheduler.New(scheduler.Config{Store: c.scheduler(), Local: local}).Tick(c.Context())
	c.add("report", report)
	c.says("%s, %d granted", c.outcome(err), report.Granted)
	var ids []turnkeeper.GrantID
	for _, h := range local.handed {
		ids = append(ids, h.GrantID)
		record, err := h.Load(c.Context())
		c.add("loading", err)
		if err == nil {
			c.hold(record, Job{TurnID: h.TurnID, GrantID: h.GrantID}, first)
			c.says("handed over %s", c.name(h.TurnID))
		}
	}
	again, err := c.scheduler().Handed(c.Context(), first, ids)
	c.add("handed", len(again))
	c.add("handed error", err)
}

// hold keeps a loaded turn, to write to it.
func (c *side) hold(record *turnlog.Record, job Job, worker turnkeeper.WorkerID) {
	turn := record.Turn
	grant := turnkeeper.Grant{TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: job.GrantID, JobID: job.ID,
		WorkerID: worker}
	c.held = slices.Insert(c.held, 0, &dispatch{c.Journal(record, grant), c.env, record, grant})
	c.readRecord(record)
}

func takeAllOp(c *side) {
	worker := pick(c, first, second)
	c.jobs = append(c.Fetch(worker), c.jobs...)
	slices.SortFunc(c.jobs, func(a, b Job) int { return int(a.TurnID - b.TurnID) })
	for _, job := range c.jobs {
		bound, err := c.BindGrant(c.Context(), job.TurnID, job.GrantID, worker)
		c.says("%s: %s, %v", c.name(job.TurnID), c.outcome(err), bound)
		if err != nil {
			continue
		}
		record, err := c.Load(c.Context(), job.TurnID, job.GrantID)
		c.add("loading", err)
		if err == nil {
			c.hold(record, job, worker)
		}
	}
	c.last, c.jobs = c.jobs, nil
}

// serveOp ticks, and takes what is granted.
func serveOp(c *side) {
	tickOnceOp(c)
	takeAllOp(c)
}

// forgetOp queues the last fetched jobs again.
func forgetOp(c *side) {
	for _, job := range c.last {
		c.ForgetFetch(job.ID)
		c.says("%s", c.name(job.TurnID))
	}
	c.last = nil
}

// runCallsOp fetches and claims what is detached.
func runCallsOp(c *side) {
	worker := pick(c, first, second)
	tools := pick(c, toolNames, toolNames, []string{"another"})
	refs := c.FetchCalls(worker)
	slices.SortFunc(refs, func(a, b turnlog.CallRef) int { return int(a.TurnID-b.TurnID)*1000 + a.Key.Compare(b.Key) })
	for _, ref := range refs {
		claimed, err := c.Claim(c.Context(), ref, worker, tools)
		c.says("%s %s: %s", c.name(ref.TurnID), ref.Key, c.outcome(err))
		if err == nil {
			c.add("claimed", claimed)
			c.claims = slices.Insert(c.claims, 0, claimed)
		}
	}
}

// endCallsOp ends a claimed call, and checks which claims hold.
func endCallsOp(c *side) {
	if len(c.claims) == 0 {
		return
	}
	ids := make([]turnlog.ClaimID, len(c.claims))
	for i, claim := range c.claims {
		ids[i] = claim.Claim
	}
	held, err := c.ClaimsHeld(c.Context(), ids)
	for i, id := range ids {
		c.add(fmt.Sprint("claim ", i, " holds"), slices.Contains(held, id))
	}
	c.add("claims error", err)
	claim := c.claims[c.choose(min(3, len(c.claims)))]
	what := pick(c, "arrives", "arrives with a label", "fails", "is released", "arrives, the answer is lost")
	r := completed(claim, "text "+c.tag())
	r.Duration, r.Usage = 20*time.Minute, turnkeeper.Usage{InputTokens: 3, OutputTokens: 4}
	switch what {
	case "is released":
		err = c.Release(c.Context(), claim)
	case "fails":
		r.State = turnkeeper.CallFailed
		err = c.Arrive(c.Context(), claim, r)
	case "arrives with a label":
		err = c.Arrive(c.Context(), claim, labelled(with(r, turnkeeper.OutputID("dot "+c.tag())), untrusted))
	case "arrives, the answer is lost":
		c.CutNext(true)
		err = c.Arrive(c.Context(), claim, r)
	default:
		err = c.Arrive(c.Context(), claim, r)
	}
	c.says("%s %s %s: %s", c.name(claim.Ref.TurnID), claim.Ref.Key, what, c.outcome(err))
	if c.choose(4) > 0 {
		c.claims = slices.DeleteFunc(c.claims, func(other turnlog.ClaimedCall) bool {
			return other.Claim == claim.Claim
		})
	}
}
