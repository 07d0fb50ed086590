-- The promises of Turnkeeper as queries. Each row of a query is one violation, as a
-- text that says where. All promises hold at every moment, even while turns run; those
-- marked "at rest" hold only when nothing runs.

-- promise: a closed message has one reply
select 'message ' || m.id from turnkeeper.messages m left join turnkeeper.replies r on r.message_id = m.id
where m.closed_at is not null and m.trigger = 'message' group by m.id having count(r.id) <> 1

-- promise: a reply belongs to a closed message and to its newest turn
select 'reply ' || r.id || ' of message ' || m.id from turnkeeper.replies r
    join turnkeeper.messages m on m.id = r.message_id
where m.closed_at is null or m.turn_id <> r.turn_id

-- promise: turns, replies and sub-agents are of the user of their message
select 'turn ' || t.id from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
where (t.agent, t.user_name, t.conversation) <> (m.agent, m.user_name, m.conversation)
union all
select 'reply ' || r.id from turnkeeper.replies r join turnkeeper.messages m on m.id = r.message_id
where (r.agent, r.user_name, r.conversation) <> (m.agent, m.user_name, m.conversation)
union all
select 'message ' || m.id from turnkeeper.spawned_calls s join turnkeeper.messages m on m.id = s.message_id
join turnkeeper.turns t on t.id = s.turn_id where m.user_name <> t.user_name

-- promise: a closed message has no open turn, and an open message has no reply
select 'message ' || m.id || ', turn ' || t.id || ' ' || t.state
from turnkeeper.messages m join turnkeeper.turns t on t.message_id = m.id
where (m.closed_at is not null and t.ended_at is null)
   or (m.closed_at is null and t.state in ('succeeded', 'degraded', 'cancelled'))

-- promise: a running message has an open turn
select 'message ' || m.id from turnkeeper.messages m
where m.state = 'running' and not exists (select from turnkeeper.turns t where t.message_id = m.id
    and t.ended_at is null)

-- promise: ticks do not read the messages of turns that wait or are queued
select 'message ' || m.id || ' turn ' || t.id || ' ' || t.state
from turnkeeper.messages m join turnkeeper.turns t on t.message_id = m.id
where m.in_queue and t.state in ('waiting', 'queued')

-- promise: no call is open under a closed turn
select 'turn ' || c.turn_id || ' call ' || c.round || '.' || c.ordinal || ' ' || c.state
from turnkeeper.calls c join turnkeeper.turns t on t.id = c.turn_id
where t.ended_at is not null and c.state in ('planned', 'started', 'running')

-- promise: wire ids are unique in a turn
select 'turn ' || turn_id || ' wire id ' || wire_id from turnkeeper.calls group by turn_id, wire_id having count(*) > 1

-- promise: rounds, and the calls of each, are numbered 1 to n
select 'turn ' || turn_id from turnkeeper.rounds group by turn_id having count(*) <> max(round)
    or count(distinct round) <> max(round) or min(round) < 1
union all
select 'turn ' || turn_id || ' round ' || round from turnkeeper.calls group by turn_id, round
having count(*) <> max(ordinal) or count(distinct ordinal) <> max(ordinal) or min(ordinal) < 1

-- promise: every result names a planned call
select 'turn ' || r.turn_id || ' call ' || r.round || '.' || r.ordinal || ' in write ' || r.n
from turnkeeper.call_results r left join turnkeeper.calls c using (turn_id, round, ordinal) where c.turn_id is null

-- promise: a call moves only from a state to one that may follow
select 'turn ' || turn_id || ' call ' || round || '.' || ordinal || ' from ' || before || ' to ' || state from (
    select m.*, lag(state) over (partition by turn_id, round, ordinal order by n, step) as before from (
        select j.turn_id, j.round, c.ordinal, j.n, 0 as step, c.state
        from turnkeeper.journal_answers j, lateral json_to_recordset(j.calls) as c (ordinal integer, state text)
            where j.calls is not null union all
        select turn_id, round, ordinal, n, 1, 'started' from turnkeeper.call_starts where n > 0 union all
        select turn_id, round, ordinal, n, 2, state from turnkeeper.call_results
    ) m
) moves where case before
    when 'planned' then state not in ('started', 'succeeded', 'failed', 'skipped', 'denied', 'cancelled')
    when 'started' then state not in ('started', 'running', 'succeeded', 'failed', 'unknown', 'cancelled')
    when 'running' then state not in ('started', 'running', 'succeeded', 'failed', 'unknown', 'cancelled')
    else before is not null end

