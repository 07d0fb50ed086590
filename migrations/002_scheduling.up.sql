-- Scheduling: the inbox, lanes and leases, detection of lost workers, and the health of models.
--
-- Error codes of all functions, which package storage converts to errors of package turnkeeper:
--   TK001 the lease is no longer held     TK002 the journal has moved on
--   TK003 empty message                   TK004 invalid message
--   TK005 unknown agent                   TK006 idempotency key conflict
--   TK007 state change refused            TK010 the agent is retired

----------------------------------------------------------------------------------------------------
-- Inbox
----------------------------------------------------------------------------------------------------

-- Put a message into an agent's inbox and return its id. Everything that sends messages calls this function. The message
-- exists when the caller's transaction commits. A repeat with the same idempotency key returns the first id, whatever its
-- due_at. A message is not granted before due_at; a time in the past means now. An invalid trace_parent (W3C Trace
-- Context) is ignored.
create function turnkeeper.enqueue(
    agent           text,
    body            text,
    conversation    text default 'main',
    idempotency_key text default null,
    priority        integer default 0,
    trace_parent    text default null,
    due_at          timestamptz default null
) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    a_name    text := enqueue.agent;
    conv      text := coalesce(nullif(enqueue.conversation, ''), 'main');
    key       text := nullif(enqueue.idempotency_key, '');
    max_bytes integer;
    by_conv   boolean;
    known     text;
    retired   boolean;
    first     record;
    at        timestamptz := clock_timestamp();
    due       timestamptz := date_trunc('second', at);
    new_id    bigint;
    trace     text := case when octet_length(enqueue.trace_parent) <= 256 and enqueue.trace_parent ~
        '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$'
        and enqueue.trace_parent = lower(enqueue.trace_parent) and substr(enqueue.trace_parent, 4, 32) ~ '[^0]'
        and substr(enqueue.trace_parent, 37, 16) ~ '[^0]' then enqueue.trace_parent end;
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
    if enqueue.due_at > at + interval '3660 days' then
        raise exception using errcode = 'TK004', message = 'invalid message: its time is more than ten years ahead';
    end if;
    if enqueue.due_at > at then -- to the next whole second
        due := date_trunc('second', enqueue.due_at + interval '999999 us');
    end if;
    select a.lane_per_conversation, a.retired_at is not null into by_conv, retired from turnkeeper.agents a where a.name = a_name;
    if not found then
        select string_agg(a.name, ', ' order by a.name) into known
            from (select name from turnkeeper.agents order by name limit 20) a;
        raise exception using errcode = 'TK005', message = format('unknown agent %s: %s',
            quote_literal(coalesce(a_name, '')),
            case when known is null then 'no agent is registered yet; a worker registers the files of its agents folder when it starts'
                 else 'the registered agents are ' || known end);
    end if;
    if retired and not exists (select from turnkeeper.messages m where m.agent = a_name and m.idempotency_key = key) then
        raise exception using errcode = 'TK010', message = format(
            'agent %s is retired and takes no new messages', quote_literal(a_name));
    end if;
    insert into turnkeeper.messages (agent, conversation, lane, body, idempotency_key, priority, trace_parent, due_at)
        values (a_name, conv, case when by_conv then a_name || '/' || conv else a_name end,
            enqueue.body, key, coalesce(enqueue.priority, 0), trace, due)
        on conflict (agent, idempotency_key) where idempotency_key is not null do nothing
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

comment on function turnkeeper.enqueue(text, text, text, text, integer, text, timestamptz) is
    'Puts a message into an agent''s inbox and returns its id. The message exists when the caller''s transaction commits. '
    'conversation: the one to continue. idempotency_key: a repeat with the same key and message returns the first id; '
    'with another message it fails. priority: -1000 to 1000, each point counts as one second of waiting. trace_parent: W3C Trace Context; ignored if invalid. '
    'due_at: the message is not run before; null or past: at once.';

