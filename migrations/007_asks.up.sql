-- Asks: questions that a turn puts to a person. A turn that waits for the answer holds no lease and no slot. If it
-- would block other work of its agent, it is parked outside its lane.
--
-- Error codes:
--   TK011 the call is not approved        TK012 the ask is closed
--   TK013 no such ask                     TK014 invalid answer

create table turnkeeper.asks (
    id          bigint generated always as identity primary key,
    turn_id     bigint not null,
    round       integer not null, -- of the call
    ordinal     integer not null, -- 0: not about a call, but about the round
    kind        text not null check (kind in ('approve', 'question', 'input', 'settle', 'budget', 'reply')),
    -- settle: the number of the start; else counts the asks of this kind about the call
    n           integer not null check (n > 0),
    state       text not null default 'open' check (state in ('open', 'approved', 'denied', 'answered', 'expired',
        'withdrawn')),
    tool        text not null,
    arguments   text not null, -- JSON, as the tool will get them, with secrets masked
    args_hash   text not null, -- hash of tool and arguments: see turnkeeper.args_hash
    rule        text not null,
    reason      text not null,
    schema      text,          -- JSON Schema of the answer (kind approve: of edited arguments); null: none
    audience    text[] not null, -- who may answer; empty: anybody who may answer asks
    hold        boolean not null, -- later messages of the conversation wait
    opened_at   timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    seen_at     timestamptz,   -- when the turn recorded that it saw the answer
    closed_at   timestamptz,
    answered_by text,
    channel     text,
    comment     text,
    answer      text,          -- JSON
    edited      text,          -- JSON: arguments that replace those of the call
    edited_hash text,
    resume      text,          -- kind input: the state that the tool needs to continue; not shown to people
    used_at     timestamptz,   -- kind input: when the call continued, with or without an answer
    unique (turn_id, round, ordinal, kind, n),
    check ((state = 'open') = (closed_at is null)),
    check ((edited is null) = (edited_hash is null)),
    check (edited is null or state = 'approved' and kind = 'approve'),
    check ((answer is not null) = (state = 'answered')),
    check (state not in ('approved', 'denied', 'answered') or answered_by is not null),
    check (seen_at is null or closed_at is not null),
    check (kind = 'input' or resume is null),
    check (used_at is null or kind = 'input' and state in ('answered', 'denied', 'expired')),
    constraint times_in_range check (
        least(opened_at, expires_at, closed_at, seen_at, used_at) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(opened_at, expires_at, closed_at, seen_at, used_at) < timestamptz '2200-01-01 00:00:00+00')
) with (fillfactor = 70);
create index asks_open on turnkeeper.asks (expires_at) where state = 'open';

-- Planned calls that may start only with an approval. A worker that fails to ask cannot start them.
create table turnkeeper.call_gates (
    turn_id bigint not null,
    round   integer not null,
    ordinal integer not null,
    primary key (turn_id, round, ordinal)
);

-- Parked turns: all, and those that may return to their lane.
create index turns_parked on turnkeeper.turns (agent, user_name, conversation) where home_lane is not null
    and ended_at is null;
create index turns_woken on turnkeeper.turns (home_lane) where home_lane is not null and state = 'queued';

-- The hash of a call's name and arguments, as in package tools. It compares arguments byte by byte.
create function turnkeeper.args_hash(p_tool text, p_arguments text) returns text
immutable language plpgsql as $$
begin
    return encode(sha256(convert_to(p_tool, 'UTF8') || '\x00'::bytea || convert_to(p_arguments, 'UTF8')), 'hex');
end $$;

-- An answer never changes.
create function turnkeeper.refuse_new_answer() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'TK012', message = format('the ask is closed: it was %s', old.state);
end $$;
create trigger answer_stays before update of turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash,
    closed_at, answered_by, channel,
    comment, answer, edited, edited_hash, resume on turnkeeper.asks
    for each row when (old.state <> 'open') execute function turnkeeper.refuse_new_answer();

----------------------------------------------------------------------------------------------------
-- Writes of a turn, whose row the caller has locked
----------------------------------------------------------------------------------------------------

