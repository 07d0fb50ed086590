-- name: NextMessageID :one
select nextval(pg_get_serial_sequence('turnkeeper.messages', 'id'))::bigint as id;

-- name: SpawnAgents :exec
select turnkeeper.spawn_agents(@turn::bigint, @rounds::integer[], @ordinals::integer[], @nonces::text[],
    @messages::bigint[],
    @names::text[], @tasks::text[], @root::bigint, @agents::text[], @max_depth::integer, @max_agents::integer,
    @tokens::bigint, @calls::bigint, @within::interval);

-- name: HangSpawned :exec
-- Sets the trace parents of sub-agents' messages, which the same write has inserted.
update turnkeeper.messages m set trace_parent = u.parent
from (select unnest(@messages::bigint[]) as id, unnest(@parents::text[]) as parent) u
where m.id = u.id;

-- name: SettleSpawned :one
select turnkeeper.settle_spawned(@timely::boolean, @max_rows::integer)::integer as settled;

-- name: SpawnedBy :many
-- The sub-agents of a turn's calls, with their outcomes and replies.
select s.round, s.ordinal, s.agent, coalesce(s.message_id, 0)::bigint as message_id, coalesce(s.failure,
    '')::text as failure,
    coalesce(s.outcome, '')::text as outcome, coalesce(s.stop, '')::text as stop, coalesce(r.body, '')::text as reply,
    coalesce(r.calls, '[]')::jsonb as calls, (r.id is not null)::boolean as replied,
    coalesce(s.child, m.turn_id, 0)::bigint as child, (m.closed_at is null and m.id is not null)::boolean as open
from turnkeeper.spawned_calls s
left join turnkeeper.messages m on m.id = s.message_id
left join turnkeeper.replies r on r.message_id = s.message_id
where s.turn_id = @turn_id
order by s.round, s.ordinal;

-- name: LineageOf :one
-- Who spawned the turn of a message.
select s.root, s.turn_id as parent, s.round, s.ordinal, s.agents, t.max_depth, t.max_agents, t.tokens, t.calls
from turnkeeper.spawned_calls s join turnkeeper.agent_trees t on t.root = s.root
where s.message_id = @message;

-- name: SubAgents :many
-- All sub-agents of a tree, in the order of their calls.
select s.turn_id, s.round, s.ordinal, s.agent, coalesce(s.message_id, 0)::bigint as message_id, coalesce(s.failure,
    '')::text as failure,
    coalesce(m.state, '')::text as message_state, coalesce(t.id, 0)::bigint as child,
    coalesce(t.state, '')::text as child_state,
    coalesce(t.input_tokens, 0)::bigint as input_tokens, coalesce(t.output_tokens, 0)::bigint as output_tokens,
    cardinality(s.agents) - 1 as depth, s.spawned_at, s.deadline, s.ended_at,
        (s.dropped_at is not null)::boolean as dropped
from turnkeeper.spawned_calls s
left join turnkeeper.messages m on m.id = s.message_id
left join turnkeeper.turns_now t on t.id = coalesce(s.child, m.turn_id)
where s.root = @root
order by s.spawned_at, s.turn_id, s.round, s.ordinal
limit @max_rows;

-- name: ReserveTreeSpend :one
-- The budgets are those of the first attempt at the message, as in ReserveSpend.
select reservation::bigint, blocked::text, used_tokens::bigint, used_calls::bigint, level::text,
    extract(epoch from date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day' - (
        clock_timestamp() at time zone 'UTC'))::float8 as day_left
from turnkeeper.reserve_tree_spend(
    coalesce((select f.id from turnkeeper.turns t join turnkeeper.turns f on f.message_id = t.message_id
        where t.id = @root::bigint order by f.attempt limit 1), @root)::bigint,
    @tree_tokens::bigint, @tree_calls::bigint,
    coalesce((select f.id from turnkeeper.turns t join turnkeeper.turns f on f.message_id = t.message_id
        where t.id = @turn::bigint order by f.attempt limit 1), @turn)::bigint,
    @agent::text,
    @tokens::bigint, @turn_tokens::bigint, @turn_calls::bigint, @day_tokens::bigint, @day_calls::bigint, @level::text);

-- name: AgentTree :one
-- The bounds of a tree of agents, and its spend.
select a.max_depth, a.max_agents, a.tokens, a.calls, coalesce(s.tokens, 0)::bigint as used_tokens,
    coalesce(s.calls, 0)::bigint as used_calls,
    coalesce(t.agent, '')::text as agent, coalesce(t.state, '')::text as state,
    coalesce(t.input_tokens, 0)::bigint as input_tokens, coalesce(t.output_tokens, 0)::bigint as output_tokens
from turnkeeper.agent_trees a
left join turnkeeper.turns_now t on t.id = a.root
left join turnkeeper.spend s on s.period = '' and s.scope = 'tree:' || coalesce((select f.id from turnkeeper.turns f
    where f.message_id = t.message_id order by f.attempt limit 1), a.root)
where a.root = @root;