-- Put the message of a response into the inbox. A repeat with the same key returns the same response. It fails like enqueue
-- if the repeat differs from the first, or if the first message with the key is not a response.
create function turnkeeper.enqueue_response(
    p_agent text, p_body text, p_conversation text, p_key text, p_trace_parent text,
    p_previous bigint, p_background boolean, p_metadata jsonb, p_token bigint
) returns bigint language plpgsql as $$
declare
    message bigint := turnkeeper.enqueue(p_agent, p_body, p_conversation, p_key, 0, p_trace_parent);
    first   turnkeeper.responses;
begin
    if exists (select from turnkeeper.messages m where m.id = message and m.xmin = pg_current_xact_id()::xid) then
        insert into turnkeeper.responses values (message, p_previous, p_background, p_metadata, p_token);
        return message;
    end if;
    select r.* into first from turnkeeper.responses r where r.message_id = message;
    if not found or first.previous_id is distinct from p_previous or first.metadata <> p_metadata then
        raise exception using errcode = 'TK006', message = format('idempotency key was already used for a different message (%s)', message);
    end if;
    return message;
end $$;

-- A message that begins to wait later than its rank has a queue_rank from the beginning: one with a priority, a sub-agent's, which
-- has the due time of its parent's message, or that of a missed slot.
create function turnkeeper.set_queue_rank() returns trigger language plpgsql as $$
begin
    new.queue_rank := turnkeeper.rank_of(new.due_at, new.priority);
    return new;
end $$;
create trigger message_is_late before insert on turnkeeper.messages
    for each row when (new.priority <> 0 or new.due_at < new.accepted_at - interval '2 s')
    execute function turnkeeper.set_queue_rank();

-- Whether a message is due: one that was due once stays due, even if the clock is set back.
create function turnkeeper.is_due(due_at timestamptz, accepted_at timestamptz) returns boolean stable language sql
return due_at <= greatest(statement_timestamp(), accepted_at);

-- The waiting messages that are not held and have the lowest queue ranks, and whether each is due now: at most max_rows of those
-- without a queue_rank, from the rank p_from on, and as many of the others that are due. Whoever gives a p_from must know that no
-- message with a lower rank and without a queue_rank waits: see grants.floor. The settings keep the planner from sorting the
-- whole inbox, which it would do while a new table has no statistics.
create function turnkeeper.oldest_waiting(max_rows integer, p_from timestamptz default '-infinity')
returns table (lane text, id bigint, rank timestamptz, queue_rank timestamptz, due boolean)
stable language plpgsql rows 400 set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query select m.lane, m.id, m.rank, m.queue_rank, turnkeeper.is_due(m.due_at, m.accepted_at) from turnkeeper.messages m
        where m.state = 'waiting' and not m.held and m.queue_rank is null and m.rank >= p_from
        order by m.rank, m.id limit max_rows;
    return query select m.lane, m.id, m.rank, m.queue_rank, true from turnkeeper.messages m
        where m.state = 'waiting' and not m.held and m.queue_rank is not null
          and turnkeeper.is_due(m.due_at, m.accepted_at)
        order by m.queue_rank, m.id limit max_rows;
end $$;

-- The earliest due time among the waiting messages that are not held; of those with a queue_rank, among the first 10,000.
create function turnkeeper.oldest_due() returns timestamptz stable language sql as $$
    select least(
        (select m.due_at from turnkeeper.messages m where m.state = 'waiting' and not m.held and m.queue_rank is null
         order by m.rank, m.id limit 1),
        (select min(l.due_at) from (select m.due_at from turnkeeper.messages m
            where m.state = 'waiting' and not m.held and m.queue_rank is not null
            order by m.queue_rank, m.id limit 10000) l))
$$;

-- Whether a waiting message that is due is ahead of another one in its lane. p_from as in oldest_waiting.
create function turnkeeper.waits_behind(p_lane text, p_rank timestamptz, p_id bigint, p_from timestamptz default '-infinity')
returns boolean stable language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return exists (select from turnkeeper.messages a where a.state = 'waiting' and a.queue_rank is not null
            and a.lane = p_lane and (a.rank, a.id) < (p_rank, p_id) and turnkeeper.is_due(a.due_at, a.accepted_at))
        or exists (select from turnkeeper.messages a where a.state = 'waiting' and a.queue_rank is null
            and a.lane = p_lane and a.rank >= p_from and (a.rank, a.id) < (p_rank, p_id) and turnkeeper.is_due(a.due_at, a.accepted_at));
