-- name: LockTick :one
-- Takes the scheduler's lock if it is free. It is a statement of its own, the first of a tick: what the next one reads
-- is what the tick before has left, and knows of what was changed before AwaitTick.
select turnkeeper.try_scheduler_lock()::boolean;

-- name: Snapshot :one
-- Returns what the tick has to do. Unless everything is set, it looks only for what can be granted, and not at messages
-- whose rank is before waiting_from (see oldest_waiting), nor at leases that end before held_from: while a transaction
-- is open, the indexes keep an entry of each that was there since it began. For the same reason it reads the leases
-- only once. The flags are hints: the statements that act on them check again. All transactions
-- with an id before first_open have ended, and those with a higher one than own_id (0: unknown) begin to write later.
select clock_timestamp()::timestamptz as now,
    case when pg_is_in_recovery() then '' else substr(pg_walfile_name(pg_current_wal_lsn()), 1,
        8) end::text as current_timeline,
    poll_interval, max_dispatches_per_tick, (paused_at is not null)::boolean as paused,
    coalesce(timeline, '')::text as timeline, last_tick_at, hold_until, coalesce(hold_reason, '')::text as hold_reason,
    coalesce(server_started <> pg_postmaster_start_time(), false)::boolean as restarted,
    held.lost,
    held.newest_grant, held.first_end as held_from, held.agents::text[] as running,
    (@everything and exists (select from turnkeeper.schedules s where s.active and s.paused_at is null
            and (s.next_due is null or s.next_due <= statement_timestamp())
            and not exists (select from turnkeeper.agents a
                where a.name = s.agent and a.retired_at is not null)))::boolean as due_schedules,
    (@everything and turnkeeper.calls_lost())::boolean as calls,
    (exists (select from turnkeeper.spawned_calls where ended_at is not null and notified_at is null)
     or exists (select from turnkeeper.spawned_calls where ended_at is null and notified_at is null
         and deadline <= statement_timestamp())
     or exists (select from turnkeeper.spawned_calls where dropped_at is not null and ended_at is null)
     or exists (select from turnkeeper.waiting where dropped_at is not null))::boolean as spawns,
    exists (select from turnkeeper.turns where state = 'queued')::boolean as queued,
    (exists (select from turnkeeper.asks a where a.state = 'open' and a.expires_at <= statement_timestamp())
     or exists (select from turnkeeper.turns t where t.waits_for is not null
         and t.due_at <= statement_timestamp()))::boolean as asks,
    exists (select from turnkeeper.turns t where t.home_lane is not null and t.ended_at is null
        and t.held)::boolean as held,
    exists (select from turnkeeper.agents a where a.holds_below is not null
            or a.levels <> '{}' and a.levels @? '$.*.min_priority'
                and turnkeeper.least_priority(a) is not null)::boolean as levels,
    exists (select from turnkeeper.agents where lanes_changed_at is not null
            and (lanes_moved_at is null or @everything and abs(extract(epoch
                from statement_timestamp() - lanes_moved_at)) >= 1))::boolean as lanes,
    inbox.due as waiting, inbox.oldest as waiting_from,
    (@everything and coalesce((select m.rank from turnkeeper.waiting m
        where not m.held and m.queue_rank is null order by m.rank, m.id limit 1) < inbox.oldest, false))::boolean
        as passed_some,
    (select count(*) from turnkeeper.set_aside)::bigint as aside,
    exists (select from turnkeeper.set_aside where next_try <= statement_timestamp() and kind not in ('delivery',
        'purge', 'agent'))::boolean as retry,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as first_open,
    (case when @everything and not pg_is_in_recovery() then pg_current_xact_id()::text else '0' end)::bigint as own_id,
    (coalesce((select sum(slots) from turnkeeper.worker_heartbeat
               where stopped_at is null
                 and not turnkeeper.heartbeat_overdue(beat_at, greatest(takeover_after, interval '15 s'))),
                     0) - held.number)::bigint as free_slots,
    (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000)::bigint as took_us
