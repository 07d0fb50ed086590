-- name: DetachCalls :exec
select turnkeeper.detach_calls(@turn::bigint, @rounds::integer[], @ordinals::integer[], @nonces::text[], @names::text[],
    @limits::interval[], @wait::interval);

-- name: Arrivals :many
-- The results that have arrived for a turn and are not in its journal yet.
select a.round, a.ordinal, a.nonce, a.state::text as state, a.preview, coalesce(a.duration_ms,
    0)::bigint as duration_ms, coalesce(a.output_id, '')::text as output_id,
    exists (select from turnkeeper.spawned_calls s where (s.turn_id, s.round, s.ordinal) = (a.turn_id, a.round,
        a.ordinal))::boolean as spawned
from turnkeeper.awaited_calls a
where a.turn_id = @turn_id and a.arrived_at is not null and a.closed_at is null
order by a.arrived_at, a.round, a.ordinal;

-- name: ClaimCall :one
-- Claims a detached call for one run, if the worker has its tool. A repeat after a
-- lost answer returns the existing claim.
with claimed as (
    update turnkeeper.detached_calls d set claim = @claim::text, worker_id = @worker::text,
        claimed_at = coalesce(d.claimed_at, clock_timestamp()),
        deadline = coalesce(d.claimed_at, clock_timestamp()) + d.time_limit
    from turnkeeper.calls c
    where d.turn_id = @turn_id and d.round = @round and d.ordinal = @ordinal and d.attempt = @attempt
      and d.ended_at is null and (d.claim is null or d.claim = @claim)
      and (c.turn_id, c.round, c.ordinal) = (d.turn_id, d.round, d.ordinal) and c.state = 'running'
          and c.name = any(@tools::text[])
    returning d.turn_id, d.round, d.ordinal, d.time_limit, clock_timestamp() - d.claimed_at as passed
)
select sqlc.embed(c), t.agent, t.user_name, t.conversation, t.created_at, m.trace_parent, claimed.time_limit,
    (extract(epoch from claimed.time_limit - greatest(claimed.passed, interval '0')) * 1000000)::bigint as left_us
from claimed
join turnkeeper.calls c on (c.turn_id, c.round, c.ordinal) = (claimed.turn_id, claimed.round, claimed.ordinal)
join turnkeeper.turns t on t.id = claimed.turn_id
join turnkeeper.messages m on m.id = t.message_id;

-- name: CallIsOpen :one
-- Whether an attempt of a detached call waits for a worker.
select exists (select from turnkeeper.detached_calls where turn_id = @turn_id and round = @round and ordinal = @ordinal
    and attempt = @attempt and claim is null and ended_at is null)::boolean as open;

-- name: ClaimsHeld :many
-- Those of the claims that are still valid.
select claim::text from turnkeeper.detached_calls where claim = any(@claims::text[]) and ended_at is null;

-- name: EndDetached :exec
select turnkeeper.end_detached(@turn::bigint, @round::integer, @ordinal::integer, @attempt::integer, @claim::text,
    @state::text, @preview::text, @duration::bigint, @output::text);

-- name: ClaimDelivered :one
-- Whether the result of the call was delivered under the claim.
select exists (select from turnkeeper.detached_calls where turn_id = @turn_id and round = @round and ordinal = @ordinal
    and claim = @claim::text and delivered)::boolean as delivered;

-- name: RunDetachedAgain :exec
select turnkeeper.run_detached_again(@turn::bigint, @round::integer, @ordinal::integer, @attempt::integer, @claim::text,
    @nonce::text, @lost::boolean, @wait::interval);

-- name: GiveUpClaims :execrows
-- Marks calls that this worker claimed and does not run as lost.
update turnkeeper.detached_calls set lost_at = clock_timestamp()
where worker_id = @worker::text and claim is not null and ended_at is null and lost_at is null
  and claimed_at <= statement_timestamp() - @older::interval and claim <> all(@running::text[]);

-- name: GiveBackCallJobs :execrows
-- Makes jobs of detached calls available again that this worker fetched but never got.
update turnkeeper.river_job j set state = 'available', attempt = greatest(j.attempt - 1, 0)
where j.state = 'running' and left(j.queue, 9) = 'detached_'
  and j.attempted_by[array_upper(j.attempted_by, 1)] = @worker::text
  and j.attempted_at <= statement_timestamp() - @older::interval
  and j.id <> all(@working::bigint[]);