-- promise: the starts of a call are numbered 1 to n, and all are on record
select 'turn ' || turn_id || ' call ' || round || '.' || ordinal from turnkeeper.call_starts
group by turn_id, round, ordinal having count(*) <> max(attempt)
union all
select 'turn ' || t.id || ': it has executed ' || t.executed_calls || ' calls' from turnkeeper.turns_now t
left join turnkeeper.calls c on c.turn_id = t.id and not c.paging
    and (c.starts > 0 or c.state in ('succeeded', 'failed'))
group by t.id, t.executed_calls having count(c.turn_id) <> t.executed_calls

-- promise: every effect that happened or may have happened has a start on record
select 'turn ' || c.turn_id || ' call ' || c.round || '.' || c.ordinal || ' ' || c.state from turnkeeper.calls c
where c.effect <> 'none' and c.starts = 0 and c.state in ('started', 'running', 'succeeded', 'unknown')

-- promise: a call of effect once was started at most once, or again after a person said that it had not happened
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal from turnkeeper.call_starts s
where s.effect = 'once' and s.attempt > 1 and not exists (select from turnkeeper.asks a
    where a.id = s.ask_id and (a.turn_id, a.round, a.ordinal) = (s.turn_id, s.round, s.ordinal) and a.kind = 'settle'
        and a.n = s.attempt - 1
      and a.answer = '"did_not_happen"' and a.args_hash = s.run_hash)

-- promise: a call that needs an approval was started with the arguments that a person approved
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal from turnkeeper.call_starts s
left join turnkeeper.asks a on (a.turn_id, a.round, a.ordinal) = (s.turn_id, s.round, s.ordinal) and a.kind = 'approve'
where (a.id is not null or exists (select from turnkeeper.call_gates g
    where (g.turn_id, g.round, g.ordinal) = (s.turn_id, s.round, s.ordinal)))
  and (a.state is distinct from 'approved' or s.attempt = 1 and (s.ask_id is distinct from a.id or s.run_hash is null)
       or s.run_hash <> coalesce(a.edited_hash, a.args_hash))

-- promise: an approval is used by one start, of its own call
select 'ask ' || s.ask_id from turnkeeper.call_starts s left join turnkeeper.asks a on a.id = s.ask_id
where s.ask_id is not null group by s.ask_id
having count(*) > 1 or bool_or((a.turn_id, a.round, a.ordinal) is distinct from (s.turn_id, s.round, s.ordinal))

-- promise: a call that needs an approval has not run without a start
select 'turn ' || c.turn_id || ' call ' || c.round || '.' || c.ordinal || ' ' || c.state from turnkeeper.calls c
where c.starts = 0 and c.state not in ('planned', 'denied', 'cancelled', 'skipped')
  and (exists (select from turnkeeper.call_gates g where (g.turn_id, g.round, g.ordinal) = (c.turn_id,
      c.round, c.ordinal))
       or exists (select from turnkeeper.asks a where (a.turn_id, a.round, a.ordinal) = (c.turn_id, c.round, c.ordinal)
           and a.kind = 'approve'))

-- promise: no ask of an ended turn is open
select 'ask ' || a.id || ' of turn ' || a.turn_id from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
where a.state = 'open' and t.ended_at is not null

-- promise: no expired ask stays open while the scheduler may act
select 'ask ' || a.id || ' of turn ' || a.turn_id from turnkeeper.asks a, turnkeeper.settings s
where a.state = 'open' and a.expires_at < clock_timestamp() - interval '60 s'
  and coalesce(s.hold_until, '-infinity') < clock_timestamp() and s.last_tick_at > clock_timestamp() - interval '5 min'

