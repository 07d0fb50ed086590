-- The rules that a table constraint cannot say, as functions.
-- Locks: none that anything waits for.
--
-- Error codes, which package storage turns into errors of package turnkeeper:
--   TK001 the lease is no longer held     TK002 the journal has moved on
--   TK003 empty message                   TK004 invalid message
--   TK005 unknown agent                   TK006 idempotency key conflict
--   TK007 state change refused

create function turnkeeper.check_turn_move() returns trigger language plpgsql as $$
begin
    if not (case old.state
        when 'queued'  then new.state in ('running', 'degraded', 'cancelled')
        when 'running' then new.state in ('queued', 'waiting', 'succeeded', 'degraded', 'failed', 'cancelled')
        when 'waiting' then new.state in ('queued', 'cancelled')
        else false
    end) then
        raise exception using errcode = 'TK007',
            message = format('turn cannot go from %s to %s', old.state, new.state);
    end if;
    return new;
end $$;
create trigger turn_moves before update of state on turnkeeper.turns
    for each row when (old.state is distinct from new.state)
    execute function turnkeeper.check_turn_move();

create function turnkeeper.check_call_move() returns trigger language plpgsql as $$
begin
    if not (case old.state
        when 'planned' then new.state in ('started', 'succeeded', 'failed', 'skipped', 'denied', 'cancelled')
        when 'started' then new.state in ('running', 'succeeded', 'failed', 'unknown', 'cancelled')
        when 'running' then new.state in ('succeeded', 'failed', 'unknown', 'cancelled')
        else false
    end) then
        raise exception using errcode = 'TK007',
            message = format('tool call cannot go from %s to %s', old.state, new.state);
    end if;
    return new;
end $$;
create trigger call_moves before update of state on turnkeeper.calls
    for each row when (old.state is distinct from new.state)
    execute function turnkeeper.check_call_move();

create function turnkeeper.check_token() returns trigger language plpgsql as $$
begin
    raise exception 'the token of lane % only grows: % is not more than %', old.lane, new.token, old.token;
end $$;
create trigger lease_token_grows before update of token on turnkeeper.leases
    for each row when (new.token < old.token) execute function turnkeeper.check_token();
create function turnkeeper.keep_lease() returns trigger language plpgsql as $$
begin
    raise exception 'the lease of lane % is never deleted', old.lane;
end $$;
create trigger lease_stays before delete on turnkeeper.leases
    for each row execute function turnkeeper.keep_lease();

-- turnkeeper.enqueue puts a message into an agent's inbox and returns its id.
-- It is the one way in: the command and the HTTP API call it too. Called inside
-- an application's transaction, the message exists when that commits.
-- A repeat with the same idempotency key returns the first id.
create function turnkeeper.enqueue(
    agent           text,
    body            text,
    conversation    text default 'main',
    idempotency_key text default null,
    priority        integer default 0,
    trace_parent    text default null
) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    a_name    text := enqueue.agent;
    conv      text := coalesce(nullif(enqueue.conversation, ''), 'main');
    key       text := nullif(enqueue.idempotency_key, '');
    max_bytes integer;
    by_conv   boolean;
    known     text;
    first     record;
    new_id    bigint;
begin
    if enqueue.body is null or btrim(enqueue.body, E' \t\r\n') = '' then
        raise exception using errcode = 'TK003', message = 'message cannot be empty';
    end if;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    if octet_length(enqueue.body) > max_bytes then
        raise exception using errcode = 'TK004', message = format(
            'invalid message: the body has %s bytes, the limit is %s', octet_length(enqueue.body), max_bytes);
    end if;
    if octet_length(conv) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the conversation''s name is longer than 200 bytes';
    end if;
    if octet_length(key) > 200 then
        raise exception using errcode = 'TK004',
            message = 'invalid message: the idempotency key is longer than 200 bytes';
    end if;
    if coalesce(enqueue.priority, 0) not between -1000 and 1000 then
        raise exception using errcode = 'TK004', message = format(
            'invalid message: priority %s is outside -1000 to 1000', enqueue.priority);
    end if;
    select a.lane_per_conversation into by_conv from turnkeeper.agents a where a.name = a_name;
    if not found then
        select string_agg(a.name, ', ' order by a.name) into known
            from (select name from turnkeeper.agents order by name limit 20) a;
        raise exception using errcode = 'TK005', message = format('unknown agent %s: %s',
            quote_literal(coalesce(a_name, '')),
            case when known is null then 'no agent is registered yet; a worker registers the files of its agents folder when it starts'
                 else 'the registered agents are ' || known end);
    end if;
    insert into turnkeeper.messages (agent, conversation, lane, body, idempotency_key, priority, trace_parent)
        values (a_name, conv, case when by_conv then a_name || '/' || conv else a_name end,
            enqueue.body, key, coalesce(enqueue.priority, 0), enqueue.trace_parent)
        on conflict (agent, idempotency_key) do nothing
        returning id into new_id;
    if new_id is null then
        select m.id, m.body, m.conversation into first
            from turnkeeper.messages m where m.agent = a_name and m.idempotency_key = key;
        if first.body is distinct from enqueue.body or first.conversation is distinct from conv then
            raise exception using errcode = 'TK006', message = format(
                'idempotency key was already used for a different message (%s)', first.id);
        end if;
        return first.id;
    end if;
    perform pg_notify('turnkeeper_inbox', '');
    return new_id;