-- Record that planned calls may start only with an approval.
create function turnkeeper.gate_calls(p_turn bigint, p_rounds integer[],
    p_ordinals integer[]) returns void language plpgsql as $$
begin
    insert into turnkeeper.call_gates (turn_id, round, ordinal)
    select p_turn, g.round, g.ordinal from unnest(p_rounds, p_ordinals) as g(round, ordinal) on conflict do nothing;
end $$;

-- Open asks. Extend the timeouts of a sub-agent's parents, so that they wait at least as long as it waits for a person.
create function turnkeeper.open_asks(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_kinds text[], p_ns integer[], p_tools text[],
    p_arguments text[],
    p_rules text[], p_reasons text[], p_schemas text[], p_resumes text[], p_audience text[], p_hold boolean,
        p_timeout interval
) returns void language plpgsql as $$
declare
    s record;
begin
    insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, schema,
        resume, audience, hold, expires_at)
    select p_turn, a.round, a.ordinal, a.kind, a.n, a.tool, a.arguments, turnkeeper.args_hash(a.tool, a.arguments),
        a.rule, a.reason, nullif(a.schema, ''), nullif(a.resume, ''), p_audience, p_hold,
        clock_timestamp() + p_timeout
    from unnest(p_rounds, p_ordinals, p_kinds, p_ns, p_tools, p_arguments, p_rules, p_reasons, p_schemas, p_resumes)
        as a(round, ordinal, kind, n, tool, arguments, rule, reason, schema, resume);
    for s in with recursive up (turn_id, round, ordinal, depth) as (
            select c.turn_id, c.round, c.ordinal, 1 from turnkeeper.turns t
                join turnkeeper.spawned_calls c on c.message_id = t.message_id
            where t.id = p_turn
            union all
            select c.turn_id, c.round, c.ordinal, up.depth + 1 from up join turnkeeper.turns t on t.id = up.turn_id
            join turnkeeper.spawned_calls c on c.message_id = t.message_id
        ) select * from up order by depth
    loop
        update turnkeeper.spawned_calls set deadline = greatest(deadline,
            clock_timestamp() + p_timeout + interval '1 hour')
        where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal;
    end loop;
    perform pg_notify('turnkeeper_asks', '');
end $$;

-- Record that the turn has seen answers.
create function turnkeeper.see_asks(p_turn bigint, p_asks bigint[]) returns void language plpgsql as $$
begin
    update turnkeeper.asks set seen_at = greatest(clock_timestamp(), closed_at)
    where turn_id = p_turn and id = any(p_asks) and state <> 'open' and seen_at is null;
end $$;

-- Record that calls continue with or without the answers of asks of kind input. Each ask is used once, so that the
-- outcome of a call is known to be in doubt if its worker is lost after that.
create function turnkeeper.use_inputs(p_turn bigint, p_asks bigint[]) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.asks set used_at = greatest(clock_timestamp(), closed_at)
    where turn_id = p_turn and id = any(p_asks) and kind = 'input' and state in ('answered', 'denied', 'expired')
        and used_at is null;
    get diagnostics n = row_count;
    if n <> cardinality(p_asks) then
        raise exception using errcode = 'TK011',
            message = 'the input that the call would go on with is not there, or was used';
    end if;
end $$;