-- promise: a turn outside its lane waits, or goes back, and holds only messages of its conversation
-- A survival level holds others.
select 'turn ' || t.id || ' ' || t.state from turnkeeper.turns t
where (t.home_lane is not null) <> (t.lane = t.agent || '#' || t.id) or t.home_lane is not null
    and t.state not in ('waiting', 'queued')
union all
select 'message ' || m.id || ' in lane ' || m.lane from turnkeeper.messages m
where m.state = 'waiting' and m.held <> starts_with(m.lane, m.agent || '#')
   or m.state = 'waiting' and m.held and m.lane <> turnkeeper.level_lane(m.agent) and not exists (select
       from turnkeeper.turns t
    where t.lane = m.lane and t.home_lane is not null and t.held and t.state = 'waiting' and t.agent = m.agent
      and t.user_name = m.user_name and t.conversation = m.conversation)

-- promise: every call was started under the grant that its turn had at that time
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal || ' under token ' || s.token
from turnkeeper.call_starts s join turnkeeper.turns t on t.id = s.turn_id
left join turnkeeper.lease_log g on g.lane = coalesce(t.home_lane, t.lane) and g.token = s.token
    and g.turn_id = s.turn_id
where s.token > 0 and t.leases_expired_at is null and (g.turn_id is null or s.started_at < g.granted_at
    or s.started_at > g.ended_at)

-- promise: all calls of a grant were started by the worker bound to it
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal || ' by worker ' || s.worker_id
    || ' under token ' || s.token
from turnkeeper.call_starts s join turnkeeper.turns t on t.id = s.turn_id
left join turnkeeper.lease_log g on g.lane = coalesce(t.home_lane, t.lane) and g.token = s.token
    and g.turn_id = s.turn_id
where s.token > 0 and t.leases_expired_at is null and s.worker_id is distinct
    from coalesce(g.worker_id, case when t.token = s.token then t.worker_id end)

-- promise: the record of a start agrees with its call
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal || ' start ' || s.attempt
from turnkeeper.call_starts s join turnkeeper.calls c using (turn_id, round, ordinal)
where (s.agent, s.name, s.args_hash, s.effect) <> (c.agent, c.name, c.args_hash, c.effect)

-- promise: only detached calls were restarted without a grant
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal from turnkeeper.call_starts s
where s.token = 0 and (s.attempt = 1 or not exists (select from turnkeeper.detached_calls d
    where (d.turn_id, d.round, d.ordinal) = (s.turn_id, s.round, s.ordinal) and d.attempt >= s.attempt))

-- promise: a waiting turn holds no lease, and awaits a result or an answer that has not come
select 'turn ' || t.id from turnkeeper.turns t
where t.state = 'waiting' and (t.grant_id is not null or t.lease_until > clock_timestamp() and exists (
        select from turnkeeper.leases l where l.turn_id = t.id)
    or exists (select from turnkeeper.river_job j where j.id = t.job_id and j.finalized_at is null)
    -- A turn that waits for a model may await nothing else, and results may have arrived.
    or t.waits_for is null and (
        exists (select from turnkeeper.awaited_calls a where a.turn_id = t.id and a.closed_at is null
            and a.arrived_at is not null)
        or exists (select from turnkeeper.asks a where a.turn_id = t.id and a.state <> 'open' and a.seen_at is null)
        or not exists (select from turnkeeper.awaited_calls a where a.turn_id = t.id and a.closed_at is null)
           and not exists (select from turnkeeper.asks a where a.turn_id = t.id and a.state = 'open')))

-- promise: awaited calls are open, and open detached calls are awaited
select 'turn ' || c.turn_id || ' call ' || c.round || '.' || c.ordinal || ' ' || c.state
from turnkeeper.calls c left join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
where c.awaited and (a.turn_id is null or (a.closed_at is null) <> (c.state = 'running'))

-- promise: the run of a detached call has ended once its result has arrived or is no longer awaited
select 'turn ' || a.turn_id || ' call ' || a.round || '.' || a.ordinal
from turnkeeper.awaited_calls a join turnkeeper.detached_calls d using (turn_id, round, ordinal)
where (a.arrived_at is null and a.closed_at is null) <> (d.ended_at is null)

