-- Agents that work for agents: messages that a call of a turn has written, whose
-- replies are the results of those calls.
-- Oldest program: 2
-- Locks: calls, replies, turns and spend_reservations, for a moment, to add triggers and a column without a default.

-- The tree that a turn began: the bounds of all below it.
create table turnkeeper.agent_trees (
    root       bigint primary key, -- the turn it began with
    max_depth  integer not null check (max_depth >= 0),
    max_agents integer not null check (max_agents >= 0),
    tokens     bigint not null default 0 check (tokens >= 0), -- of all model calls of the tree; 0: no bound
    calls      bigint not null default 0 check (calls >= 0)
);

-- A call that has given work to another agent. The row says who a turn was spawned
-- by, for as long as its parent's records are kept, whatever becomes of its own.
create table turnkeeper.spawned_calls (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    message_id bigint unique,            -- null: refused, and none was written
    agent      text not null,
    root       bigint not null references turnkeeper.agent_trees,
    agents     text[] not null,          -- from the root's to this one
    spawned_at timestamptz not null default clock_timestamp(),
    deadline   timestamptz not null,     -- of the wait for its reply
    trouble    text,                     -- why there is no reply for the call
    child      bigint,                   -- the turn whose reply it was
    outcome    text check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    stop       text,
    ended_at   timestamptz,              -- since it has its reply, or was refused
    told_at    timestamptz,              -- since the call has its letter, or nobody waits for one
    dropped_at timestamptz,              -- since nobody waits for it any more: it is cancelled
    primary key (turn_id, round, ordinal),
    check (cardinality(agents) > 1),
    check (message_id is not null or (trouble is not null and ended_at is not null)),
    check (outcome is null or ended_at is not null)
) with (fillfactor = 70);
create index spawned_calls_tree on turnkeeper.spawned_calls (root);
create index spawned_calls_untold on turnkeeper.spawned_calls (ended_at) where ended_at is not null and told_at is null;
create index spawned_calls_open on turnkeeper.spawned_calls (deadline) where ended_at is null and told_at is null;
create index spawned_calls_dropped on turnkeeper.spawned_calls (dropped_at) where dropped_at is not null and ended_at is null;

-- Give the work of calls that the same write has started to other agents: one message
-- each, in a conversation and a lane of its own. It is as old and as urgent as what its
-- parent handles: so a tree that was begun is worked before younger messages. What may
-- not be is the result of its call.
create function turnkeeper.spawn_agents(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_messages bigint[], p_names text[], p_tasks text[],
    p_root bigint, p_agents text[], p_max_depth integer, p_max_agents integer, p_tokens bigint, p_calls bigint, p_within interval
) returns void language plpgsql as $$
declare
    parent    record;
    s         record;
    most      integer;
    max_bytes integer;
    conv      text;
    refused   text;
begin
    insert into turnkeeper.agent_trees (root, max_depth, max_agents, tokens, calls)
    values (p_root, p_max_depth, p_max_agents, p_tokens, p_calls) on conflict do nothing;
    -- One spawns at a time in a tree.
    select t.max_agents into most from turnkeeper.agent_trees t where t.root = p_root for update;
    select m.priority, m.due_at, m.trace_parent into parent
    from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id where t.id = p_turn;
    select max_message_bytes into max_bytes from turnkeeper.settings;
    for s in
        select u.round, u.ordinal, u.nonce, u.message, u.name, u.task
        from unnest(p_rounds, p_ordinals, p_nonces, p_messages, p_names, p_tasks) as u(round, ordinal, nonce, message, name, task)
    loop
        refused := case
            when not exists (select from turnkeeper.agents a where a.name = s.name) then 'unknown_agent'
            when octet_length(s.task) > max_bytes then 'task_too_long'
            when (select count(*) from turnkeeper.spawned_calls c where c.root = p_root and c.message_id is not null) >= most
                then 'max_tree_sub_agents'
        end;
        update turnkeeper.calls set elsewhere = true where turn_id = p_turn and round = s.round and ordinal = s.ordinal;
        update turnkeeper.rounds set version = 3 where turn_id = p_turn and round = s.round and version < 3;
        insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce) values (p_turn, s.round, s.ordinal, s.nonce);
        if refused is null then
            conv := format('turn-%s-round-%s-tool-%s', p_turn, s.round, s.ordinal);
            insert into turnkeeper.messages (id, agent, conversation, lane, body, priority, due_at, trace_parent)
            overriding system value
            values (s.message, s.name, conv, s.name || '/' || conv, s.task, parent.priority,
                least(parent.due_at, date_trunc('second', clock_timestamp())), parent.trace_parent);
        end if;
        insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline, trouble, ended_at)
        values (p_turn, s.round, s.ordinal, case when refused is null then s.message end, s.name, p_root, p_agents || s.name,
            clock_timestamp() + p_within, refused, case when refused is not null then clock_timestamp() end);
        if refused is not null then
            perform turnkeeper.tell_parent(p_turn, s.round, s.ordinal);
        end if;
    end loop;
    perform pg_notify('turnkeeper_inbox', '');