from turnkeeper.settings,
    lateral (select coalesce(array_agg(h.worker_id), '{}') as ids from turnkeeper.worker_heartbeat h
        where @everything::boolean and turnkeeper.heartbeat_overdue(greatest(h.beat_at, settings.silence_from),
            h.takeover_after)) silent,
    lateral (select count(*) filter (where not k.aside) as number, coalesce(max(l.granted_at),
        to_timestamp(0))::timestamptz as newest_grant,
        coalesce(min(l.lease_until), to_timestamp(0))::timestamptz as first_end,
        coalesce(array_agg(l.agent) filter (where not k.aside), '{}') as agents,
        -- A grant is lost if its lease is over, or its worker is silent. The worker that it is bound to counts, even if
        -- River has since given the job to another one.
        coalesce(bool_or(@everything and (turnkeeper.lease_over(l.granted_at, l.lease_until) or (
            select coalesce(t.worker_id, j.attempted_by[array_upper(j.attempted_by, 1)]) = any(silent.ids)
                or j.state = 'available' and turnkeeper.owner_gone(j.queue)
            from turnkeeper.turns t left join turnkeeper.river_job j on j.id = t.job_id and t.worker_id is null
                where t.id = l.turn_id))), false)::boolean as lost
     from turnkeeper.leases l, lateral (select (select s.id from turnkeeper.set_aside s
         where s.kind = 'turn' and s.id = l.turn_id::text
             and s.next_try > statement_timestamp()) is not null as aside offset 0) k
     where l.grant_id is not null and l.lease_until >= @held_from::timestamptz) held,
    (select count(*) filter (where w.due) + case when bool_or(w.id is null) then @max_rows::integer else 0 end as due,
        coalesce(min(w.rank) filter (where w.queue_rank is null), statement_timestamp())::timestamptz as oldest
     from turnkeeper.oldest_waiting(@max_rows::integer, @waiting_from::timestamptz, '{}', @max_passed::integer)
         as w (lane, id, rank, queue_rank, due)) inbox;

-- name: NoteTick :exec
update turnkeeper.settings set last_tick_at = @now::timestamptz, timeline = @timeline::text,
    server_started = coalesce(server_started, pg_postmaster_start_time());

-- name: CountSilence :exec
update turnkeeper.settings set silence_from = @since::timestamptz, server_started = pg_postmaster_start_time();

-- name: HoldOff :exec
update turnkeeper.settings set hold_until = @until::timestamptz, hold_reason = @reason::text;

-- name: EndHold :exec
-- Ends the hold-off and all back-offs. The hold-off was longer than they are, and after
-- the clock was set back they would last that much longer.
with held as (
    update turnkeeper.settings set hold_until = null, hold_reason = null where hold_until is not null returning true
), ranks as (
    update turnkeeper.waiting set queue_rank = rank
    where queue_rank > clock_timestamp() and exists (select from held)
)
update turnkeeper.leases set not_before = null where not_before is not null and exists (select from held);

-- name: LostGrants :many
-- A grant is lost if its lease has expired, if its worker has been silent for takeover_after, or if its
-- job waits in the queue of a single worker that has stopped or is silent. Its worker is the one bound
-- to it or, if none is, the one that fetched the job from River, which may never bind it.
select l.lane, l.turn_id::bigint as turn_id, l.grant_id::uuid as grant_id, l.granted_at::timestamptz as granted_at,
    coalesce(t.job_id, 0)::bigint as job_id, t.dispatches, (select w.inference_rounds
        from turnkeeper.newest_write(t.id) w)::integer as inference_rounds, t.trigger, t.message_id,
    coalesce(t.worker_id, j.attempted_by[array_upper(j.attempted_by, 1)], '')::text as worker_id,
    turnkeeper.lease_over(l.granted_at, l.lease_until)::boolean as lapsed
from turnkeeper.leases l
join turnkeeper.turns t on t.id = l.turn_id
left join turnkeeper.river_job j on j.id = t.job_id
left join turnkeeper.worker_heartbeat h on h.worker_id = coalesce(t.worker_id,
    j.attempted_by[array_upper(j.attempted_by, 1)])
where l.grant_id is not null and (select s.id from turnkeeper.set_aside s
    where s.kind = 'turn' and s.id = l.turn_id::text and s.next_try > statement_timestamp()) is null
  and (turnkeeper.lease_over(l.granted_at, l.lease_until)
       or turnkeeper.heartbeat_overdue(turnkeeper.silent_from(h.beat_at), h.takeover_after)
       or t.worker_id is null and j.state = 'available' and turnkeeper.owner_gone(j.queue))
