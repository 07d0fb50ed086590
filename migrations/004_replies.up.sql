-- Replies, and their delivery to webhooks.

----------------------------------------------------------------------------------------------------
-- The contents of a reply
----------------------------------------------------------------------------------------------------

-- Why a call did not succeed, without what its tool returned or the model wrote; empty: it succeeded, or was not
-- needed. The Go code (turnlog.ReplyCalls) has the same rules and texts. It has no from clause, so that Postgres
-- inlines it: reply_calls runs at the end of each turn.
create function turnkeeper.call_problem(p_state text, p_effect text, p_nonce text, p_preview text,
    p_shown text) returns text immutable language sql as $$
    select case p_state
        when 'succeeded' then ''
        when 'skipped' then ''
        when 'planned' then 'not run'
        when 'failed' then coalesce(substring(p_preview from '^tool error: ''[^'']*'' (timed out after [0-9.]+ s)'),
            'the tool failed')
        when 'denied' then coalesce(substring(p_shown
            from '^(?:denied: )?(tool not found|invalid arguments|not enough time left in this turn|over the limit'
            '|tools could not be called in the last round of this turn|the turn was asked to finish before this call was run|the answer was cut off before all of its tool calls were complete'
            '|the tool calls of this answer did not arrive whole|a person did not approve this call|nobody approved this call in time'
            '|a person changed the arguments of this call, but they are invalid|a person allowed this call)'),
                'refused')
        when 'cancelled' then case when p_effect <> 'none' and p_nonce <> '' then 'it may or may not have happened'
            else 'cancelled before it ended' end
        else 'it may or may not have happened'
    end
$$;

-- The calls of a turn, in the order in which the model asked for them: ordinal (in the turn, from 1), id, name, effect,
-- state, duration_ms (null: it did not run, or this is unknown) and error (empty: none).
-- It is PL/pgSQL, because Postgres plans a function in SQL anew for each call if it cannot inline it.
create function turnkeeper.reply_calls(p_turn bigint) returns jsonb stable language plpgsql as $$
begin
    return (select coalesce(jsonb_agg(jsonb_build_object(
            'ordinal', c.n, 'id', format('round-%s-tool-%s', c.round, c.ordinal), 'effect', c.effect, 'state', c.state,
            -- the model may have written anything there
            'name', case c.problem when 'tool not found' then '(unknown tool)' else c.name end,
            'duration_ms', case when c.duration_ms > 0 or c.state in ('succeeded', 'failed') then c.duration_ms end,
            'error', c.problem
        ) order by c.n), '[]')
        from (select *, row_number() over (order by round, ordinal) as n,
                  turnkeeper.call_problem(state, effect, nonce, preview, shown) as problem
              from turnkeeper.calls where turn_id = p_turn) c);
end $$;

-- Copy into a reply how its turn ended and who sent the message, unless the insert says it: several functions insert
-- replies.
create function turnkeeper.complete_reply() returns trigger language plpgsql as $$
begin
    if new.calls is null then
        select t.stop_reason, t.error_class into new.stop_reason, new.error_class from turnkeeper.turns t
            where t.id = new.turn_id;
        new.calls := turnkeeper.reply_calls(new.turn_id);
    end if;
    if new.sent_by is null then
        select m.sent_by into new.sent_by from turnkeeper.messages m where m.id = new.message_id;
    end if;
    return new;
end $$;
create trigger complete_reply before insert on turnkeeper.replies for each row when (new.calls is null
    or new.sent_by is null)
    execute function turnkeeper.complete_reply();

----------------------------------------------------------------------------------------------------
-- Reading the outbox
----------------------------------------------------------------------------------------------------