-- Refuse to start calls without the approval that they need. The i-th elements of the arrays belong to one start. A
-- call with a gate, or with an ask for its approval, starts only if the ask is approved for the arguments that will run
-- (p_hashes). Its first start refers to the ask, and the unique key of call_starts allows that once. Later starts of a
-- repeatable call run the same arguments. A call of effect once starts again only after a person has decided that its
-- last start did not happen.
create function turnkeeper.check_approvals(
    p_turns bigint[], p_rounds integer[], p_ordinals integer[], p_attempts integer[], p_asks bigint[], p_hashes text[]
) returns void language plpgsql as $$
begin
    if 0 = all(p_asks)
        and not exists (select from turnkeeper.asks where turn_id = any(p_turns))
        and not exists (select from turnkeeper.call_gates where turn_id = any(p_turns)) then
        return;
    end if;
    if exists (
        select from unnest(p_turns, p_rounds, p_ordinals, p_attempts, p_asks, p_hashes) as s(turn, round, ordinal,
            attempt, ask, hash)
        left join turnkeeper.call_gates g on g.turn_id = s.turn and g.round = s.round and g.ordinal = s.ordinal
        left join turnkeeper.asks a on a.turn_id = s.turn and a.round = s.round and a.ordinal = s.ordinal
            and a.kind = 'approve'
        left join turnkeeper.asks r on r.turn_id = s.turn and r.round = s.round and r.ordinal = s.ordinal
            and r.kind = 'settle'
            and r.n = s.attempt - 1
        where (g.turn_id is not null or a.id is not null)
              and (a.state is distinct from 'approved' or coalesce(a.edited_hash, a.args_hash) is distinct from s.hash
                   or s.attempt = 1 and s.ask <> a.id)
           or s.attempt = 1 and s.ask <> 0 and s.ask is distinct from a.id
           or s.attempt > 1 and s.ask <> 0 and (s.ask is distinct from r.id or r.state <> 'answered'
               or r.answer <> '"did_not_happen"'
                   or r.args_hash is distinct from s.hash)
    ) then
        raise exception using errcode = 'TK011',
            message = 'the call is not approved, or not with the arguments that would run';
    end if;
end $$;

-- Whether a turn may wait: something is open, and the turn has recorded all results and answers that have arrived.
create function turnkeeper.may_wait(p_turn bigint) returns boolean stable language plpgsql as $$
begin
    return not exists (select from turnkeeper.awaited_calls where turn_id = p_turn and closed_at is null
        and arrived_at is not null)
        and not exists (select from turnkeeper.asks where turn_id = p_turn and state <> 'open' and seen_at is null)
        and (exists (select from turnkeeper.awaited_calls where turn_id = p_turn and closed_at is null)
             or exists (select from turnkeeper.asks where turn_id = p_turn and state = 'open'));
end $$;

----------------------------------------------------------------------------------------------------
-- Answers
----------------------------------------------------------------------------------------------------

-- Queue a turn that waits for a person. The caller has locked its row.
create function turnkeeper.wake_turn(p_turn bigint) returns void language plpgsql as $$
begin
    update turnkeeper.turns set state = 'queued', due_at = null where id = p_turn and state = 'waiting';
    if found then
        perform pg_notify('turnkeeper_inbox', '');
    end if;
end $$;

-- Answer an ask, and queue its turn, in the caller's transaction. decision is approved, denied or answered. A repeat of
-- the same answer by the same person changes nothing. Another answer, another comment and another person's answer fail.
-- hash, unless null, is the hash of the arguments that the person saw. edited, unless null, replaces the arguments of
-- the call. Returns the state of the ask.
create function turnkeeper.answer_ask(
    ask         bigint,
    decision    text,
    answered_by text,
    channel     text default 'sql',
    comment     text default null,
    answer      text default null,
    edited      text default null,
    hash        text default null
) returns text language plpgsql as $$
#variable_conflict use_column
declare
    v_turn  bigint;
    v_takes text;
    a       turnkeeper.asks;