order by l.granted_at, l.turn_id -- turns of one tick have the same time; a parent is older than its sub-agents
limit @max_rows
for update of l, t skip locked;

-- name: Losses :many
-- What decides whether losses count: those of the grants that the turns hold, with the workers that hold
-- them, and the earlier ones of the turns' messages. See granting.Loss.
with lost as (
    select t.id as turn_id, true as held, h.worker_id, t.granted_at, t.lease_until, statement_timestamp() as lost_at
    from (select unnest(@turns::bigint[]) as turn_id, unnest(@workers::text[]) as worker_id) h
    join turnkeeper.turns t on t.id = h.turn_id
    union all
    select t.id, false, e.worker_id, e.granted_at, e.lease_until, e.ended_at
    from turnkeeper.turns t cross join lateral (
        select e.* from turnkeeper.turns p join turnkeeper.ended_grants e on e.turn_id = p.id
        where p.message_id = t.message_id offset 0) e -- so that no plan reads the losses of all messages
    where t.id = any(@turns) and e.outcome = 'lost'
), workers as materialized ( -- one row a worker, because worker_present reads all locks
    select l.worker_id, w.beat_at, w.stopped_at, turnkeeper.worker_present(l.worker_id) as present
    from (select distinct worker_id from lost) l
    left join turnkeeper.worker_heartbeat w on w.worker_id = l.worker_id
)
select lost.turn_id, lost.held, lost.granted_at::timestamptz as granted_at,
    lost.lease_until::timestamptz as lease_until, lost.lost_at::timestamptz as lost_at, w.beat_at, w.stopped_at,
    s.silence_from, coalesce(w.present, false)::boolean as present, statement_timestamp()::timestamptz as now
from lost
cross join turnkeeper.settings s
left join workers w on w.worker_id = lost.worker_id;

-- name: CancelAsked :one
-- Whether a turn has a request to cancel it.
select exists (select from turnkeeper.requested_ends where turn_id = @turn::bigint
    and how = 'cancel')::boolean as asked;

-- name: DueSchedules :many
select agent, name, coalesce(cron_override, cron)::text as cron, time_zone, conversation, message, next_due, last_slot,
    coalesce((select turnkeeper.level_of(a.name) from turnkeeper.agents a where a.name = s.agent
        and (turnkeeper.level_effect(a) ->> 'no_schedules')::boolean), '')::text as level
from turnkeeper.schedules s
where active and paused_at is null and (next_due is null or next_due <= statement_timestamp())
  and not exists (select from turnkeeper.agents a where a.name = s.agent and a.retired_at is not null)
  and not turnkeeper.is_aside('schedule', s.agent || '/' || s.name)
order by next_due nulls first, agent, name
limit @max_rows
for update;

-- name: Fire :exec
-- Inserts the message of a slot, unless a message of the schedule still waits, because
-- its lane or its conversation is held or no slot is free: that message is the run for both.
insert into turnkeeper.messages (agent, user_name, conversation, lane, body, trigger, schedule, slot, due_at, sent_by)
select @agent::text, '', @conversation::text, l.lane, @body::text, 'schedule', @schedule::text, @slot::timestamptz,
    date_trunc('second', @slot::timestamptz), 'schedule:' || @schedule
from turnkeeper.agents a,
    lateral (select turnkeeper.lane_of(a.name, '', @conversation, a.lane_per_conversation) as lane) l
where a.name = @agent and a.retired_at is null and not exists (select from turnkeeper.waiting w
    where w.lane in (l.lane, turnkeeper.held_lane(a.name, '', @conversation), turnkeeper.level_lane(a.name))
        and w.agent = a.name and w.schedule = @schedule)
on conflict (agent, schedule, slot) where slot is not null do nothing;