end $$;

-- Whether a lease is over, for a scheduler that trusts the clock. A grant from
-- the future was made before the clock was set back, and the scheduler has held
-- off for a whole lease since; a clock that is adjusted by a little is no such case.
create function turnkeeper.lease_over(granted_at timestamptz, lease_until timestamptz) returns boolean
stable language sql return lease_until <= statement_timestamp() or granted_at > statement_timestamp() + interval '10 s';

-- Whether a worker is silent for as long as it said it may be; never, where that
-- is 0. A beat from the future is as old as the setting back of the clock.
create function turnkeeper.heart_silent(beat_at timestamptz, takeover_after interval) returns boolean
stable language sql return takeover_after > interval '0'
    and (beat_at + takeover_after <= statement_timestamp() or beat_at > statement_timestamp() + interval '10 s');

-- Whether a lane waits after a failed turn. No pause is longer than 120 s: a
-- longer one was begun before the clock was set back. Null: it never has.
create function turnkeeper.lane_pauses(not_before timestamptz) returns boolean
stable language sql return not_before > statement_timestamp() and not_before <= statement_timestamp() + interval '130 s';

-- The oldest of all waiting messages. It must never be planned as "sort all that
-- wait", as the server would while a new table has no statistics.
create function turnkeeper.oldest_waiting(max_rows integer)
returns table (lane text, id bigint, due_at timestamptz, priority integer)
stable language plpgsql rows 400 set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query select m.lane, m.id, m.due_at, m.priority from turnkeeper.messages m where m.state = 'waiting'
        order by m.due_at, m.priority desc, m.id limit max_rows;
end $$;

-- A tick grants all lanes that it picked, or is undone.
create function turnkeeper.check_granted(granted bigint, picked integer) returns void language plpgsql as $$
begin
    if granted <> picked then
        raise exception '% of % lanes were free: one was taken by somebody else; the tick is undone', granted, picked;
    end if;
end $$;

-- Why a write to a turn's journal was refused: see the statement Step.
create function turnkeeper.refuse_step(p_turn bigint, p_token bigint, p_grant uuid, p_worker text, p_expected bigint)
returns void language plpgsql as $$
declare
    t record;
begin
    select token, grant_id, state, entries, worker_id into t from turnkeeper.turns where id = p_turn;
    if t.token = p_token and t.grant_id = p_grant and t.state = 'running' and coalesce(t.worker_id, p_worker) = p_worker then
        raise exception using errcode = 'TK002', message = format(
            'the journal has moved on: %s writes where %s were expected', t.entries, p_expected);
    end if;
    raise exception using errcode = 'TK001', message = 'the lease is no longer held';
end $$;