begin
    select k.turn_id into v_turn from turnkeeper.asks k where k.id = answer_ask.ask;
    perform from turnkeeper.turns t where t.id = v_turn for update; -- before the ask: all writers lock in this order
    select * into a from turnkeeper.asks k where k.id = answer_ask.ask for update;
    if not found then
        raise exception using errcode = 'TK013', message = format('no such ask: %s',
            coalesce(answer_ask.ask::text, 'null'));
    end if;
    v_takes := case when a.kind in ('approve', 'budget', 'reply') then 'approved' else 'answered' end;
    if answer_ask.decision is null or answer_ask.decision <> v_takes and (answer_ask.decision <> 'denied'
        or a.kind = 'settle') then
        raise exception using errcode = 'TK014',
            message = format('invalid answer: an ask of kind %s can be %s%s, not %s',
            a.kind, v_takes, case when a.kind <> 'settle' then ' or denied' end, coalesce(answer_ask.decision, 'null'));
    end if;
    if coalesce(btrim(answer_ask.answered_by), '') = '' or octet_length(answer_ask.answered_by) > 200
        or octet_length(answer_ask.channel) > 200 or octet_length(answer_ask.comment) > 4000
        or octet_length(answer_ask.answer) > 65536 or octet_length(answer_ask.edited) > 262144 then
        raise exception using errcode = 'TK014', message =
            'invalid answer: it needs who answers, in at most 200 bytes; a comment has at most 4,000 bytes, an answer 65,536, edited arguments 262,144';
    end if;
    if cardinality(a.audience) > 0 and answer_ask.answered_by <> all(a.audience) then
        raise exception using errcode = 'TK014', message = format('invalid answer: the ask is for %s, not for %s',
            array_to_string(a.audience, ', '), answer_ask.answered_by);
    end if;
    if (answer_ask.decision = 'answered') <> (answer_ask.answer is not null)
        or answer_ask.edited is not null and (answer_ask.decision <> 'approved' or a.kind <> 'approve') then
        raise exception using errcode = 'TK014', message =
            'invalid answer: "answered" needs an answer, which other decisions do not take; only the approval of a call takes edited arguments';
    end if;
    if a.kind = 'settle' and answer_ask.answer not in ('"happened"', '"did_not_happen"', '"unknown"') then
        raise exception using errcode = 'TK014',
            message = 'invalid answer: it must be "happened", "did_not_happen" or "unknown", in quotes';
    end if;
    if answer_ask.hash <> a.args_hash then
        raise exception using errcode = 'TK014',
            message = 'invalid answer: the hash is not that of the ask''s arguments';
    end if;
    if a.state <> 'open' then
        if a.state = answer_ask.decision and a.answered_by = answer_ask.answered_by and a.answer is not distinct
            from answer_ask.answer
            and a.edited is not distinct from answer_ask.edited and a.comment is not distinct
                from nullif(btrim(answer_ask.comment), '') then
            return a.state;
        end if;
        raise exception using errcode = 'TK012', message = format('the ask is closed: it was %s%s', a.state,
            coalesce(' by ' || a.answered_by, ''));
    end if;
    if a.expires_at <= clock_timestamp() then
        raise exception using errcode = 'TK012', message = format('the ask is closed: it expired at %s', a.expires_at);
    end if;
    begin
        if jsonb_typeof(answer_ask.edited::jsonb) <> 'object' then
            raise exception using errcode = 'TK014',
                message = 'invalid answer: the edited arguments are not a JSON object';
        end if;
        perform answer_ask.answer::jsonb;
    exception when invalid_text_representation or untranslatable_character or numeric_value_out_of_range
        or statement_too_complex then
        raise exception using errcode = 'TK014',
            message = 'invalid answer: the answer, or the edited arguments, are not JSON that can be stored';
    end;
    update turnkeeper.asks k set state = answer_ask.decision, closed_at = greatest(clock_timestamp(), k.opened_at),
        answered_by = answer_ask.answered_by, channel = coalesce(answer_ask.channel, 'sql'),
        comment = nullif(btrim(answer_ask.comment), ''),
        answer = answer_ask.answer, edited = answer_ask.edited, edited_hash = turnkeeper.args_hash(a.tool,
            answer_ask.edited)
    where k.id = a.id;
    perform turnkeeper.wake_turn(a.turn_id);
    return answer_ask.decision;
end $$;

comment on function turnkeeper.answer_ask(bigint, text, text, text, text, text, text, text) is
    'Answers an ask in the caller''s transaction, and queues its turn. decision: approved, denied or answered. answered_by: the '
    'person''s name; the caller is trusted. comment: for the model. answer: JSON, only with answered. edited: JSON, only with '
    'approved: arguments to run instead. hash: of the arguments that the person saw; null: not compared. A repeat of the same '
    'answer by the same person does nothing; another answer, comment or person fails.';

-- Whether a message that is held with a parked turn is locked by its sender, who changes it. A tick must not wait for
-- that.
create function turnkeeper.held_locked(p_turn bigint) returns boolean language plpgsql as $$
declare
    v_lane text;
    n      bigint;
