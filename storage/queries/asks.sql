-- name: GateCalls :exec
select turnkeeper.gate_calls(@turn::bigint, @rounds::integer[], @ordinals::integer[]);

-- name: OpenAsks :exec
select turnkeeper.open_asks(@turn::bigint, @rounds::integer[], @ordinals::integer[], @kinds::text[], @ns::integer[],
    @tools::text[],
    @arguments::text[], @rules::text[], @reasons::text[], @schemas::text[], @resumes::text[], @audience::text[],
    @hold::boolean,
    @timeout::interval);

-- name: SeeAsks :exec
select turnkeeper.see_asks(@turn::bigint, @asks::bigint[]);

-- name: UseInputs :exec
select turnkeeper.use_inputs(@turn::bigint, @asks::bigint[]);

-- name: WithdrawAsks :exec
select turnkeeper.withdraw_asks(@turn::bigint, @rounds::integer[], @ordinals::integer[]);

-- name: AsksOfTurn :many
select * from turnkeeper.asks where turn_id = @turn_id order by id;

-- name: GatesOfTurn :many
select round, ordinal from turnkeeper.call_gates where turn_id = @turn_id order by round, ordinal;

-- name: AnswerAsk :one
select turnkeeper.answer_ask(@id::bigint, @decision::text, @answered_by::text, @channel::text, sqlc.narg(comment)::text,
    sqlc.narg(answer)::text,
    sqlc.narg(edited)::text, sqlc.narg(hash)::text)::text as state;

-- name: ListAsks :many
-- Asks with their turn and its path from the root of its tree, newest first.
select sqlc.embed(a), t.agent, t.user_name, t.conversation, t.message_id, t.state as turn_state,
    turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
where (@state::text = '' or a.state = @state) and (@agent::text = '' or t.agent = @agent) and (@user_name::text = ''
    or t.user_name = @user_name)
  and (@before::bigint = 0 or a.id < @before)
order by a.id desc limit @max_rows;

-- name: ListOpenAsks :many
-- ListAsks for open asks: it reads their own index, not the closed ones.
select sqlc.embed(a), t.agent, t.user_name, t.conversation, t.message_id, t.state as turn_state,
    turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
where a.state = 'open' and (@agent::text = '' or t.agent = @agent) and (@user_name::text = ''
    or t.user_name = @user_name) and (@before::bigint = 0 or a.id < @before)
order by a.id desc limit @max_rows;

-- name: ListAsksOfTurn :many
-- ListAsks for a turn.
select sqlc.embed(a), t.agent, t.user_name, t.conversation, t.message_id, t.state as turn_state,
    turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
where a.turn_id = @turn and (@state::text = '' or a.state = @state) and (@agent::text = '' or t.agent = @agent)
    and (@user_name::text = '' or t.user_name = @user_name)
  and (@before::bigint = 0 or a.id < @before)
order by a.id desc limit @max_rows;

-- name: AskByID :one
select sqlc.embed(a), t.agent, t.user_name, t.conversation, t.message_id, t.state as turn_state,
    turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id where a.id = @id;

-- name: AsksByID :many
select sqlc.embed(a), t.agent, t.user_name, t.conversation, t.message_id, t.state as turn_state,
    turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id where a.id = any(@ids::bigint[]);

-- name: CallOfAsk :one
-- What has become of the call of an ask.
select c.state, c.preview, c.starts from turnkeeper.asks a
join turnkeeper.calls c on c.turn_id = a.turn_id and c.round = a.round and c.ordinal = a.ordinal where a.id = @id;

-- name: AskSender :one
select coalesce(turnkeeper.ask_sender(@id::bigint), 0)::bigint as token_id;

-- name: CountOpenAsks :one
-- The open asks of some agents, or of all (null), up to a limit.
select count(*) from (
    select from turnkeeper.asks a
    where a.state = 'open' and (sqlc.narg(agents)::text[] is null
        or exists (select from turnkeeper.turns t where t.id = a.turn_id and t.agent = any(sqlc.narg(agents)::text[])))
    limit @max_rows::integer) o;

-- name: CheckApprovals :exec
-- Refuses starts of the same write, after its gates and asks. The fence has checked them before, without these.
select turnkeeper.check_approvals(array_fill(@turn::bigint, array[cardinality(@rounds::integer[])]), @rounds,
    @ordinals::integer[], @attempts::integer[],
    @asks::bigint[], @hashes::text[]);