-- name: LostCalls :many
-- Detached calls that will have no result by themselves: runs of workers that are silent
-- or gave them up, runs past their deadline, and unclaimed calls whose job is missing,
-- was fetched by a silent worker, or has waited until its deadline. A code says that the call's journal cannot be read.
with looked_at as (
    (select w.* from turnkeeper.detached_calls w where w.claim is null and w.ended_at is null
       and w.look_at <= statement_timestamp() order by w.look_at limit @max_rows)
    union all -- look_at was set before the clock was set back
    (select w.* from turnkeeper.detached_calls w where w.claim is null and w.ended_at is null
       and w.look_at > statement_timestamp() + interval '11 minutes' order by w.look_at limit @max_rows)
), fetched as materialized ( -- few rows, read first because many calls may wait
    select r.id, r.args, r.attempted_by, r.attempted_at from turnkeeper.river_job r
    where r.state = 'running' and left(r.queue, 9) = 'detached_'
), lost as (
    select d.turn_id, d.round, d.ordinal,
        case when d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at),
            h.takeover_after) then 'lost' else 'overdue' end as failure
    from turnkeeper.detached_calls d
    left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
    where d.claim is not null and d.ended_at is null
      and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at),
          h.takeover_after)
           or turnkeeper.run_overdue(d.claimed_at, d.deadline, d.time_limit, h.beat_at))
    union all
    select d.turn_id, d.round, d.ordinal, case when d.deadline <= statement_timestamp() then 'unclaimed'
        else 'job_missing' end
    from looked_at d
    left join turnkeeper.river_job j on j.id = d.job_id
    where d.deadline <= statement_timestamp() or coalesce(j.state::text, '') not in ('available', 'scheduled',
        'running', 'retryable', 'pending')
    union all
    select d.turn_id, d.round, d.ordinal, 'job_missing'
    from fetched j
    join turnkeeper.detached_calls d on d.turn_id = (j.args ->> 'turn_id')::bigint
        and d.round = (j.args ->> 'round')::integer
        and d.ordinal = (j.args ->> 'ordinal')::integer and d.job_id = j.id and d.claim is null and d.ended_at is null
    left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
    where d.deadline > statement_timestamp()
      and (turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
          or turnkeeper.fetch_overlooked(j.attempted_at))
)
select d.turn_id, d.round, d.ordinal, d.attempt, d.losses, d.time_limit, d.job_id, coalesce(d.worker_id,
    '')::text as worker_id,
    c.name::text as name, c.effect::text as effect, c.output_id::text as output_id, lost.failure::text as failure,
    c.code::text as code, c.error::text as error,
    (d.lost_at is null and h.stopped_at is null and coalesce(turnkeeper.worker_present(d.worker_id),
        false))::boolean as alive
from lost
join turnkeeper.detached_calls d on (d.turn_id, d.round, d.ordinal) = (lost.turn_id, lost.round, lost.ordinal)
cross join lateral turnkeeper.call_if_readable(lost.turn_id, lost.round, lost.ordinal) c
join turnkeeper.turns t on t.id = lost.turn_id
left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
where d.ended_at is null and t.ended_at is null and not turnkeeper.is_aside('call', format('%s/%s/%s', d.turn_id,
    d.round, d.ordinal))
limit @max_rows
for update of t, d skip locked;

-- name: LookAgainAtCalls :exec
-- Sets the next look_at of unclaimed calls that LostCalls has checked and whose job
-- exists. By ctid, so that no plan reads all of them.
update turnkeeper.detached_calls set look_at = least(clock_timestamp() + interval '10 minutes', greatest(deadline,
    clock_timestamp() + interval '1 second'))
where claim is null and ended_at is null
  and ctid = any(array(select looked_at.ctid from (
    (select w.ctid from turnkeeper.detached_calls w where w.claim is null and w.ended_at is null
       and w.look_at <= statement_timestamp() order by w.look_at limit @max_rows)
    union all
    (select w.ctid from turnkeeper.detached_calls w where w.claim is null and w.ended_at is null
       and w.look_at > statement_timestamp() + interval '11 minutes' order by w.look_at limit @max_rows)
) looked_at));

-- name: AwaitedOfTurn :many
select a.round, a.ordinal, c.name, a.opened_at, a.arrived_at, d.deadline, d.attempt, coalesce(d.worker_id,
    '')::text as worker_id, d.claimed_at
from turnkeeper.awaited_calls a
join turnkeeper.calls c on (c.turn_id, c.round, c.ordinal) = (a.turn_id, a.round, a.ordinal)
left join turnkeeper.detached_calls d on (d.turn_id, d.round, d.ordinal) = (a.turn_id, a.round, a.ordinal)
where a.turn_id = @turn_id and a.closed_at is null
order by a.round, a.ordinal;
