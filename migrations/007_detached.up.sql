-- Calls that are open elsewhere: turns that wait for them, and detached calls,
-- which run in River jobs of their own.
-- Oldest program: 2
-- Locks: calls and lease_log for a moment each, without reading them.

-- A program before this one leaves turns with such calls alone: the version of
-- their rounds is 2. The new outcome of a dispatch is text to it.
alter table turnkeeper.calls add column elsewhere boolean not null default false;
alter table turnkeeper.lease_log drop constraint lease_log_outcome_check;
alter table turnkeeper.lease_log add constraint lease_log_outcome_check
    check (outcome in ('finished', 'lost', 'handed_back', 'deferred', 'unclaimed', 'waiting')) not valid;

-- What a turn may wait for, whatever it is: the letter box of a call that is open
-- elsewhere. The result lies here until the turn takes it into its journal, for
-- only the holder of a turn's grant writes there.
create table turnkeeper.awaited_calls (
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null,
    nonce       text not null, -- of the start whose result is taken
    opened_at   timestamptz not null default clock_timestamp(),
    arrived_at  timestamptz,
    state       text check (state in ('succeeded', 'failed', 'unknown', 'cancelled')),
    preview     text not null default '',
    duration_ms bigint check (duration_ms >= 0),
    output_id   text,
    closed_at   timestamptz, -- since the journal has an answer
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round, ordinal) references turnkeeper.calls,
    check ((arrived_at is null) = (state is null))
) with (fillfactor = 70);

-- The run of a detached call. Who claims it runs it; a claim is never given twice.
create table turnkeeper.detached_calls (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    attempt    integer not null default 1 check (attempt > 0),
    time_limit interval not null check (time_limit > interval '0'),
    deadline   timestamptz not null, -- of the wait for a claim, and then of the run
    look_at    timestamptz not null, -- no claim: when to look whether the job is still there
    job_id     bigint not null,
    claim      text unique,
    worker_id  text,
    claimed_at timestamptz,
    lost_at    timestamptz, -- its own worker gave it up
    losses     integer not null default 0 check (losses >= 0),
    delivered  boolean not null default false, -- by the worker that claimed it
    ended_at   timestamptz,
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round, ordinal) references turnkeeper.awaited_calls,
    check ((claim is null) = (worker_id is null)),
    check ((claim is null) = (claimed_at is null)),
    check (not delivered or ended_at is not null)
) with (fillfactor = 70);
create index detached_calls_run on turnkeeper.detached_calls (worker_id) where claim is not null and ended_at is null;
create index detached_calls_wait on turnkeeper.detached_calls (look_at) where claim is null and ended_at is null;

-- Whether a worker is gone: it has stopped, or is silent for as long as it said it
-- may be. Null: nobody knows it.
create function turnkeeper.worker_gone(stopped_at timestamptz, beat_at timestamptz, takeover_after interval) returns boolean
stable language sql return stopped_at is not null or turnkeeper.heart_silent(beat_at, takeover_after);

-- Whether the run of a detached call outlasts its time, which its worker ends
-- itself while it can. A claim from the future is older than the setting back of
-- the clock, nobody knows by how much: there the worker's sign of life decides.
create function turnkeeper.run_overdue(claimed_at timestamptz, deadline timestamptz, time_limit interval, beat_at timestamptz) returns boolean
stable language sql return deadline + interval '30 s' <= statement_timestamp()
    or (claimed_at > statement_timestamp() + interval '10 s'
        and (beat_at is null or beat_at > statement_timestamp() + interval '10 s'
             or beat_at + time_limit + interval '30 s' <= statement_timestamp()));

-- Whether a job was fetched so long ago that its call would be claimed by now.
create function turnkeeper.fetch_overlooked(attempted_at timestamptz) returns boolean
stable language sql return attempted_at + interval '5 minutes' <= statement_timestamp()
    or attempted_at > statement_timestamp() + interval '10 s';

-- A doorbell for a run of a detached call: a row as River's own insert makes it.
-- Each tool has a queue, which those workers work that have the tool.
create function turnkeeper.ring_detached(p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_tool text)
returns bigint language plpgsql as $$
declare
    job   bigint;
    queue text := 'detached_' || left(encode(sha256(convert_to(p_tool, 'UTF8')), 'hex'), 32);
begin
    insert into turnkeeper.river_job (args, kind, max_attempts, priority, queue, state, tags)
    values (jsonb_build_object('turn_id', p_turn, 'round', p_round, 'ordinal', p_ordinal, 'attempt', p_attempt),
        'DetachedCall', 1, 1, queue, 'available', '{}')
    returning id into job;
    perform pg_notify('turnkeeper.river_insert', jsonb_build_object('queue', queue)::text);
    return job;
end $$;