-- promise: a sub-agent has ended when its message is closed
select 'message ' || m.id || ' of turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal
from turnkeeper.spawned_calls s join turnkeeper.messages m on m.id = s.message_id
where (m.closed_at is null) <> (s.ended_at is null)

-- promise: a call whose sub-agent is reported has the result, and an answered call awaits no sub-agent
select 'turn ' || s.turn_id || ' call ' || s.round || '.' || s.ordinal || ' ' || c.state
from turnkeeper.spawned_calls s join turnkeeper.calls c using (turn_id, round, ordinal) join turnkeeper.awaited_calls a
    using (turn_id, round, ordinal)
where c.state = 'running' and (s.dropped_at is not null or (s.notified_at is null) <> (a.arrived_at is null))
   or c.state <> 'running' and s.ended_at is null and s.dropped_at is null

-- promise: a tree of sub-agents keeps its bounds, and no agent is its own ancestor
select 'turn ' || t.root from turnkeeper.agent_trees t join turnkeeper.spawned_calls s on s.root = t.root
group by t.root, t.max_agents, t.max_depth
having count(s.message_id) > t.max_agents or max(cardinality(s.agents)) - 1 > t.max_depth
    or bool_or(cardinality(s.agents) <> (select count(distinct a) from unnest(s.agents) a))

-- promise: nothing is granted in a lane while a message that is ahead of it waits again
-- Between the attempts of a message, or since the newest one if it waits, its lane was granted to one with a higher
-- rank. Messages that a turn outside the lane holds are not in the lane.
select 'turn ' || g.turn_id || ' before message ' || m.id || ' in lane ' || m.lane
from turnkeeper.turns p join turnkeeper.messages m on m.id = p.message_id and m.lane = p.lane
left join turnkeeper.turns n on n.message_id = m.id and n.attempt = p.attempt + 1
join turnkeeper.lease_log g on g.lane = p.lane and g.token > p.token
    and (n.id is null or g.token < (select min(f.token) from turnkeeper.lease_log f
        where f.turn_id = n.id and f.lane = p.lane))
join turnkeeper.turns b on b.id = g.turn_id join turnkeeper.messages o on o.id = b.message_id
where p.state = 'failed' and (n.id is null and m.state = 'waiting' or n.dispatches > 0)
    and (o.rank, o.id) > (m.rank, m.id)
  and not exists (select from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
        where t.agent = m.agent and t.user_name = m.user_name and t.conversation = m.conversation and a.hold
            and a.opened_at <= g.granted_at
          and (a.closed_at is null or a.closed_at >= g.granted_at))

-- promise: the grants of a lane do not overlap
select 'lane ' || a.lane || ' tokens ' || a.token || ' and ' || a.next
from (select g.lane, g.token, g.ended_at, lead(g.token) over later as next, lead(g.granted_at) over later as next_at
    from turnkeeper.lease_log g window later as (partition by g.lane order by g.token)) a
where coalesce(a.ended_at, 'infinity') > a.next_at

-- promise: a running turn holds its lane, and a held lane runs its turn
select 'turn ' || coalesce(t.id, l.turn_id) || ' in lane ' || coalesce(t.lane, l.lane)
from (select * from turnkeeper.turns where state = 'running') t
full join (select * from turnkeeper.leases where grant_id is not null) l on l.turn_id = t.id and l.grant_id = t.grant_id
where t.id is null or l.lane is null or l.token <> t.token

-- promise: a held grant has not ended
select 'grant ' || g.grant_id || ' of turn ' || g.turn_id from turnkeeper.ended_grants g
where exists (select from turnkeeper.leases l where l.grant_id = g.grant_id)

-- promise: no expired lease stays unnoticed while the scheduler may act
select 'lane ' || l.lane || ', turn ' || l.turn_id || ', lapsed ' || l.lease_until
from turnkeeper.leases l, turnkeeper.settings s
where l.grant_id is not null and l.lease_until < clock_timestamp() - interval '60 s'
  and coalesce(s.hold_until, '-infinity') < clock_timestamp()
  and s.last_tick_at > clock_timestamp() - interval '5 min'