begin
    select t.lane into v_lane from turnkeeper.turns t where t.id = p_turn and t.home_lane is not null;
    select count(*) into n from (
        select from turnkeeper.waiting m where m.lane = v_lane for no key update skip locked) free;
    return n < (select count(*) from turnkeeper.waiting m where m.lane = v_lane);
end $$;

-- Close at most p_limit expired asks, and queue their turns. The caller has the scheduler's lock. Turns whose row is
-- locked are left to a later tick. An ask that cannot be closed is set aside, and stops no other.
create function turnkeeper.expire_asks(p_limit integer) returns integer language plpgsql as $$
declare
    a record;
    n integer := 0;
begin
    for a in select k.id, k.turn_id from turnkeeper.asks k
        where k.state = 'open' and k.expires_at <= statement_timestamp() and not turnkeeper.is_aside('ask', k.id::text)
        order by k.expires_at limit p_limit
    loop
        begin
            perform from turnkeeper.turns where id = a.turn_id for update skip locked;
            if found and not turnkeeper.held_locked(a.turn_id) then
                update turnkeeper.asks set state = 'expired', closed_at = greatest(clock_timestamp(), opened_at)
                    where id = a.id and state = 'open';
                perform turnkeeper.wake_turn(a.turn_id);
                n := n + 1;
            end if;
        exception when others then
            perform turnkeeper.put_aside_or_raise('ask', a.id::text, sqlstate, sqlerrm);
        end;
    end loop;
    return n;
end $$;

-- Withdraw open asks of a turn whose row the caller has locked: those of calls that the turn has answered without them,
-- or all asks of a turn that ends or finishes.
create function turnkeeper.withdraw_asks(p_turn bigint, p_rounds integer[] default null,
    p_ordinals integer[] default null) returns void language plpgsql as $$
begin
    update turnkeeper.asks set state = 'withdrawn', closed_at = greatest(clock_timestamp(), opened_at),
        seen_at = case when p_rounds is not null then greatest(clock_timestamp(), opened_at) end
    where turn_id = p_turn and state = 'open'
      and (p_rounds is null or (round, ordinal) in (select * from unnest(p_rounds, p_ordinals)));
end $$;

----------------------------------------------------------------------------------------------------
-- Parking
----------------------------------------------------------------------------------------------------

-- Move a turn that waits for a person out of its lane, if it would block others there: other conversations or, unless
-- its asks hold them, later messages of its own conversation. Held messages move with it. No other lane has a '#' right
-- after its agent's name, so the new lane has no other turn. A sub-agent has its own lane. After a change of the
-- agent's lanes, the lane of a conversation may block others too.
create function turnkeeper.park_turn(p_turn bigint) returns void language plpgsql as $$
declare
    t      record;
    v_hold boolean;
begin
    select bool_or(a.hold) into v_hold from turnkeeper.asks a where a.turn_id = p_turn and a.state = 'open';
    if v_hold is null then -- it asks nobody
        return;
    end if;
    select * into t from turnkeeper.turns where id = p_turn;
    if v_hold and t.lane = turnkeeper.lane_of(t.agent, t.user_name, t.conversation, true)
        and not exists (select from turnkeeper.agents a where a.name = t.agent and not a.lane_per_conversation)
        or exists (select from turnkeeper.spawned_calls where message_id = t.message_id) then
        return;
    end if;
    update turnkeeper.turns set lane = t.agent || '#' || p_turn, home_lane = t.lane, held = v_hold where id = p_turn;
    if v_hold then
        update turnkeeper.messages set lane = t.agent || '#' || p_turn, held = true
        where id in (select m.id from turnkeeper.waiting m where m.lane = t.lane and m.agent = t.agent
            -- move_held moves what a sender has locked
            and m.user_name = t.user_name and m.conversation = t.conversation for no key update skip locked);
    end if;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- Return a parked turn to its lane when it no longer waits. The messages held with it return at once, and the turn
-- itself when it is granted or closed. Until then its lane may run another turn.
create function turnkeeper.unpark_turn() returns trigger language plpgsql as $$
begin
    if old.state = 'waiting' then
        update turnkeeper.messages m set lane = turnkeeper.lane_now(m, old.home_lane), held = false,
            queue_rank = turnkeeper.rank_from_now(m)
        where closed_at is null and in_queue and state <> 'running' and lane = old.lane;
    end if;
    if new.state <> 'queued' then
        new.lane := old.home_lane;
        new.home_lane := null;
        new.held := false;
    end if;
    return new;