-- The highest id, of those up to p_last, before which no reply after p_after is missing.
--
-- Ids are assigned before their transactions commit, so a reply may become visible after one with a higher id, and a
-- reader that continues from the highest id would miss it. So this function waits for transactions that hold the
-- table's write lock, usually for milliseconds. After two seconds it stops before the first missing id.
create function turnkeeper.settled_replies(p_after bigint, p_last bigint) returns bigint language plpgsql as $$
declare
    v_last    bigint := p_last;
    v_writers text[];
    v_until   timestamptz := clock_timestamp() + interval '2 s';
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'feature_not_supported',
            message =
                'this function must see what other transactions commit: call it at the isolation level read committed';
    end if;
    if p_last is null or p_last = p_after + 1 then
        return p_last;
    end if;
    select array_agg(l.virtualtransaction) into v_writers from pg_locks l
    where l.locktype = 'relation' and l.relation = 'turnkeeper.replies'::regclass and l.mode = 'RowExclusiveLock'
        and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and l.pid <> pg_backend_pid();
    while v_writers is not null loop
        if clock_timestamp() >= v_until then
            select coalesce(min(g.before), v_last) into v_last from (
                select r.id, lag(r.id, 1, p_after) over (order by r.id) as before
                from turnkeeper.replies r where r.id > p_after and r.id <= v_last) g
            where g.id > g.before + 1;
            exit;
        end if;
        perform pg_sleep(0.002);
        select array_agg(l.virtualtransaction) into v_writers from pg_locks l
        where l.locktype = 'relation' and l.relation = 'turnkeeper.replies'::regclass and l.mode = 'RowExclusiveLock'
            and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
              and l.virtualtransaction = any(v_writers);
    end loop;
    return v_last;
end $$;

-- The replies after an id, by ascending id, at most p_limit; an empty agent or user means all. It leaves out replies
-- that may be preceded by ones that are not visible yet: see settled_replies.
create function turnkeeper.replies_after(
    p_after bigint, p_limit integer default 25, p_agent text default '', p_top_only boolean default false,
        p_user text default ''
) returns setof turnkeeper.replies language plpgsql as $$
declare
    v_last bigint;
begin
    select max(p.id) into v_last from (
        select r.id from turnkeeper.replies r
        where r.id > p_after and (p_agent = '' or r.agent = p_agent) and (p_user = '' or r.user_name = p_user)
            and (not p_top_only or r.parent_turn_id is null)
        order by r.id limit p_limit) p;
    v_last := turnkeeper.settled_replies(p_after, v_last);
    return query
        select * from turnkeeper.replies r
        where r.id > p_after and r.id <= v_last and (p_agent = '' or r.agent = p_agent)
            and (p_user = '' or r.user_name = p_user) and (not p_top_only or r.parent_turn_id is null)
        order by r.id limit p_limit;
end $$;

-- Like replies_after, but only the replies to messages of the session's role: see the section on senders in
-- 002_scheduling.
create function turnkeeper.my_replies_after(
    p_after bigint, p_limit integer default 25, p_agent text default '', p_user text default ''
)
returns setof turnkeeper.replies language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_me   constant text := 'role:' || session_user;
    v_last bigint;
begin
    select max(p.id) into v_last from (
        select r.id from turnkeeper.replies r
        where r.sent_by = v_me and r.id > p_after and (p_agent = '' or r.agent = p_agent)
            and (p_user = '' or r.user_name = p_user)
        order by r.id limit p_limit) p;
    v_last := turnkeeper.settled_replies(p_after, v_last);
    return query
        select * from turnkeeper.replies r
        where r.sent_by = v_me and r.id > p_after and r.id <= v_last and (p_agent = '' or r.agent = p_agent)
            and (p_user = '' or r.user_name = p_user)
        order by r.id limit p_limit;
end $$;

----------------------------------------------------------------------------------------------------
-- Webhooks
----------------------------------------------------------------------------------------------------

-- Insert the deliveries of a reply with the reply. It locks nothing: the end of a turn must not wait for a delivery.
-- The reply of a sub-agent is pushed only if the webhook has sub_agents set, because no client asked for it.
create function turnkeeper.push_reply() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.webhook_deliveries (reply_id, webhook)
    select new.id, w.name from turnkeeper.webhooks w
    where (w.agents is null or new.agent = any(w.agents))
      and (w.sub_agents or not exists (select from turnkeeper.spawned_calls s where s.message_id = new.message_id));
    return null;