-- promise: a turn that has used a labelled result has the label
select 'turn ' || c.id || ' call ' || c.round || '.' || c.ordinal || ' ' || c.label from turnkeeper.labels c
where c.kind = 'call' and not exists (select from turnkeeper.labels t where t.kind = 'turn' and t.id = c.id
    and t.label = c.label and t.round <= c.round)

-- promise: a summary has the labels of the history that it was made from
select 'summary up to turn ' || s.up_to || ' ' || t.label from turnkeeper.summaries s
join turnkeeper.labels t on t.kind = 'turn' and t.id = s.turn_id and t.round = 0
where not exists (select from turnkeeper.labels l where l.kind = 'summary' and l.id = s.up_to and l.label = t.label)

-- promise: a message to a sub-agent is untrusted if its sender has seen untrusted content
select 'message ' || s.message_id from turnkeeper.spawned_calls s join turnkeeper.messages m on m.id = s.message_id
where exists (select from turnkeeper.labels t where t.kind = 'turn' and t.id = s.turn_id and t.round < s.round
    and t.label = 'untrusted' and t.added_at < m.accepted_at)
  and not exists (select from turnkeeper.labels l where l.kind = 'message' and l.id = s.message_id
      and l.label = 'untrusted')

-- promise: a reply has the labels of its turn
select 'reply ' || r.id || ' ' || t.label from turnkeeper.replies r
join turnkeeper.labels t on t.kind = 'turn' and t.id = r.turn_id and t.added_at < r.created_at
where t.label <> all(r.labels) or not exists (select from turnkeeper.labels l
    where l.kind = 'reply' and l.id = r.message_id and l.label = t.label)

-- promise: a note has the labels of the call that wrote it
select 'note ' || n.agent || '/' || n.name || ' ' || c.label from (
    select distinct on (w.agent, n.user_name, n.conversation, n.name) w.turn_id, w.round, w.ordinal, n.agent,
        n.user_name, n.conversation, n.name
    from turnkeeper.notes n
    join turnkeeper.calls w on w.agent = n.agent and w.name = 'note_write' and w.state = 'succeeded'
        and w.ended_at >= n.updated_at
        and w.arguments::jsonb ->> 'name' = n.name
    join turnkeeper.turns t on t.id = w.turn_id -- and its notes are the user's, the conversation's or the agent's
        and (n.user_name, n.conversation) in ((t.user_name, ''), ('', case when t.user_name = '' then t.conversation
            else '' end), ('', ''))
    order by w.agent, n.user_name, n.conversation, n.name, w.ended_at
) n join turnkeeper.labels c on c.kind = 'call' and c.id = n.turn_id and c.round = n.round and c.ordinal = n.ordinal
where not exists (select from turnkeeper.labels l where l.kind = 'note' and l.agent = n.agent
    and l.user_name = n.user_name and l.conversation = n.conversation and l.name = n.name and l.label = c.label)