end $$;
create trigger turn_unparks before update of state on turnkeeper.turns
    for each row when (old.home_lane is not null and old.state is distinct from new.state)
    execute function turnkeeper.unpark_turn();

-- Whether a turn that waits outside its lane, or goes back to it, holds a conversation.
create function turnkeeper.conversation_held(p_agent text, p_user text,
    p_conversation text) returns boolean stable language plpgsql as $$
begin
    return exists (select from turnkeeper.turns t where t.agent = p_agent and t.user_name = p_user
        and t.conversation = p_conversation
        and t.home_lane is not null and t.ended_at is null and t.held);
end $$;

-- Whether a parked turn blocks a waiting message: one that returns to the message's lane and has the lower rank, or one
-- that holds the message's conversation.
create function turnkeeper.parked_turn_blocks(p_agent text, p_user text, p_conversation text, p_lane text,
    p_rank timestamptz,
    p_id bigint)
returns boolean stable language plpgsql as $$
begin
    return exists (select from turnkeeper.turns t where t.home_lane = p_lane and t.state = 'queued'
            and (select (m.rank, m.id) < (p_rank, p_id) from turnkeeper.messages m where m.id = t.message_id))
        or turnkeeper.conversation_held(p_agent, p_user, p_conversation);
end $$;

-- The lane with the held messages of a conversation; null: none are held.
create function turnkeeper.held_lane(p_agent text, p_user text,
    p_conversation text) returns text stable language plpgsql as $$
begin
    return (
        select t.lane from turnkeeper.turns t
        where t.agent = p_agent and t.user_name = p_user and t.conversation = p_conversation and t.home_lane is not null
            and t.ended_at is null and t.held limit 1);
end $$;

-- Move held messages that were accepted after the turn was parked out of the lanes that they would block. The caller
-- has the scheduler's lock. It looks only at the oldest p_limit waiting messages that are not held yet; later ones
-- block nothing yet. A turn whose messages cannot be moved is set aside, and stops no other.
create function turnkeeper.move_held(p_limit integer) returns integer language plpgsql as $$
declare
    v_turn bigint;
    v      record;
    moved  integer;
    n      integer := 0;
begin
    for v_turn in select distinct t.id from turnkeeper.oldest_waiting(p_limit) w
        join turnkeeper.messages m on m.id = w.id
        join turnkeeper.turns t on t.agent = m.agent and t.user_name = m.user_name and t.conversation = m.conversation
        where t.home_lane is not null and t.ended_at is null and t.held and t.state = 'waiting' and m.lane <> t.lane
          and not turnkeeper.is_aside('turn', t.id::text)
        order by t.id
    loop
        begin
            select * into v from turnkeeper.turns where id = v_turn and state = 'waiting'
                and held for no key update skip locked;
            if found then
                update turnkeeper.messages set lane = v.lane, held = true
                where id in (select m.id from turnkeeper.waiting m where m.agent = v.agent
                    and m.user_name = v.user_name and m.conversation = v.conversation
                    and m.lane <> v.lane for no key update skip locked);
                get diagnostics moved = row_count;
                n := n + moved;
            end if;
        exception when others then
            perform turnkeeper.put_aside_or_raise('turn', v_turn::text, sqlstate, sqlerrm);
        end;
    end loop;
    return n;
end $$;

-- The path from the root of the tree to a turn, as a JSON array: turn, agent and, except for the last, the call that
-- spawned the next one.
create function turnkeeper.tree_path(p_turn bigint) returns jsonb stable language plpgsql as $$
begin
    return (
        with recursive up (turn_id, agent, round, ordinal, depth) as (
            select t.id, t.agent, null::integer, null::integer, 0 from turnkeeper.turns t where t.id = p_turn
            union all
            select c.turn_id, t.agent, c.round, c.ordinal, up.depth + 1
            from up join turnkeeper.turns b on b.id = up.turn_id
            join turnkeeper.spawned_calls c on c.message_id = b.message_id join turnkeeper.turns t on t.id = c.turn_id
        )
        select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('turn', turn_id, 'agent', agent, 'round', round,
            'ordinal', ordinal))
            order by depth desc), '[]') from up);