end $$;

----------------------------------------------------------------------------------------------------
-- Lanes and leases
----------------------------------------------------------------------------------------------------

-- Whether a lane pauses after a failed turn. No pause is longer than 120 s, so a later not_before was written before the
-- clock was set back. Null: it never paused.
create function turnkeeper.lane_pauses(not_before timestamptz) returns boolean
stable language sql return not_before > statement_timestamp() and not_before <= statement_timestamp() + interval '130 s';

-- Whether a waiting message must not run yet because its agent's lanes were changed: it is still in its old lane, or an
-- open turn that must not run at the same time is in another lane. That is a turn of the same conversation or, if the agent
-- is one lane, any turn of the agent. The lanes of sub-agents never change.
create function turnkeeper.lane_waits(p_message bigint, p_agent text, p_conversation text, p_lane text, p_by_conversation boolean)
returns boolean stable language sql return not exists (select from turnkeeper.spawned_calls c where c.message_id = p_message)
    and (p_lane <> case when p_by_conversation then p_agent || '/' || p_conversation else p_agent end
         or exists (select from turnkeeper.turns t
                    where t.agent = p_agent and t.ended_at is null and t.home_lane is null and t.lane <> p_lane
                      and (t.conversation = p_conversation or not p_by_conversation
                           and not exists (select from turnkeeper.spawned_calls c where c.message_id = t.message_id))));

-- Undo a tick by an exception unless all lanes that it picked were granted.
create function turnkeeper.check_granted(granted bigint, picked integer) returns void language plpgsql as $$
begin
    if granted <> picked then
        raise exception 'only % of % lanes were free: another session took one; the tick is undone', granted, picked;
    end if;
end $$;

-- The tokens of a lane only increase, even if its lease is deleted in between.
create function turnkeeper.check_token() returns trigger language plpgsql as $$
begin
    raise exception 'the token of lane % only grows: % is not more than %', old.lane, new.token, old.token;
end $$;
create trigger lease_token_grows before update of token on turnkeeper.leases
    for each row when (new.token < old.token) execute function turnkeeper.check_token();

create function turnkeeper.lease_may_go() returns trigger language plpgsql as $$
begin
    if old.grant_id is not null or old.token > (select s.lane_token from turnkeeper.settings s) then
        raise exception 'the lease of lane % is not to be deleted: it is held, or its token would be used again', old.lane;
    end if;
    return old;
end $$;
create trigger lease_stays before delete on turnkeeper.leases
    for each row execute function turnkeeper.lease_may_go();

-- Delete the leases of lanes without messages, turns and grants, because a lane's name contains that of its conversation.
create function turnkeeper.forget_lanes(p_agent text, p_conversation text) returns void language plpgsql as $$
declare
    names text[];
    most  bigint;
begin
    select array_agg(b.lane), max(b.token) into names, most from (
        select l.lane, l.token from turnkeeper.leases l
        where l.grant_id is null and (p_agent = '' or l.agent = p_agent)
          and (p_conversation = '' or l.lane = l.agent || '/' || p_conversation)
          and not exists (select from turnkeeper.ended_grants g where g.lane = l.lane)
          and not exists (select from turnkeeper.messages m where m.state = 'waiting' and m.lane = l.lane)
          and not exists (select from turnkeeper.turns t where t.lane = l.lane and t.ended_at is null)
        for update of l skip locked) b;
    if names is not null then
        update turnkeeper.settings set lane_token = most where lane_token < most;
        delete from turnkeeper.leases where lane = any(names);
    end if;
end $$;

----------------------------------------------------------------------------------------------------
-- Lost workers. These functions work even if the clock is set back by any amount: a time that is more than 10 s in the
-- future was written before that. Smaller adjustments are ignored.
----------------------------------------------------------------------------------------------------