-- promise: every row belongs to a row that exists
select what from (
    select 'turn ' || t.id || ': its message' from turnkeeper.turns t
    where not exists (select from turnkeeper.messages m where m.id = t.message_id) union all
    select 'turn ' || s.turn_id || ' start ' || s.round || '.' || s.ordinal || ': its call'
        from turnkeeper.call_starts s
    where not exists (select from turnkeeper.calls c where (c.turn_id, c.round, c.ordinal) = (s.turn_id, s.round,
        s.ordinal)) union all
    select l.kind || ' ' || l.id || ': what has its label' from turnkeeper.labels l
    where case when l.kind in ('call', 'turn') then not exists (select from turnkeeper.turns t where t.id = l.id)
               when l.kind in ('message', 'reply') then not exists (select from turnkeeper.messages m where m.id = l.id)
               when l.kind = 'summary' then not exists (select from turnkeeper.summaries s where s.up_to = l.id)
               when l.kind = 'file' then not exists (select from turnkeeper.files f where f.path = l.name)
               else not exists (select from turnkeeper.notes n
                   where n.agent = l.agent and n.user_name = l.user_name and n.conversation = l.conversation
                       and n.name = l.name) end union all
    select 'ask ' || a.id || ': its turn' from turnkeeper.asks a
    where not exists (select from turnkeeper.turns t where t.id = a.turn_id) union all
    select 'turn ' || g.turn_id || ' gate ' || g.round || '.' || g.ordinal || ': its call' from turnkeeper.call_gates g
    where not exists (select from turnkeeper.calls c where (c.turn_id, c.round, c.ordinal) = (g.turn_id, g.round,
        g.ordinal)) union all
    select 'turn ' || s.turn_id || ' start ' || s.round || '.' || s.ordinal || ': its write'
        from turnkeeper.call_starts s
    where s.n > 0 and not exists (select from turnkeeper.journal j where j.turn_id = s.turn_id and j.n = s.n) union all
    select 'turn ' || a.turn_id || ' awaited ' || a.round || '.' || a.ordinal || ': its start'
        from turnkeeper.awaited_calls a
    where not exists (select from turnkeeper.call_starts s where (s.turn_id, s.round, s.ordinal, s.nonce) = (a.turn_id,
        a.round, a.ordinal, a.nonce)) union all
    select 'turn ' || l.turn_id || ' late result ' || l.round || '.' || l.ordinal || ': its start'
        from turnkeeper.late_results l
    where not exists (select from turnkeeper.call_starts s where (s.turn_id, s.round, s.ordinal) = (l.turn_id, l.round,
        l.ordinal)) union all
    select 'turn ' || a.turn_id || ' failed attempt ' || a.id || ': its turn' from turnkeeper.failed_attempts a
    where not exists (select from turnkeeper.turns t where t.id = a.turn_id) union all
    select 'turn ' || j.turn_id || ' write ' || j.n || ': its turn' from turnkeeper.journal j
    where not exists (select from turnkeeper.turns t where t.id = j.turn_id) union all
    select 'reply ' || r.id || ': its message or turn' from turnkeeper.replies r
    where not exists (select from turnkeeper.messages m where m.id = r.message_id)
       or not exists (select from turnkeeper.turns t where t.id = r.turn_id)
) missing (what)

-- promise: every row obeys the rules of its table
select what from (
    select 'message ' || id from turnkeeper.messages
    where btrim(body, E' \t\r\n') = '' union all
    select 'turn ' || turn_id || ' call ' || round || '.' || ordinal from turnkeeper.calls
    where not turnkeeper.call_holds(ordinal, wire_id, effect, state, nonce, ended_at, duration_ms) union all
    select 'lane ' || lane from turnkeeper.leases
    where not turnkeeper.lease_holds(token, grant_id, turn_id, granted_at, lease_until, failures)
) broken (what)

-- promise: no duration is negative
select what || ' ' || took from (
    select 'turn ' || id, ended_at - greatest(created_at, granted_at) from turnkeeper.turns union all
    select 'message ' || id, closed_at - accepted_at from turnkeeper.messages union all
    select 'reply ' || r.id, r.created_at - m.accepted_at from turnkeeper.replies r
        join turnkeeper.messages m on m.id = r.message_id union all
    select 'grant ' || grant_id, ended_at - granted_at from turnkeeper.ended_grants union all
    select 'turn ' || turn_id || ' call ' || round || '.' || ordinal, ended_at - started_at
        from turnkeeper.calls union all
    select 'turn ' || turn_id || ' write ' || n, at - lag(at) over (partition by turn_id order by n)
        from turnkeeper.journal
) durations (what, took) where took < interval '0'

-- promise: the writes of a turn are numbered 1 to n
select 'turn ' || turn_id from turnkeeper.journal group by turn_id having count(*) <> max(n) or min(n) <> 1

-- promise: events are numbered 1 to n; of those that have expired, the last two are there
select 'turn ' || t.id from turnkeeper.turns_now t left join turnkeeper.turn_events e on e.turn_id = t.id
    group by t.id, t.last_seq, t.events_expired_at
having count(e.seq) <> least(t.last_seq, case when t.events_expired_at is not null then 2 end) or coalesce(max(e.seq),
    0) <> t.last_seq
    or coalesce(min(e.seq), 1) <> case when t.events_expired_at is null then 1 else greatest(t.last_seq - 1, 1) end