-- Record that calls are about to run. Repeatable calls may be started again.
create function turnkeeper.start_calls(
    p_turn bigint, p_token bigint, p_worker text,
    p_rounds integer[], p_ordinals integer[], p_attempts integer[], p_nonces text[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = 'started', nonce = s.nonce, starts = s.attempt,
        started_at = clock_timestamp()
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    where c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal
      and c.starts = s.attempt - 1 and c.state in ('planned', 'started');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was started before';
    end if;
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
    select p_turn, s.round, s.ordinal, s.attempt, c.effect, p_token, s.nonce, p_worker
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    join turnkeeper.calls c on c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
end $$;

-- Record what calls ended with. A started call takes a result only from its
-- newest start.
create function turnkeeper.answer_calls(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_states text[],
    p_shown text[], p_previews text[], p_outputs text[], p_durations bigint[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = r.state, shown = r.shown, preview = r.preview,
        output_id = nullif(r.output, ''), ended_at = greatest(clock_timestamp(), c.started_at), duration_ms = r.duration
    from unnest(p_rounds, p_ordinals, p_nonces, p_states, p_shown, p_previews, p_outputs, p_durations)
        as r(round, ordinal, nonce, state, shown, preview, output, duration)
    where c.turn_id = p_turn and c.round = r.round and c.ordinal = r.ordinal
      and c.state in ('planned', 'started', 'running')
      and (c.nonce = r.nonce or r.state = 'unknown');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was answered before';
    end if;
end $$;

-- Keep a result that came after its writer had lost the lease: as the result
-- while nobody has given a verdict, else beside it.
create function turnkeeper.late_result(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text, p_preview text
) returns void language plpgsql as $$
begin
    update turnkeeper.calls set state = p_state, shown = p_shown, preview = p_preview,
        ended_at = greatest(clock_timestamp(), started_at)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and state = 'started' and nonce = p_nonce
      and exists (select from turnkeeper.turns t where t.id = p_turn and t.ended_at is null);
    if not found then
        update turnkeeper.calls set late_result = p_shown, late_at = greatest(clock_timestamp(), started_at)
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal and late_result is null
          and exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
                      and s.ordinal = p_ordinal and s.nonce = p_nonce);
    end if;
end $$;

-- End a dispatch: everything that must become true together with the reply.
-- The caller's transaction has fenced it with Step, or is the scheduler's. No end
-- lies before its beginning, though the clock may have been set back between.
create function turnkeeper.end_dispatch(
    p_turn bigint, p_grant uuid, p_state text, p_log text, p_stop text,
    p_reply text, p_inner text, p_error_class text, p_error text,
    p_message_state text, p_lost boolean, p_backoff interval, p_lane_backoff interval,
    p_job bigint -- of River, completed with the dispatch; 0: the caller closes it
) returns void language plpgsql as $$
declare
    t        record;
    accepted timestamptz;
begin
    update turnkeeper.turns set
        state          = p_state,
        stop_reason    = case when p_state <> 'queued' then p_stop end,
        ended_at       = case when p_state <> 'queued' then greatest(clock_timestamp(), created_at, granted_at) end,
        due_at         = case when p_state = 'queued' and p_backoff > interval '0' then clock_timestamp() + p_backoff end,
        grant_id       = case when p_state <> 'queued' then grant_id end,
        losses         = losses + p_lost::integer,
        inner_dialogue = nullif(p_inner, ''),
        error_class    = nullif(p_error_class, ''),
        error          = nullif(p_error, '')
    where id = p_turn
    returning message_id, agent, conversation, lane, worker_id into t;

    if p_state <> 'queued' then
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

-- Take an estimate out of the budgets of a turn and of its agent's day.
-- Returns the reservation's id, or 0 and the scope that has no room.
create function turnkeeper.reserve_spend(
    p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint
) language plpgsql as $$
declare
    day text := to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD');
begin
    reservation := 0; blocked := '';
    insert into turnkeeper.spend (scope, period) values ('turn:' || p_turn, ''), ('agent:' || p_agent, day)
        on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend
        where scope = 'agent:' || p_agent and period = day for update;
    if (p_day_tokens > 0 and used_tokens + p_tokens > p_day_tokens)
        or (p_day_calls > 0 and used_calls + 1 > p_day_calls) then
        blocked := 'day';
        return;
    end if;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend
        where scope = 'turn:' || p_turn and period = '' for update;
    if (p_turn_tokens > 0 and used_tokens + p_tokens > p_turn_tokens)
        or (p_turn_calls > 0 and used_calls + 1 > p_turn_calls) then
        blocked := 'turn';
        return;
    end if;
    update turnkeeper.spend set tokens = tokens + p_tokens, calls = calls + 1
        where (scope, period) in (('turn:' || p_turn, ''), ('agent:' || p_agent, day));
    insert into turnkeeper.spend_reservations (turn_id, agent, period, tokens)
        values (p_turn, p_agent, day, p_tokens) returning id into reservation;
end $$;

create function turnkeeper.settle_spend(p_reservation bigint, p_used bigint) returns void language plpgsql as $$
declare
    r record;
begin
    update turnkeeper.spend_reservations set settled_at = clock_timestamp(), used = p_used
        where id = p_reservation and settled_at is null
        returning turn_id, agent, period, tokens into r;
    if found then
        update turnkeeper.spend set tokens = tokens + p_used - r.tokens
            where (scope, period) in (('turn:' || r.turn_id, ''), ('agent:' || r.agent, r.period));
    end if;
end $$;

comment on function turnkeeper.enqueue(text, text, text, text, integer, text) is
    'Puts a message into an agent''s inbox and returns its id; the message exists when the caller''s transaction commits. '
    'conversation: what it continues. idempotency_key: a repeat with the same key and message returns the first id, '
    'with another message it is an error. priority: -1000 to 1000, higher goes first. trace_parent: W3C trace context.';