end $$;
create trigger push_reply after insert on turnkeeper.replies for each row execute function turnkeeper.push_reply();

-- Claim due deliveries, oldest first, for p_hold. All workers together claim at most p_slots at a time. Each claim
-- counts as an attempt; claims of dead workers are void. The lock on the webhook's row serialises the counting. Whoever
-- changes both locks the webhook before its deliveries, and this waits for no delivery that another changes.
-- Deliveries of asks that were closed meanwhile are deleted: nobody needs to answer them. A delivery that fails is set
-- aside, and stops no other.
create function turnkeeper.claim_deliveries(p_webhook text, p_worker text, p_slots integer, p_limit integer,
    p_hold interval)
returns table (id bigint, claim text, attempts integer, tried_ms bigint, reply_id bigint,
    ask_id bigint) language plpgsql as $$
#variable_conflict use_column
declare
    free   integer;
    v_id   bigint;
    v_done bigint[] := '{}';
begin
    perform from turnkeeper.webhooks w
    where w.name = p_webhook and w.paused_at is null and (w.not_before is null or w.not_before <= clock_timestamp())
    for no key update;
    if not found then
        return;
    end if;
    for v_id in select d.id from turnkeeper.webhook_deliveries d
        join turnkeeper.worker_heartbeat h on h.worker_id = d.worker_id
        where d.webhook = p_webhook and d.claim is not null and d.due_at > clock_timestamp()
          and turnkeeper.worker_gone(h.stopped_at, h.beat_at, h.takeover_after)
              and not turnkeeper.is_aside('delivery', d.id::text)
        for update of d skip locked -- the end of an attempt may still run, although its worker is gone
    loop
        begin
            update turnkeeper.webhook_deliveries d set claim = null, due_at = clock_timestamp()
            where d.id = v_id;
        exception when others then
            perform turnkeeper.put_aside_or_raise('delivery', v_id::text, sqlstate, sqlerrm);
        end;
    end loop;
    perform turnkeeper.drop_closed_asks(p_webhook);
    select p_slots - count(*) into free from turnkeeper.webhook_deliveries d
    where d.webhook = p_webhook and d.claim is not null and d.due_at > clock_timestamp();
    for v_id in select d.id from turnkeeper.webhook_deliveries d
        where d.webhook = p_webhook and d.state = 'pending' and d.due_at <= clock_timestamp()
            and not turnkeeper.is_aside('delivery', d.id::text)
        order by d.due_at, d.id limit greatest(least(free, p_limit), 0) for update skip locked
    loop
        begin
            update turnkeeper.webhook_deliveries d set attempts = d.attempts + 1, claim = gen_random_uuid()::text,
                worker_id = p_worker,
                due_at = clock_timestamp() + p_hold, first_at = coalesce(d.first_at, clock_timestamp())
            where d.id = v_id;
            v_done := v_done || v_id;
        exception when others then
            perform turnkeeper.put_aside_or_raise('delivery', v_id::text, sqlstate, sqlerrm);
        end;
    end loop;
    if v_done <> '{}' and exists (select from turnkeeper.set_aside s where s.kind = 'delivery') then
        begin
            delete from turnkeeper.set_aside s where s.kind = 'delivery' and s.id = any(v_done::text[]);
        exception when others then
            perform turnkeeper.put_aside_or_raise('step', 'deliveries set aside', sqlstate, sqlerrm);
        end;
    end if;
    return query select d.id, d.claim, d.attempts, (extract(epoch from clock_timestamp() - d.first_at) * 1000)::bigint,
        d.reply_id, d.ask_id
        from unnest(v_done) u(id) join turnkeeper.webhook_deliveries d on d.id = u.id order by d.id;
end $$;