-- promise: a turn that does not run has the totals of its newest write
select 'turn ' || t.id from turnkeeper.turns t, lateral turnkeeper.newest_write(t.id) w
where t.state <> 'running' and (t.last_seq, t.inference_rounds, t.charged_rounds, t.executed_calls,
        t.input_tokens, t.output_tokens, t.cached_tokens, t.cache_write_tokens, t.reasoning_tokens, t.usage_estimated)
    is distinct from (w.last_seq, w.inference_rounds, w.charged_rounds, w.executed_calls,
        w.input_tokens, w.output_tokens, w.cached_tokens, w.cache_write_tokens, w.reasoning_tokens, w.usage_estimated)

-- promise: a closed turn has one terminal event, and it is the last
select 'turn ' || t.id || ' event ' || e.seq from turnkeeper.turns t
join turnkeeper.turn_events e on e.turn_id = t.id and e.type in ('turn_complete', 'turn_error')
where t.ended_at is null or e.seq <> t.last_seq

-- promise: a turn's tokens are those of its rounds, of its calls and of its failed attempts
select 'turn ' || t.id from turnkeeper.turns_now t
left join (select turn_id, sum(input_tokens) as input, sum(output_tokens) as output, sum(cached_tokens) as cached,
    sum(cache_write_tokens) as cache_write, sum(reasoning_tokens) as reasoning
    from (select turn_id, input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
              from turnkeeper.rounds union all
          select turn_id, input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
              from turnkeeper.failed_attempts union all
          select turn_id, input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
              from turnkeeper.calls) u group by turn_id) u on u.turn_id = t.id
where (t.input_tokens, t.output_tokens, t.cached_tokens, t.cache_write_tokens, t.reasoning_tokens)
    is distinct from (coalesce(u.input, 0)::bigint, coalesce(u.output, 0)::bigint, coalesce(u.cached, 0)::bigint,
        coalesce(u.cache_write, 0)::bigint, coalesce(u.reasoning, 0)::bigint)

-- promise: no turn with a call of unknown outcome is succeeded
select 'turn ' || t.id || ' call ' || c.round || '.' || c.ordinal
from turnkeeper.turns t join turnkeeper.calls c on c.turn_id = t.id
where t.state = 'succeeded' and c.state = 'unknown'

-- promise: a chunked output has all its chunks
select 'output ' || o.id from turnkeeper.outputs o left join turnkeeper.output_chunks c on c.output_id = o.id
where o.chunked group by o.id, o.size_bytes
having coalesce(sum(coalesce(octet_length(c.content), octet_length(c.bytes))), 0) <> o.size_bytes

-- promise: every chunk belongs to an output or a draft
select distinct 'output ' || c.output_id from turnkeeper.output_chunks c
where not exists (select from turnkeeper.outputs o where o.id = c.output_id and o.chunked)
  and not exists (select from turnkeeper.output_drafts d where d.output_id = c.output_id)

-- promise: all parts of a round's request are stored
select 'turn ' || r.turn_id || ' round ' || r.round from turnkeeper.rounds r join turnkeeper.turns t on t.id = r.turn_id
where exists (select from unnest(array[
        r.request -> 'start' ->> 'system', r.request -> 'start' ->> 'form', r.request -> 'start' ->> 'tools',
        r.request ->> 'form']) part
        where part is not null and not exists (select from turnkeeper.request_parts p where p.sha256 = part))
   or r.request -> 'start' ->> 'summary' is not null and not exists (select from turnkeeper.summaries s
        where s.agent = t.agent and s.user_name = t.user_name and s.conversation = t.conversation
            and s.up_to = (r.request -> 'start' ->> 'summary')::bigint)

-- at rest: no lease is left
select 'lane ' || lane from turnkeeper.leases where grant_id is not null

-- at rest: no turn runs
select 'turn ' || id from turnkeeper.turns where state = 'running'

-- at rest: no job is left
select 'job ' || id || ' ' || state from turnkeeper.river_job where finalized_at is null