-- name: AdvanceSchedule :exec
-- skipped_slot is a slot that does not run, and last_slot one that does.
update turnkeeper.schedules set next_due = sqlc.narg(next_due), last_slot = coalesce(sqlc.narg(last_slot), last_slot),
    skipped_slot = case when sqlc.narg(last_slot)::timestamptz is null then coalesce(sqlc.narg(skipped_slot),
        skipped_slot) end,
    skipped_why = case when sqlc.narg(last_slot)::timestamptz is null then coalesce(sqlc.narg(skipped_why),
        skipped_why) end,
    skipped = case when sqlc.narg(last_slot)::timestamptz is null
        then skipped + (sqlc.narg(skipped_slot)::timestamptz is not null)::integer else 0 end,
    last_error = sqlc.narg(last_error), active = active and sqlc.narg(next_due)::timestamptz is not null
where agent = @agent and name = @name;

-- name: MoveLanes :exec
select turnkeeper.move_lanes(@apart::boolean);

-- name: ReadyTurns :many
-- Queued turns that may be granted: handed back, reclaimed, deferred. A turn that was
-- handed back for a newer worker is offered at once, by name, to each live worker that
-- has not handed it back yet, the newest first. If there is none, it waits until due_at,
-- like a deferred one. A turn that was parked to wait for a person goes back to its lane once that has no open turn,
-- no waiting message there is ahead of it, and no rival of it is open after the agent's lanes were changed.
with t as materialized (
    select id, message_id, agent, user_name, conversation, coalesce(home_lane, lane) as lane, home_lane, trigger,
        attempt, definition_hash, due_at, error_class
    from turnkeeper.turns where state = 'queued'
)
select t.id, t.message_id, t.agent, t.user_name, t.conversation, t.lane, t.trigger, t.attempt, t.definition_hash,
    coalesce(m.queue_rank, m.rank)::timestamptz as rank, coalesce(a.max_running, 0)::integer as max_running,
    coalesce(other.worker_id, '')::text as worker_id,
    (a.give_up_after is not null and turnkeeper.service_wait(m.id) >= a.give_up_after)::boolean as overdue
from t
-- that of a parked turn may have been deleted
left join lateral (select * from turnkeeper.leases k where k.lane = t.lane offset 0) l on true
-- offset 0 makes Postgres look up each row by its key, whatever its statistics are
cross join lateral (select * from turnkeeper.messages q where q.id = t.message_id offset 0) m
left join turnkeeper.agents a on a.name = t.agent
left join lateral (
    select h.worker_id from turnkeeper.worker_heartbeat h
    where h.stopped_at is null and h.slots > 0 and not turnkeeper.heartbeat_overdue(h.beat_at,
        greatest(h.takeover_after,
        interval '15 s'))
      and not exists (select from turnkeeper.ended_grants g where g.turn_id = t.id and g.worker_id = h.worker_id
          and g.outcome = 'handed_back')
    order by h.started_at desc limit 1
) other on t.error_class = @left_to_newer::text
where (t.due_at is null or t.due_at <= statement_timestamp() or other.worker_id is not null)
  and (select s.id from turnkeeper.set_aside s where s.kind = 'turn' and s.id = t.id::text
      and s.next_try > statement_timestamp()) is null
  and l.grant_id is null and turnkeeper.lane_pauses(l.not_before) is not true
  and (t.home_lane is null or not exists (select from turnkeeper.turns o where o.lane = t.home_lane
      and o.ended_at is null)
       and not turnkeeper.waits_behind(t.home_lane, m.rank, m.id)
       and (a.lanes_changed_at is null or not turnkeeper.waits_behind(turnkeeper.lane_now((select q
           from turnkeeper.messages q where q.id = m.id), t.home_lane), m.rank, m.id) and not exists (
            select from turnkeeper.lane_rivals(m.id, t.agent, t.user_name, t.conversation, t.home_lane,
                a.lane_per_conversation))))
  and (t.agent <> all(@held::text[]) or turnkeeper.service_wait(m.id) >= a.give_up_after)
  and t.agent <> all(@full_agents::text[])
order by coalesce(m.queue_rank, m.rank), m.id
limit @max_rows;

