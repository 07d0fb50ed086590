-- name: SaveDefinition :exec
insert into turnkeeper.definitions (hash, content) values (@hash, @content)
on conflict (hash) do nothing;

-- name: SaveAgent :exec
insert into turnkeeper.agents (name, definition_hash, description, lane_per_conversation, models, give_up_after,
    max_running, day_tokens, day_calls, levels)
values (@name, @definition_hash, @description, @lane_per_conversation, @models::text[], @give_up_after::interval,
    nullif(@max_running::integer, 0),
    @day_tokens::bigint, @day_calls::bigint, @levels::jsonb)
on conflict (name) do update set definition_hash = excluded.definition_hash,
    description = excluded.description, lane_per_conversation = excluded.lane_per_conversation,
    models = excluded.models, give_up_after = excluded.give_up_after, max_running = excluded.max_running,
    day_tokens = excluded.day_tokens, day_calls = excluded.day_calls, levels = excluded.levels,
    updated_at = clock_timestamp(),
    lanes_changed_at = case when agents.lane_per_conversation <> excluded.lane_per_conversation then clock_timestamp()
        else agents.lanes_changed_at end,
    lanes_moved_at = case when agents.lane_per_conversation = excluded.lane_per_conversation
        then agents.lanes_moved_at end
where (agents.definition_hash, agents.description, agents.lane_per_conversation, agents.models, agents.give_up_after,
    agents.max_running,
        agents.day_tokens, agents.day_calls, agents.levels)
    is distinct from (excluded.definition_hash, excluded.description, excluded.lane_per_conversation, excluded.models,
        excluded.give_up_after,
        excluded.max_running, excluded.day_tokens, excluded.day_calls, excluded.levels);

-- name: NoteLevel :exec
-- Decides the agent's level again: it may have another budget now.
select turnkeeper.note_level(@agent::text, day) from (select s.period as day from turnkeeper.spend s
    where s.scope = 'agent:' || @agent and s.period = to_char(clock_timestamp() at time zone 'UTC',
        'YYYY-MM-DD') for update) today;

-- name: SaveSchedule :exec
insert into turnkeeper.schedules as s (agent, name, cron, time_zone, conversation, message)
values (@agent, @name, @cron, @time_zone, @conversation, @message)
on conflict (agent, name) do update set cron = excluded.cron, time_zone = excluded.time_zone,
    conversation = excluded.conversation, message = excluded.message, active = true,
    next_due = case when s.active and s.cron = excluded.cron and s.time_zone = excluded.time_zone then s.next_due end
where (s.cron, s.time_zone, s.conversation, s.message, s.active)
    is distinct from (excluded.cron, excluded.time_zone, excluded.conversation, excluded.message, true);

-- name: RetireSchedules :exec
update turnkeeper.schedules set active = false, last_error = null
where agent = @agent and (active or last_error is not null) and not (name = any(@keep::text[]));

-- name: ListAgents :many
select a.name, a.description, a.definition_hash, a.models, a.lane_per_conversation, a.updated_at, a.retired_at,
    case when a.retired_at is null then 0 else
        (select count(*) from turnkeeper.waiting m where m.agent = a.name) end::bigint as left_waiting,
    array(select s.name from turnkeeper.schedules s where s.agent = a.name and s.active and s.paused_at is not null
        order by s.name)::text[] as paused
from turnkeeper.agents a order by a.name;

-- name: RetireAgent :execrows
update turnkeeper.agents set retired_at = coalesce(retired_at, clock_timestamp()) where name = @agent;

-- name: RestoreAgent :execrows
update turnkeeper.agents set retired_at = null where name = @agent;

-- name: SkipMissedSlots :exec
-- Makes the schedules of a restored agent continue with their next slots.
update turnkeeper.schedules s set next_due = null
from turnkeeper.agents a where s.agent = @agent and s.active and a.name = s.agent and a.retired_at is not null;

-- name: WaitingOf :many
select id from turnkeeper.waiting where agent = @agent and id > @after order by id limit @max_rows;

-- name: RetiredAgentOf :one
-- The agent of a closed message if it is retired, else no row.
select a.name from turnkeeper.messages m join turnkeeper.agents a on a.name = m.agent
where m.id = @message and m.closed_at is not null and a.retired_at is not null
  and not exists (select from turnkeeper.retries r where r.message_id = m.id);

-- name: EndBackoff :exec
update turnkeeper.leases set not_before = null where agent = @agent and not_before is not null;

-- name: EndDeferrals :exec
-- Makes turns that a budget deferred due: the agent may have another budget now.
update turnkeeper.turns set due_at = null where agent = @agent and state = 'queued' and error_class = 'budget'
    and due_at is not null;