-- Send calls that the same write has started to run elsewhere.
create function turnkeeper.detach_calls(p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_limits interval[], p_wait interval)
returns void language plpgsql as $$
begin
    update turnkeeper.calls c set elsewhere = true from unnest(p_rounds, p_ordinals) as s(round, ordinal)
    where c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
    update turnkeeper.rounds set version = 2 where turn_id = p_turn and round = any(p_rounds) and version < 2;
    insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce)
    select p_turn, s.round, s.ordinal, s.nonce from unnest(p_rounds, p_ordinals, p_nonces) as s(round, ordinal, nonce);
    insert into turnkeeper.detached_calls (turn_id, round, ordinal, time_limit, deadline, look_at, job_id)
    select p_turn, s.round, s.ordinal, s.time_limit, clock_timestamp() + p_wait, clock_timestamp() + interval '1 minute',
        turnkeeper.ring_detached(p_turn, s.round, s.ordinal, 1, c.name)
    from unnest(p_rounds, p_ordinals, p_limits) as s(round, ordinal, time_limit)
    join turnkeeper.calls c on c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
end $$;

-- What a call that is open elsewhere has ended with. The turn that waits for it
-- is queued; one that runs finds it. It takes the turn's row before any other.
create function turnkeeper.arrive_call(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_preview text, p_duration bigint, p_output text
) returns void language plpgsql as $$
begin
    perform from turnkeeper.turns where id = p_turn for update;
    update turnkeeper.awaited_calls set arrived_at = greatest(clock_timestamp(), opened_at), state = p_state,
        preview = p_preview, duration_ms = p_duration, output_id = nullif(p_output, '')
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and nonce = p_nonce
      and arrived_at is null and closed_at is null;
    if not found then
        raise exception using errcode = 'TK001', message = 'the call is no longer awaited';
    end if;
    update turnkeeper.turns set state = 'queued', due_at = null where id = p_turn and state = 'waiting';
    if found then
        perform pg_notify('turnkeeper_inbox', '');
    end if;
end $$;

-- The result of a detached call, from the run that holds the claim; p_claim '':
-- the verdict of the scheduler on this attempt. A repeat of what is done already
-- does nothing more, and is no error.
create function turnkeeper.end_detached(
    p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_claim text,
    p_state text, p_preview text, p_duration bigint, p_output text
) returns void language plpgsql as $$
declare
    d record;
begin
    perform from turnkeeper.turns where id = p_turn for update;
    select r.*, a.nonce into d from turnkeeper.detached_calls r join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
    where r.turn_id = p_turn and r.round = p_round and r.ordinal = p_ordinal for update of r;
    if d.delivered and d.claim = p_claim then
        return;
    end if;
    if d.ended_at is not null or d.attempt <> p_attempt or p_claim <> '' and d.claim is distinct from p_claim then
        raise exception using errcode = 'TK001', message = 'the call is no longer this worker''s';
    end if;
    update turnkeeper.detached_calls set ended_at = clock_timestamp(), delivered = (p_claim <> '')
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    perform turnkeeper.arrive_call(p_turn, p_round, p_ordinal, d.nonce, p_state, p_preview, p_duration, p_output);
    update turnkeeper.river_job set state = (case when p_claim <> '' then 'completed' else 'cancelled' end)::turnkeeper.river_job_state,
        finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if p_claim = '' then -- whoever runs it after all is told
        perform pg_notify('turnkeeper_calls', '');
    end if;
end $$;

-- Have a detached call run again: the next attempt of one that was claimed, a new
-- doorbell for one that was not.
create function turnkeeper.run_detached_again(
    p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_claim text, p_nonce text, p_lost boolean, p_wait interval
) returns void language plpgsql as $$
declare
    d      record;
    effect text;
begin
    perform from turnkeeper.turns where id = p_turn for update;
    select r.*, c.name as tool into d from turnkeeper.detached_calls r join turnkeeper.calls c using (turn_id, round, ordinal)
    where r.turn_id = p_turn and r.round = p_round and r.ordinal = p_ordinal for update of r;
    if d.ended_at is not null or d.attempt <> p_attempt or p_claim <> '' and d.claim is distinct from p_claim then
        raise exception using errcode = 'TK001', message = 'the call is no longer this worker''s';
    end if;
    update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
    where id = d.job_id and state not in ('completed', 'cancelled', 'discarded');
    if d.claim is null then
        update turnkeeper.detached_calls set job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal, attempt, d.tool),
            look_at = clock_timestamp() + interval '1 minute'
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
        return;
    end if;
    update turnkeeper.calls c set starts = p_attempt + 1, nonce = p_nonce, started_at = clock_timestamp()
    where c.turn_id = p_turn and c.round = p_round and c.ordinal = p_ordinal and c.state = 'running' and c.starts = p_attempt
    returning c.effect into effect;
    if not found then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: the call has another start';
    end if;
    -- Under no grant: token 0.
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
    values (p_turn, p_round, p_ordinal, p_attempt + 1, effect, 0, p_nonce, d.worker_id);
    update turnkeeper.awaited_calls set nonce = p_nonce where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    update turnkeeper.detached_calls set attempt = p_attempt + 1, claim = null, worker_id = null, claimed_at = null, lost_at = null,
        losses = losses + p_lost::integer, deadline = clock_timestamp() + p_wait, look_at = clock_timestamp() + interval '1 minute',
        job_id = turnkeeper.ring_detached(p_turn, p_round, p_ordinal, p_attempt + 1, d.tool)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    perform pg_notify('turnkeeper_calls', '');