-- Whether a lease has expired. A lease that was granted in the future has: after the clock is set back, the scheduler holds
-- off for a whole lease.
create function turnkeeper.lease_over(granted_at timestamptz, lease_until timestamptz) returns boolean
stable language sql return lease_until <= statement_timestamp() or granted_at > statement_timestamp() + interval '10 s';

-- Whether a worker has been silent for takeover_after; never if that is 0.
create function turnkeeper.heart_silent(beat_at timestamptz, takeover_after interval) returns boolean
stable language sql return takeover_after > interval '0'
    and (beat_at + takeover_after <= statement_timestamp() or beat_at > statement_timestamp() + interval '10 s');

-- Since when a worker has been silent: since its newest heartbeat, or since the database was available again after that.
create function turnkeeper.silent_from(beat_at timestamptz) returns timestamptz
stable language sql return greatest(beat_at, (select silence_from from turnkeeper.settings));

-- Whether a worker has stopped or is silent. Null: the worker is unknown.
create function turnkeeper.worker_gone(stopped_at timestamptz, beat_at timestamptz, takeover_after interval) returns boolean
stable language sql return stopped_at is not null or turnkeeper.heart_silent(beat_at, takeover_after);

-- Whether the worker's process is connected. A process holds this lock on the connection that listens for doorbells: it is
-- free once the process has died, while a process that is only slow keeps it.
create function turnkeeper.worker_present(worker text) returns boolean stable language sql return exists (
    select from pg_locks
    where locktype = 'advisory' and classid = 1414218583::oid and objid = (hashtext(worker)::bigint & 4294967295)::oid and objsubid = 2
      and database = (select oid from pg_database where datname = current_database()) and granted);

-- Whether a queue belongs to one worker (see jobs.QueueOf) that has stopped or is silent. A turn that was granted to that
-- worker by name would wait there until its lease ends.
create function turnkeeper.owner_gone(queue text) returns boolean stable language plpgsql as $$
begin
    return left(queue, 6) = 'turns_' and not exists (
        select from turnkeeper.worker_heartbeat h
        where queue = 'turns_' || left(encode(sha256(convert_to(h.worker_id, 'UTF8')), 'hex'), 32)
          and not turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after));
end $$;

-- Whether a lost grant counts against its message. It does if the lease expired. Otherwise its worker was silent: that
-- counts if no heartbeat has come since, and the worker's process has died or has been silent for a whole lease.
create function turnkeeper.loss_counts(
    p_worker text, p_granted timestamptz, p_until timestamptz, p_ended timestamptz, p_stopped timestamptz, p_beat timestamptz
) returns boolean stable language sql return p_until <= p_ended
    or p_stopped is not null
    or (p_beat is null or p_beat <= p_ended or p_beat > statement_timestamp() + interval '10 s')
       and (not turnkeeper.worker_present(p_worker) or turnkeeper.silent_from(p_beat) + (p_until - p_granted) <= statement_timestamp());

-- Whether the run of a detached call has exceeded its deadline by more than 30 s: until then its worker should end it. If
-- the claim is in the future, its real time is unknown, and the worker's newest heartbeat decides.
create function turnkeeper.run_overdue(claimed_at timestamptz, deadline timestamptz, time_limit interval, beat_at timestamptz) returns boolean
stable language sql return deadline + interval '30 s' <= statement_timestamp()
    or (claimed_at > statement_timestamp() + interval '10 s'
        and (beat_at is null or beat_at > statement_timestamp() + interval '10 s'
             or beat_at + time_limit + interval '30 s' <= statement_timestamp()));

-- Whether a job was fetched so long ago that its call should have been claimed.
create function turnkeeper.fetch_overlooked(attempted_at timestamptz) returns boolean
stable language sql return attempted_at + interval '5 minutes' <= statement_timestamp()
    or attempted_at > statement_timestamp() + interval '10 s';