-- name: ReadyMessages :many
-- The heads of free lanes that may be granted, in the order of grants: the lowest queue rank first. It looks among the
-- oldest waiting messages: the first of a lane there is its head unless another one, which is not among them, is ahead
-- of it, with a rank from ordered_from on. It must be cheap, because every tick runs it: it looks at no more heads than
-- it returns, apart from those of busy lanes. With every_lane, it goes from lane to lane by a loose index scan instead,
-- for when most of the oldest messages are in few or busy lanes. So no tick reads through a long queue of one lane. It
-- leaves out the work of held agents unless it has waited for a service for give_up_after, that of full agents, and
-- that of retired agents unless it is a sub-agent's. Messages of passed agents do not count among the oldest.
with recursive near as materialized (
    select distinct on (w.lane) w.lane, w.id, w.rank, coalesce(w.queue_rank, w.rank) as place
    from turnkeeper.oldest_waiting(case when @every_lane::boolean then 0 else @max_waiting::integer end,
        @waiting_from::timestamptz, @passed_agents::text[], @max_passed::integer)
        as w (lane, id, rank, queue_rank, due)
    where w.due
    order by w.lane, w.rank, w.id
), jumps as (
    (select m.lane, m.id, m.rank, coalesce(m.queue_rank, m.rank) as place, turnkeeper.is_due(m.due_at,
        m.accepted_at) as due
     from turnkeeper.waiting m where @every_lane::boolean order by m.lane, m.rank, m.id limit 1)
    union all
    select n.lane, n.id, n.rank, n.place, n.due
    from jumps, lateral (select m.lane, m.id, m.rank, coalesce(m.queue_rank, m.rank) as place,
            turnkeeper.is_due(m.due_at, m.accepted_at) as due
        from turnkeeper.waiting m where m.lane > jumps.lane order by m.lane, m.rank, m.id limit 1) n
), heads as (
    select near.lane, near.id, near.rank, near.place from near
    union all
    select jumps.lane, jumps.id, jumps.rank, jumps.place from jumps where jumps.due
    union all
    select d.lane, d.id, d.rank, d.place -- behind one with a higher priority that is not due yet
    from jumps, lateral (select m.lane, m.id, m.rank, coalesce(m.queue_rank, m.rank) as place from turnkeeper.waiting m
        where m.lane = jumps.lane and m.rank <= turnkeeper.last_rank(statement_timestamp())
          and turnkeeper.is_due(m.due_at, m.accepted_at)
        order by m.rank, m.id limit 1) d
    where not jumps.due
)
select m.id as message_id, m.agent, m.user_name, m.conversation, m.lane, m.trigger, m.attempts + 1 as attempt,
    a.definition_hash,
    head.place::timestamptz as rank, coalesce(a.max_running, 0)::integer as max_running,
    case when exists (select from turnkeeper.model_health where down_since is not null) -- else it does not matter
        then coalesce(turnkeeper.service_wait(m.id) >= a.give_up_after, false) else false end::boolean as overdue
from (select heads.* from heads order by heads.place, heads.id) head,
    -- offset 0: look each up by its key, whatever the statistics say
    lateral (select * from turnkeeper.messages q where q.id = head.id
        and (q.xmax = 0 or not turnkeeper.being_changed(q.xmax)) offset 0) m,
    lateral (select * from turnkeeper.agents b where b.name = m.agent offset 0) a
where (select s.id from turnkeeper.set_aside s where s.kind = 'message' and s.id = m.id::text
    and s.next_try > statement_timestamp()) is null
  and (a.holds_below is null or m.priority >= a.holds_below or (select c.message_id from turnkeeper.spawned_calls c
      where c.message_id = m.id) is not null)
  and (a.retired_at is null or (select c.message_id from turnkeeper.spawned_calls c
      where c.message_id = m.id) is not null)
  and (m.agent <> all(@held::text[]) or turnkeeper.service_wait(m.id) >= a.give_up_after)
  and m.agent <> all(@full_agents::text[])
  and (select l.grant_id is not null or turnkeeper.lane_pauses(l.not_before) from turnkeeper.leases l
      where l.lane = head.lane) is not true
  -- one by one: many turns may wait
  and (select t.id from turnkeeper.turns t where t.lane = head.lane and t.ended_at is null) is null
  and not turnkeeper.parked_turn_blocks(m.agent, m.user_name, m.conversation, m.lane, m.rank, m.id)
  and (a.lanes_changed_at is null or not turnkeeper.lane_waits(m.id, m.agent, m.user_name, m.conversation, m.lane,
      a.lane_per_conversation))
  and (@every_lane::boolean or not turnkeeper.waits_behind(head.lane, head.rank, head.id, @ordered_from))