end $$;

-- Put what a sub-agent has come to into the letter box of its parent's call. It waits
-- for no lock: where the parent's row is held, the scheduler does it later. Whether
-- there is nothing left to tell.
create function turnkeeper.tell_parent(p_turn bigint, p_round integer, p_ordinal integer) returns boolean language plpgsql as $$
declare
    s       record;
    v_nonce text;
begin
    perform from turnkeeper.turns where id = p_turn for update skip locked;
    if not found and exists (select from turnkeeper.turns where id = p_turn) then
        return false;
    end if;
    select * into s from turnkeeper.spawned_calls where turn_id = p_turn and round = p_round and ordinal = p_ordinal for update;
    if s.told_at is not null then
        return true;
    end if;
    select nonce into v_nonce from turnkeeper.awaited_calls
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and arrived_at is null and closed_at is null;
    if found then
        perform turnkeeper.arrive_call(p_turn, p_round, p_ordinal, v_nonce,
            case when s.outcome in ('succeeded', 'degraded') then 'succeeded' else 'failed' end,
            format('the agent %s: %s', s.agent, coalesce(s.outcome, s.trouble)),
            greatest(extract(epoch from clock_timestamp() - s.spawned_at) * 1000, 0)::bigint, null);
    end if;
    update turnkeeper.spawned_calls set told_at = clock_timestamp() where turn_id = p_turn and round = p_round and ordinal = p_ordinal;
    return true;
end $$;

-- A sub-agent's reply is the end of its call, whoever wrote it. Both are one commit,
-- unless the parent's row is held.
create function turnkeeper.note_spawned_reply() returns trigger language plpgsql as $$
declare
    s record;
begin
    update turnkeeper.spawned_calls set child = new.turn_id, outcome = new.outcome, ended_at = clock_timestamp(),
        stop = (select stop_reason from turnkeeper.turns where id = new.turn_id)
    where message_id = new.message_id and ended_at is null
    returning turn_id, round, ordinal into s;
    if found then
        if not turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal) then
            perform pg_notify('turnkeeper_inbox', '');
        end if;
        -- Of a parent whose records are gone nothing is kept.
        delete from turnkeeper.spawned_calls where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal
            and not exists (select from turnkeeper.turns where id = s.turn_id);
    end if;
    return null;
end $$;
create trigger spawned_reply after insert on turnkeeper.replies for each row execute function turnkeeper.note_spawned_reply();

-- With an answer in the journal nobody waits for the sub-agent. One that runs is told to
-- stop; one that does not is closed by the next tick. No lock of its rows is taken:
-- its own end takes those in the other order.
create function turnkeeper.drop_spawned() returns trigger language plpgsql as $$
declare
    v_message bigint;
begin
    update turnkeeper.spawned_calls set dropped_at = clock_timestamp(), told_at = coalesce(told_at, clock_timestamp())
    where turn_id = new.turn_id and round = new.round and ordinal = new.ordinal and ended_at is null and dropped_at is null
    returning message_id into v_message;
    if found then
        insert into turnkeeper.cancellations (turn_id, reason)
        select t.id, turnkeeper.dropped_because(new.turn_id) from turnkeeper.turns t where t.message_id = v_message and t.ended_at is null
        on conflict do nothing;
        perform pg_notify('turnkeeper_cancels', ''), pg_notify('turnkeeper_inbox', '');
    end if;
    return null;
end $$;
create trigger call_dropped after update of state on turnkeeper.calls
    for each row when (old.elsewhere and old.state = 'running' and new.state <> 'running')
    execute function turnkeeper.drop_spawned();

create function turnkeeper.dropped_because(p_parent bigint) returns text immutable language sql
    return format('turn %s, which it worked for, no longer waits for it', p_parent);

-- What a tick does about sub-agents: it tells parents what could not be told at once,
-- gives up those that are overdue, and cancels those that nobody waits for. How many it did
-- something about. The caller has the scheduler's lock.
create function turnkeeper.settle_spawned(p_timely boolean, p_limit integer) returns integer language plpgsql as $$
declare
    s       record;
    n       integer := 0;
    v_state text;
    v_turn  bigint;