end $$;

-- With the answer in the journal nothing is awaited any more. A run that nobody
-- has begun never begins; one that goes on is told to stop.
create function turnkeeper.close_awaited() returns trigger language plpgsql as $$
declare
    job bigint;
begin
    update turnkeeper.awaited_calls set closed_at = greatest(clock_timestamp(), opened_at)
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and closed_at is null;
    update turnkeeper.detached_calls set ended_at = clock_timestamp()
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and ended_at is null
    returning job_id into job;
    if found then
        update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp()
        where id = job and state not in ('completed', 'cancelled', 'discarded');
        perform pg_notify('turnkeeper_calls', '');
    end if;
    return null;
end $$;
create trigger call_answered after update of state on turnkeeper.calls
    for each row when (old.elsewhere and old.state = 'running' and new.state <> 'running')
    execute function turnkeeper.close_awaited();

-- As before; and a dispatch that ends because its turn waits. The caller has
-- locked the turn's row, as whoever brings a result does: so nobody arrives between
-- this look at what is awaited and the end.
create or replace function turnkeeper.end_dispatch(
    p_turn bigint, p_grant uuid, p_state text, p_log text, p_stop text,
    p_reply text, p_inner text, p_error_class text, p_error text,
    p_message_state text, p_lost boolean, p_backoff interval, p_lane_backoff interval,
    p_job bigint -- of River, completed with the dispatch; 0: the caller closes it
) returns void language plpgsql as $$
declare
    t        record;
    accepted timestamptz;
    final    text := p_state;
    ended    boolean := p_state not in ('queued', 'waiting');
begin
    if p_state = 'waiting' then
        -- Nothing has arrived, and something will.
        select case when count(*) > 0 and count(arrived_at) = 0 then 'waiting' else 'queued' end into final
        from turnkeeper.awaited_calls where turn_id = p_turn and closed_at is null;
    end if;
    update turnkeeper.turns set
        state          = final,
        stop_reason    = case when ended then p_stop end,
        ended_at       = case when ended then greatest(clock_timestamp(), created_at, granted_at) end,
        due_at         = case when final = 'queued' and p_backoff > interval '0' then clock_timestamp() + p_backoff end,
        grant_id       = case when ended then grant_id end,
        losses         = losses + p_lost::integer,
        inner_dialogue = nullif(p_inner, ''),
        error_class    = nullif(p_error_class, ''),
        error          = nullif(p_error, '')
    where id = p_turn
    returning message_id, agent, conversation, lane, worker_id into t;

    if ended then
        update turnkeeper.messages set
            state      = p_message_state,
            closed_at  = case when p_message_state <> 'waiting' then greatest(clock_timestamp(), accepted_at) end,
            last_error = nullif(p_error, '')
        where id = t.message_id
        returning accepted_at into accepted;
        if p_reply <> '' then
            insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body, created_at)
            values (t.message_id, p_turn, t.agent, t.conversation, p_state, p_reply, greatest(clock_timestamp(), accepted));
        end if;
    end if;

    update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null,
        failures = case when p_state = 'failed' then failures + 1
                        when p_state in ('succeeded', 'degraded') then 0 else failures end,
        not_before = case when p_state = 'failed' then clock_timestamp() + p_lane_backoff
                          when p_state in ('succeeded', 'degraded') then null else not_before end
    where lane = t.lane and grant_id = p_grant;
    if not found then
        raise exception using errcode = 'TK001', message = 'the lease is no longer held';
    end if;
    update turnkeeper.lease_log set ended_at = greatest(clock_timestamp(), granted_at), outcome = p_log, worker_id = t.worker_id
    where grant_id = p_grant;
    if p_job <> 0 then
        update turnkeeper.river_job set state = 'completed', finalized_at = clock_timestamp()
        where id = p_job and state = 'running';
    end if;
    perform pg_notify('turnkeeper_inbox', ''), pg_notify('turnkeeper_turns', '');
end $$;

-- As before; but of a call that is open elsewhere the letter box has the result.
create or replace function turnkeeper.late_result(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text, p_preview text
) returns void language plpgsql as $$
begin
    -- What the model was told of a call in the background stays.
    update turnkeeper.calls set state = p_state, shown = case when state = 'running' then shown else p_shown end,
        preview = p_preview, ended_at = greatest(clock_timestamp(), started_at)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and (state = 'started' or state = 'running' and not elsewhere) and nonce = p_nonce
      and exists (select from turnkeeper.turns t where t.id = p_turn and t.ended_at is null);
    if not found then
        update turnkeeper.calls set late_result = p_shown, late_at = greatest(clock_timestamp(), started_at)
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal and late_result is null
          and exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
                      and s.ordinal = p_ordinal and s.nonce = p_nonce);
    end if;
end $$;
