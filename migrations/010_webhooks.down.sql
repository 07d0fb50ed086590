drop function turnkeeper.purge(text, text, timestamptz, bigint, integer, boolean, boolean);
drop trigger push_reply on turnkeeper.replies;
drop function turnkeeper.claim_deliveries, turnkeeper.push_reply;
drop table turnkeeper.webhook_deliveries, turnkeeper.webhooks;

create function turnkeeper.purge(
    p_agent text, p_conversation text, p_before timestamptz, p_after bigint, p_limit integer, p_dry boolean,
    out messages bigint, out turns bigint, out outputs bigint, out last bigint
) language plpgsql as $$
declare
    m_ids bigint[];
    t_ids bigint[];
    o_ids text[];
begin
    if p_dry then
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
            order by m.id limit p_limit) b;
    else
        select array_agg(b.id) into m_ids from (
            select m.id from turnkeeper.messages m
            where m.id > p_after and m.closed_at is not null and (p_agent = '' or m.agent = p_agent)
              and (p_conversation = '' or m.conversation = p_conversation) and (p_before is null or m.closed_at < p_before)
            order by m.id limit p_limit for update skip locked) b;
    end if;
    select coalesce(array_agg(t.id), '{}') into t_ids from turnkeeper.turns t where t.message_id = any(m_ids);
    select coalesce(array_agg(o.id), '{}') into o_ids from turnkeeper.outputs o where o.turn_id = any(t_ids);
    messages := coalesce(cardinality(m_ids), 0);
    turns := cardinality(t_ids);
    outputs := cardinality(o_ids);
    last := m_ids[cardinality(m_ids)];
    if p_dry or messages = 0 then
        return;
    end if;
    delete from turnkeeper.detached_calls where turn_id = any(t_ids);
    delete from turnkeeper.awaited_calls where turn_id = any(t_ids);
    delete from turnkeeper.call_starts where turn_id = any(t_ids);
    delete from turnkeeper.calls where turn_id = any(t_ids);
    delete from turnkeeper.rounds where turn_id = any(t_ids);
    delete from turnkeeper.output_chunks where output_id = any(o_ids);
    delete from turnkeeper.outputs where turn_id = any(t_ids);
    delete from turnkeeper.turn_events where turn_id = any(t_ids);
    delete from turnkeeper.replies where message_id = any(m_ids);
    delete from turnkeeper.extractions where turn_id = any(t_ids);
    delete from turnkeeper.spend where scope in (select 'turn:' || id from unnest(t_ids) id) and period = '';
    delete from turnkeeper.spend_reservations where turn_id = any(t_ids);
    delete from turnkeeper.lease_log where turn_id = any(t_ids);
    delete from turnkeeper.cancellations where turn_id = any(t_ids);
    delete from turnkeeper.river_job where kind in ('AgentTurn', 'DetachedCall') and finalized_at is not null
        and (args ->> 'turn_id')::bigint = any(t_ids);
    delete from turnkeeper.turns where id = any(t_ids);
    delete from turnkeeper.retries where message_id = any(m_ids) or retried_as = any(m_ids);
    -- A summary goes with the turn that made it; but not while a request that was made
    -- with it is kept, or one may be under way.
    delete from turnkeeper.summaries s
    where (s.agent, s.conversation) in (select m.agent, m.conversation from turnkeeper.messages m where m.id = any(m_ids))
      and not exists (select from turnkeeper.turns t where t.id = s.turn_id)
      and not exists (select from turnkeeper.turns t where t.agent = s.agent and t.conversation = s.conversation
            and t.state in ('queued', 'running', 'waiting'))
      and not exists (select from turnkeeper.turns t join turnkeeper.rounds r on r.turn_id = t.id
            where t.agent = s.agent and t.conversation = s.conversation and t.id > s.up_to
              and (r.request ->> 'summary')::bigint = s.up_to);
    delete from turnkeeper.messages where id = any(m_ids);
end $$;