begin
    for s in select * from turnkeeper.spawned_calls where ended_at is not null and told_at is null
        order by ended_at limit p_limit for update skip locked
    loop
        n := n + turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal)::integer;
    end loop;
    for s in select c.* from turnkeeper.spawned_calls c join turnkeeper.turns t on t.id = c.turn_id
        where p_timely and c.ended_at is null and c.told_at is null and c.deadline <= statement_timestamp()
        order by c.deadline limit p_limit for update skip locked
    loop
        update turnkeeper.spawned_calls set trouble = 'timeout' where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal;
        n := n + turnkeeper.tell_parent(s.turn_id, s.round, s.ordinal)::integer;
    end loop;
    for s in select * from turnkeeper.spawned_calls where dropped_at is not null and ended_at is null
        order by dropped_at limit p_limit for update skip locked
    loop
        select m.state, m.turn_id into v_state, v_turn from turnkeeper.messages m where m.id = s.message_id for update skip locked;
        if v_state = 'waiting' then
            perform turnkeeper.cancel_waiting(s.message_id, turnkeeper.dropped_because(s.turn_id));
            n := n + 1;
        elsif v_state = 'running' then
            insert into turnkeeper.cancellations (turn_id, reason) values (v_turn, turnkeeper.dropped_because(s.turn_id)) on conflict do nothing;
            if found then
                perform pg_notify('turnkeeper_cancels', '');
            end if;
            select t.state into v_state from turnkeeper.turns t where t.id = v_turn for update skip locked;
            if v_state in ('queued', 'waiting') then
                perform turnkeeper.close_cancelled(v_turn);
                n := n + 1;
            end if;
        elsif not exists (select from turnkeeper.messages m where m.id = s.message_id) then -- it was purged
            update turnkeeper.spawned_calls set ended_at = clock_timestamp() where turn_id = s.turn_id and round = s.round and ordinal = s.ordinal;
        end if;
    end loop;
    return n;
end $$;

-- The records of sub-agents go with those of the turn that spawned them. What is not
-- at its end yet stays until it is.
create function turnkeeper.forget_spawned() returns trigger language plpgsql as $$
declare
    roots bigint[];
begin
    with gone as (
        delete from turnkeeper.spawned_calls s where s.turn_id = old.id and s.ended_at is not null returning s.root
    )
    select coalesce(array_agg(root), '{}') || old.id into roots from gone;
    delete from turnkeeper.agent_trees t where t.root = any(roots)
        and not exists (select from turnkeeper.turns r where r.id = t.root)
        and not exists (select from turnkeeper.spawned_calls s where s.root = t.root);
    delete from turnkeeper.spend where scope = 'tree:' || old.id and period = '';
    return null;
end $$;
create trigger spawned_forgotten after delete on turnkeeper.turns for each row execute function turnkeeper.forget_spawned();

-- The budget of a tree: what its model calls take, beside what they take of their own
-- turn's and agent's. The rows of spend are locked in one order: agent, turn, tree.
alter table turnkeeper.spend_reservations add column root bigint;

create function turnkeeper.reserve_tree_spend(
    p_root bigint, p_tree_tokens bigint, p_tree_calls bigint, p_turn bigint, p_agent text, p_tokens bigint,
    p_turn_tokens bigint, p_turn_calls bigint, p_day_tokens bigint, p_day_calls bigint,
    out reservation bigint, out blocked text, out used_tokens bigint, out used_calls bigint
) language plpgsql as $$
begin
    select r.reservation, r.blocked, r.used_tokens, r.used_calls into reservation, blocked, used_tokens, used_calls
    from turnkeeper.reserve_spend(p_turn, p_agent, p_tokens, p_turn_tokens, p_turn_calls, p_day_tokens, p_day_calls) r;
    if blocked <> '' then
        return;
    end if;
    insert into turnkeeper.spend (scope, period) values ('tree:' || p_root, '') on conflict do nothing;
    select tokens, calls into used_tokens, used_calls from turnkeeper.spend where scope = 'tree:' || p_root and period = '' for update;
    if (p_tree_tokens > 0 and used_tokens + p_tokens > p_tree_tokens) or (p_tree_calls > 0 and used_calls + 1 > p_tree_calls) then
        update turnkeeper.spend s set tokens = s.tokens - p_tokens, calls = s.calls - 1
        from turnkeeper.spend_reservations r
        where r.id = reservation and (s.scope, s.period) in (('turn:' || p_turn, ''), ('agent:' || p_agent, r.period));
        delete from turnkeeper.spend_reservations where id = reservation;
        reservation := 0;
        blocked := 'tree';
        return;
    end if;
    update turnkeeper.spend set tokens = tokens + p_tokens, calls = calls + 1 where scope = 'tree:' || p_root and period = '';
    update turnkeeper.spend_reservations set root = p_root where id = reservation;
end $$;

create function turnkeeper.settle_tree_spend() returns trigger language plpgsql as $$
begin
    update turnkeeper.spend set tokens = tokens + new.used - new.tokens where scope = 'tree:' || new.root and period = '';
    return null;
end $$;
create constraint trigger tree_spend_settled after update on turnkeeper.spend_reservations
    deferrable initially deferred for each row
    when (new.root is not null and old.settled_at is null and new.settled_at is not null)
    execute function turnkeeper.settle_tree_spend();