order by head.place, head.id
limit @max_heads::integer;

-- name: NextDue :one
-- Seconds until something becomes due that was not due when the tick looked; at most an hour. Zero or less if something
-- has become due since, which the tick may not have seen. Leases that end before held_from are left out, as in
-- Snapshot.
select extract(epoch from coalesce(least(
    (select min(next_due) from turnkeeper.schedules where active and paused_at is null
        and next_due > @since::timestamptz),
    (select min(m.rank) from turnkeeper.waiting m where not m.held and m.queue_rank is null
        and m.rank > @since::timestamptz),
    (select min(m.due_at) from turnkeeper.waiting m where not m.held and m.queue_rank is not null
        and m.due_at > @since::timestamptz),
    (select min(not_before) from turnkeeper.leases where grant_id is null and not_before > @since::timestamptz),
    (select min(t.due_at) from turnkeeper.turns t where t.state = 'queued' and t.due_at > @since::timestamptz),
    (select min(t.due_at) from turnkeeper.turns t where t.waits_for is not null and t.due_at > @since::timestamptz),
    (select min(a.expires_at) from turnkeeper.asks a where a.state = 'open' and a.expires_at > @since::timestamptz),
    (select min(s.next_try) from turnkeeper.set_aside s where s.kind not in ('delivery', 'purge', 'agent', 'step',
        'tick') and s.next_try > @since::timestamptz),
    (select turnkeeper.next_day() from turnkeeper.agents a where a.holds_below is not null limit 1),
    (select min(p.until) from turnkeeper.pinned_levels p where p.until > @since::timestamptz),
    (select min(h.until) from turnkeeper.model_health h where h.down_since is not null
        and h.until > @since::timestamptz),
    (select min(lease_until) from turnkeeper.leases where grant_id is not null
        and lease_until > greatest(@since::timestamptz, @held_from::timestamptz)),
    (select min(turnkeeper.silent_from(beat_at) + takeover_after) from turnkeeper.worker_heartbeat
     where stopped_at is null and takeover_after > interval '0'
         and turnkeeper.silent_from(beat_at) + takeover_after > @since::timestamptz)
), statement_timestamp() + interval '1 hour') - statement_timestamp())::float8 as seconds;

