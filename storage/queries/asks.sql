-- name: GateCalls :exec
select turnkeeper.gate_calls(@turn::bigint, @rounds::integer[], @ordinals::integer[]);

-- name: OpenAsks :exec
select turnkeeper.open_asks(@turn::bigint, @rounds::integer[], @ordinals::integer[], @kinds::text[], @ns::integer[], @tools::text[],
    @arguments::text[], @rules::text[], @reasons::text[], @schemas::text[], @audience::text[], @hold::boolean,
    @timeout::interval);

-- name: SeeAsks :exec
select turnkeeper.see_asks(@turn::bigint, @asks::bigint[]);

-- name: WithdrawAsks :exec
select turnkeeper.withdraw_asks(@turn::bigint, @rounds::integer[], @ordinals::integer[]);

-- name: AsksOfTurn :many
select * from turnkeeper.asks where turn_id = @turn_id order by id;

-- name: GatesOfTurn :many
select round, ordinal from turnkeeper.call_gates where turn_id = @turn_id order by round, ordinal;

-- name: AnswerAsk :one
select turnkeeper.answer_ask(@id::bigint, @decision::text, @answered_by::text, @channel::text, sqlc.narg(comment)::text, sqlc.narg(answer)::text,
    sqlc.narg(edited)::text, sqlc.narg(hash)::text)::text as state;

-- name: ListAsks :many
-- Asks with their turn and its path from the root of its tree, newest first.
select sqlc.embed(a), t.agent, t.conversation, t.message_id, t.state as turn_state, turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id
where (@state::text = '' or a.state = @state) and (@agent::text = '' or t.agent = @agent) and (@turn::bigint = 0 or a.turn_id = @turn)
  and (@before::bigint = 0 or a.id < @before)
order by a.id desc limit @max_rows;

-- name: AskByID :one
select sqlc.embed(a), t.agent, t.conversation, t.message_id, t.state as turn_state, turnkeeper.tree_path(t.id)::jsonb as path
from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id where a.id = @id;

-- name: CheckApprovals :exec
-- Refuses starts of the same write, after its gates and asks. The fence has checked them before, without these.
select turnkeeper.check_approvals(array_fill(@turn::bigint, array[cardinality(@rounds::integer[])]), @rounds, @ordinals::integer[], @attempts::integer[],
    @asks::bigint[], @hashes::text[]);