-- Whether any detached call looks lost. It is a function so that most ticks run only its first queries.
create function turnkeeper.calls_lost() returns boolean stable language plpgsql as $$
begin
    if not exists (select from turnkeeper.detached_calls where claim is null and ended_at is null)
        and not exists (select from turnkeeper.detached_calls where claim is not null and ended_at is null) then
        return false;
    end if;
    return exists (select from turnkeeper.detached_calls d left join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
             where d.claim is not null and d.ended_at is null
               and (d.lost_at is not null or turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
                    or turnkeeper.run_overdue(d.claimed_at, d.deadline, d.time_limit, h.beat_at)))
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at <= statement_timestamp())
        or exists (select from turnkeeper.detached_calls where claim is null and ended_at is null and look_at > statement_timestamp() + interval '11 minutes')
        or exists (with j as materialized (
                select r.id, r.args, r.attempted_by, r.attempted_at from turnkeeper.river_job r
                where r.state = 'running' and left(r.queue, 9) = 'detached_')
            select from j
            join turnkeeper.detached_calls d on d.turn_id = (j.args ->> 'turn_id')::bigint and d.round = (j.args ->> 'round')::integer
                and d.ordinal = (j.args ->> 'ordinal')::integer and d.job_id = j.id and d.claim is null and d.ended_at is null
            left join turnkeeper.worker_heartbeat h on h.worker_id = j.attempted_by[array_upper(j.attempted_by, 1)]
            where (turnkeeper.worker_gone(h.stopped_at, turnkeeper.silent_from(h.beat_at), h.takeover_after)
                   or turnkeeper.fetch_overlooked(j.attempted_at)));
end $$;

----------------------------------------------------------------------------------------------------
-- Health of models
----------------------------------------------------------------------------------------------------

-- The pause after the n-th failure in a row: the same rule as scheduler.Backoff.
create function turnkeeper.failure_pause(n integer) returns interval immutable language sql
return make_interval(secs => least(power(2, least(n, 7)), 120));

-- Whether no model of a chain is up.
create function turnkeeper.chain_down(models text[]) returns boolean stable language sql
return cardinality(models) > 0 and not exists (select from unnest(models) m (name)
    where not exists (select from turnkeeper.model_health h where h.model = m.name and h.down_since is not null));

-- Record which models answered or failed in a turn. Models that answered are up, and lanes that waited for one of them are
-- due. Models that failed are down: p_seen is the number of failures in a row that was known before the request, so that
-- concurrent failures count once; p_asked is the pause that the provider asked for. The function locks leases that are not
-- held, so a transaction that locks the turn's own lease must do that first.
create function turnkeeper.note_models(
    p_answered text[], p_failed text[], p_seen integer[], p_classes text[], p_errors text[], p_asked interval[]
) returns void language plpgsql as $$
declare
    back text[];
    i    integer;
    now  timestamptz;
begin
    if cardinality(p_failed) = 0 and not exists (
        select from turnkeeper.model_health where model = any(p_answered) and down_since is not null) then
        return;
    end if;
    perform from turnkeeper.model_health where model = any(p_answered || p_failed) order by model for update;
    with up as (
        update turnkeeper.model_health set down_since = null, until = null, failures = 0, probe_grant = null, changed_at = clock_timestamp()
        where model = any(p_answered) and down_since is not null returning model
    )
    select array_agg(model) into back from up;
    if back is not null then
        update turnkeeper.leases set not_before = null, waits_for = null where lane in (
            select lane from turnkeeper.leases where not_before is not null and waits_for && back for update skip locked);
        perform pg_notify('turnkeeper_inbox', '');
    end if;
    for i in 1 .. cardinality(p_failed) loop
        now := clock_timestamp();
        insert into turnkeeper.model_health as h (model, down_since, until, failures, error_class, error, changed_at)
        values (p_failed[i], now, now + greatest(turnkeeper.failure_pause(1), p_asked[i]), 1, p_classes[i], p_errors[i], now)
        on conflict (model) do update set
            down_since = coalesce(h.down_since, now),
            failures = case when h.failures > p_seen[i] then h.failures else h.failures + 1 end,
            until = case when h.failures > p_seen[i] then greatest(h.until, now + p_asked[i])
                    else now + greatest(turnkeeper.failure_pause(h.failures + 1), p_asked[i]) end,
            error_class = excluded.error_class, error = excluded.error, probe_grant = null, changed_at = now;
    end loop;
end $$;