-- name: Grant :exec
-- Grants turns in one statement: next token, new grant id, turn, message, and the
-- River job with its notification, as River's client would insert it. It fails if a lane
-- is no longer free. A turn that is handed over starts in the scheduler's own process: its
-- grant is bound to that worker, and it has no job.
-- It leaves out messages that their sender has dropped or has locked to change them: a tick must not wait for a sender.
with ready as materialized (
    select m.id from turnkeeper.messages m
    where m.id = any(@message_ids::bigint[]) and m.state = 'waiting' and m.dropped_at is null for update skip locked
), input as (
    select i.*, case when i.handed_to is null then nextval('turnkeeper.river_job_id_seq') end as job_id,
        case when i.is_new then nextval('turnkeeper.turns_id_seq') else i.old_turn_id end as turn_id
    from (select unnest(@lanes::text[]) as lane, unnest(@agents::text[]) as agent,
        unnest(@grant_ids::uuid[]) as grant_id,
        unnest(@turn_ids::bigint[]) as old_turn_id, unnest(@message_ids::bigint[]) as message_id,
        unnest(@attempts::integer[]) as attempt, unnest(@user_names::text[]) as user_name,
        unnest(@conversations::text[]) as conversation,
        unnest(@triggers::text[]) as trigger, unnest(@definition_hashes::text[]) as definition_hash,
        unnest(@is_new::boolean[]) as is_new, unnest(@queues::text[]) as queue,
        nullif(unnest(@handed_to::text[]), '') as handed_to) i
    where not i.is_new or i.message_id in (select id from ready)
), clock as (
    select clock_timestamp() as at
), granted as (
    insert into turnkeeper.leases as l (lane, agent, grant_id, turn_id, granted_at, lease_until)
    select i.lane, i.agent, i.grant_id, i.turn_id, clock.at, clock.at + @ttl::interval
        from input i, clock
    on conflict (lane) do update set token = excluded.token, grant_id = excluded.grant_id, turn_id = excluded.turn_id,
        granted_at = excluded.granted_at, lease_until = excluded.lease_until
    where l.grant_id is null
    returning l.lane, l.token, l.granted_at, l.lease_until
), new_turns as (
    insert into turnkeeper.turns (id, message_id, attempt, agent, user_name, conversation, lane, trigger,
        definition_hash,
        state, token, grant_id, job_id, worker_id, dispatches, losses, granted_at, lease_until)
    select i.turn_id, i.message_id, i.attempt, i.agent, i.user_name, i.conversation, i.lane, i.trigger,
        i.definition_hash,
        -- losses count per message
        'running', g.token, i.grant_id, i.job_id, i.handed_to, 1, case when i.attempt > 1 then coalesce((
            select p.losses from turnkeeper.turns p where p.message_id = i.message_id and p.attempt = i.attempt - 1),
                0) else 0 end,
        g.granted_at, g.lease_until
    from input i join granted g on g.lane = i.lane where i.is_new
), old_turns as (
    update turnkeeper.turns t set state = 'running', token = g.token, grant_id = i.grant_id, job_id = i.job_id,
        dispatches = t.dispatches + 1, granted_at = g.granted_at, lease_until = g.lease_until, due_at = null,
            worker_id = i.handed_to
    from input i join granted g on g.lane = i.lane
    where t.id = i.turn_id and t.state = 'queued' and not i.is_new
), messages as (
    update turnkeeper.messages m set state = 'running', attempts = m.attempts + 1, turn_id = i.turn_id
    from input i join granted g on g.lane = i.lane
    -- any() only repeats the join, so that the plan looks up keys
    where m.id = i.message_id and m.id = any(@message_ids::bigint[]) and i.is_new
), jobs as (
    -- scheduled_at is in the past: with River's default, the start of this transaction, the job would be delayed if the
    -- clock is set back.
    insert into turnkeeper.river_job (id, args, kind, max_attempts, priority, queue, scheduled_at, tags)
    select i.job_id, jsonb_build_object('turn_id', i.turn_id, 'grant_id', i.grant_id), @kind::text, 1, 1, i.queue,
        '2000-01-01', '{}'
    from input i join granted g on g.lane = i.lane where i.handed_to is null
), bell as (
    select count(pg_notify('turnkeeper.river_insert', jsonb_build_object('queue', q.queue)::text))
    from (select distinct i.queue from input i where i.handed_to is null) q
)
select turnkeeper.check_granted((select count(*) from granted), (select count(*)::integer from input)) from bell;

-- name: AwaitTick :exec
-- Returns when no tick is in progress.
select turnkeeper.share_scheduler_lock();

-- name: TurnsOfGrants :many
-- The turns of those of the grants that are held.
select l.turn_id::bigint from turnkeeper.leases l where l.grant_id is not null and l.grant_id = any(@grants::uuid[]);

-- name: TakenGrants :many
-- Those of the grants that were taken away from their worker, because it counted as lost.
select grant_id from turnkeeper.ended_grants where grant_id = any(@grants::uuid[]) and outcome = 'lost';

-- name: RingCancels :exec
select pg_notify('turnkeeper_cancels', '');

-- name: CloseJobs :exec
-- Closes River's rows of ended grants, which River would find only after an hour.
update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
where id = any(@ids::bigint[]) and state not in ('completed', 'cancelled', 'discarded');

-- name: GiveBackJobs :execrows
-- Makes jobs available again that this worker fetched but never got, because the answer
-- of the fetch was lost. Their grants are not bound.
update turnkeeper.river_job j set state = 'available', attempt = greatest(j.attempt - 1, 0)
from turnkeeper.leases l
join turnkeeper.turns t on t.id = l.turn_id and t.grant_id = l.grant_id
where l.grant_id is not null and t.state = 'running' and t.worker_id is null
  and j.id = t.job_id and j.state = 'running'
  and j.attempted_by[array_upper(j.attempted_by, 1)] = @worker::text
  and j.attempted_at <= statement_timestamp() - @older::interval
  and l.grant_id <> all(@working::uuid[]);