end $$;

----------------------------------------------------------------------------------------------------
-- Deliveries to webhooks
----------------------------------------------------------------------------------------------------

alter table turnkeeper.webhook_deliveries add constraint webhook_deliveries_ask_id_fkey foreign key (
    ask_id) references turnkeeper.asks;

-- Insert the deliveries of an ask, for the webhooks that get asks. Like push_reply, it locks nothing.
create function turnkeeper.push_ask() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.webhook_deliveries (ask_id, webhook)
    select new.id, w.name from turnkeeper.webhooks w
    where w.asks and (w.agents is null or exists (select from turnkeeper.turns t where t.id = new.turn_id
        and t.agent = any(w.agents)));
    return null;
end $$;
create trigger push_ask after insert on turnkeeper.asks for each row execute function turnkeeper.push_ask();

-- Delete the deliveries of asks that were closed before they were delivered. Attempts in progress continue.
create function turnkeeper.drop_closed_asks(p_webhook text) returns void language plpgsql as $$
declare
    v_id bigint;
begin
    for v_id in select d.id from turnkeeper.webhook_deliveries d join turnkeeper.asks a on a.id = d.ask_id
        where d.webhook = p_webhook and d.state = 'pending' and d.ask_id is not null and d.due_at <= clock_timestamp()
            and a.state <> 'open'
          and not turnkeeper.is_aside('delivery', d.id::text)
        for update of d skip locked
    loop
        begin
            delete from turnkeeper.webhook_deliveries where id = v_id;
        exception when others then
            perform turnkeeper.put_aside_or_raise('delivery', v_id::text, sqlstate, sqlerrm);
        end;
    end loop;
end $$;

----------------------------------------------------------------------------------------------------
-- Who sent the message that a turn works on
----------------------------------------------------------------------------------------------------

-- The token that sent the message of the root of an ask's tree; null: none, as with SQL or a schedule.
create function turnkeeper.ask_sender(p_ask bigint) returns bigint stable language plpgsql as $$
begin
    return (
        select substring(m.sent_by from '^token:([0-9]+)$')::bigint
        from turnkeeper.asks a
        join turnkeeper.turns r on r.id = (turnkeeper.tree_path(a.turn_id) -> 0 ->> 'turn')::bigint
        join turnkeeper.messages m on m.id = r.message_id where a.id = p_ask);
end $$;

----------------------------------------------------------------------------------------------------
-- The wait for a service
----------------------------------------------------------------------------------------------------

-- Since when an open message has waited for a service: since the first failure in one of its turns. A message that no
-- turn has tried since waits from the time at which its whole chain was down, and it was due and waited neither for a
-- person nor a budget. null: it does not wait for one.
create function turnkeeper.failing_from(p_message bigint) returns timestamptz stable language plpgsql as $$
begin
    return (
        select coalesce(m.failing_since, case when turnkeeper.chain_down(now.models) then greatest(m.accepted_at,
            m.due_at, m.failing_after,
            (select max(h.down_since) from turnkeeper.model_health h where h.model = any(now.models)),
            (select max(k.closed_at) from turnkeeper.asks k where k.turn_id = t.id)) end)
        from turnkeeper.messages m
        left join lateral (select turnkeeper.models_now(a) as models from turnkeeper.agents a where a.name = m.agent
            and exists (select from turnkeeper.model_health where down_since is not null) offset 0) now on true
        left join turnkeeper.turns t on t.id = m.turn_id and t.ended_at is null
        where m.id = p_message);
end $$;

-- How long a message has waited for a service, which agents.give_up_after limits.
create function turnkeeper.service_wait(p_message bigint) returns interval stable language plpgsql as $$
begin
    return (
        select m.failed_for + coalesce(greatest(statement_timestamp() - turnkeeper.failing_from(m.id), interval '0'),
            interval '0')
        from turnkeeper.messages m where m.id = p_message);
end $$;