-- name: GiveUpGrants :execrows
-- Ends the leases of grants that this worker holds but no longer runs, because it could
-- not write their end. The scheduler then finds them lost. A grant is the worker's if it
-- is bound to it, or if it is bound to none and the worker fetched its job, which has
-- ended. Grants that it left because the database was unavailable do not count against
-- their messages: see granting.Loss.
with held as (
    select t.id, t.grant_id
    from turnkeeper.leases l join turnkeeper.turns t on t.id = l.turn_id and t.grant_id = l.grant_id
    left join turnkeeper.river_job j on j.id = t.job_id
    where t.state = 'running' and l.lease_until > clock_timestamp()
      and (t.worker_id = @worker::text or t.worker_id is null and j.state not in ('available', 'running')
           and j.attempted_by[array_upper(j.attempted_by, 1)] = @worker::text)
      and coalesce(j.attempted_at, t.granted_at) <= statement_timestamp() - @older::interval
      and l.grant_id <> all(@working::uuid[])
    for no key update of t -- before the leases, as an end does, which may still be on its way
), given_up as (
    update turnkeeper.leases l set lease_until = clock_timestamp() from held h
    where l.turn_id = h.id and l.grant_id = h.grant_id
    returning l.grant_id, l.turn_id, l.lease_until
)
update turnkeeper.turns t set lease_until = case when u.grant_id = any(@away::uuid[]) then t.lease_until
    else u.lease_until end
from given_up u where t.id = u.turn_id and t.grant_id = u.grant_id;

-- name: Pause :exec
update turnkeeper.settings set paused_at = clock_timestamp(), paused_reason = @reason::text;

-- name: Resume :exec
update turnkeeper.settings set paused_at = null, paused_reason = null;

-- name: AcceptDatabase :exec
-- Makes the next tick accept the current timeline, clock and server of the database.
update turnkeeper.settings set last_tick_at = clock_timestamp(), silence_from = clock_timestamp(),
    server_started = pg_postmaster_start_time(),
    timeline = case when pg_is_in_recovery() then timeline else substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end;

-- name: SetIntervals :exec
update turnkeeper.settings set
    poll_interval = coalesce(sqlc.narg(poll_interval), poll_interval),
    max_dispatches_per_tick = coalesce(sqlc.narg(max_dispatches_per_tick), max_dispatches_per_tick);

-- name: Settings :one
select * from turnkeeper.settings;

-- name: RingInbox :exec
select pg_notify('turnkeeper_inbox', '');

-- name: NoteTaker :exec
-- Records the worker that fetched a turn but never bound it.
update turnkeeper.turns set worker_id = coalesce(worker_id, nullif(@worker::text, '')) where id = @id;

-- name: SetMaxMessageBytes :exec
update turnkeeper.settings set max_message_bytes = @bytes::integer where max_message_bytes <> @bytes::integer;

-- name: SetMaxSenderPriority :exec
update turnkeeper.settings set max_sender_priority = @priority::integer where max_sender_priority <> @priority::integer;

-- name: ExpireAsks :one
-- Ends what waited for a person or a model long enough.
select (turnkeeper.expire_asks(@max_rows::integer) + turnkeeper.end_model_waits(@max_rows::integer))::integer as ended;

-- name: MoveLevels :one
select turnkeeper.move_levels(@max_rows::integer)::integer;

-- name: MoveHeld :one
select turnkeeper.move_held(@max_rows::integer)::integer;

-- name: PutAside :exec
select turnkeeper.put_aside(@kind::text, @id::text, @code::text, @error::text);

-- name: ForgetAside :exec
delete from turnkeeper.set_aside where (kind, id) in (select unnest(@kinds::text[]), unnest(@ids::text[]));

-- name: ForgetAsideOver :exec
select turnkeeper.forget_aside();

-- name: AgentsToTry :many
-- Those of the agents that are due for another try, or set aside no longer.
select name::text from unnest(@names::text[]) u(name) where not turnkeeper.is_aside('agent', name) order by name;

-- name: ListAside :many
select * from turnkeeper.set_aside order by since, kind, id;

-- name: CountAside :many
select kind, count(*) as number from turnkeeper.set_aside group by kind order by kind;

-- name: RetryAside :execrows
-- Makes rows that are set aside due for their next try; an empty kind means all.
update turnkeeper.set_aside set next_try = clock_timestamp() where @kind::text = '' or kind = @kind and id = @id::text;
