-- name: Step :exec
select turnkeeper.step(@turn::bigint, @token::bigint, @grant_id::uuid, @worker::text, @expected::bigint, @write_id::uuid,
    @rounds::integer, @charged::integer, @calls::integer,
    @input::bigint, @output::bigint, @cached::bigint, @reasoning::bigint, @estimated::boolean,
    @types::text[], @event_rounds::integer[], @blocks::integer[], @data::text[], @answered::text[]);

-- name: InsertRound :exec
-- Inserts an answer and its planned calls.
with answer as (
    insert into turnkeeper.rounds (turn_id, round, charged, provider, model, attempts, latency_ms, finish_reason,
        input_tokens, output_tokens, cached_tokens, reasoning_tokens, usage_estimated, text, reasoning, raw, version, request)
    values (@turn_id::bigint, @round::integer, @charged::boolean, @provider::text, @model::text, @attempts::integer,
        @latency_ms::bigint, @finish_reason::text, @input_tokens::bigint, @output_tokens::bigint, @cached_tokens::bigint,
        @reasoning_tokens::bigint, @usage_estimated::boolean, @text::text, @reasoning::text, sqlc.narg(raw)::text,
        @version::smallint, nullif(@request::text, '')::json)
)
insert into turnkeeper.calls (turn_id, round, ordinal, agent, wire_id, provider_id, name, arguments, raw_args,
    args_hash, effect, paging, state, shown, preview, ended_at)
select @turn_id, @round, c.ordinal, @agent::text, c.wire_id, c.provider_id, c.name, c.arguments,
    c.raw_args, c.args_hash, c.effect, c.paging, c.state, c.shown, c.preview,
    case when c.state <> 'planned' then clock_timestamp() end
from (select unnest(@ordinals::integer[]) as ordinal, unnest(@wire_ids::text[]) as wire_id,
    unnest(@provider_ids::text[]) as provider_id, unnest(@names::text[]) as name,
    unnest(@arguments::text[]) as arguments, unnest(@raw_args::text[]) as raw_args,
    unnest(@args_hashes::text[]) as args_hash, unnest(@effects::text[]) as effect,
    unnest(@pagings::boolean[]) as paging, unnest(@states::text[]) as state,
    unnest(@shown::text[]) as shown, unnest(@previews::text[]) as preview) c;

-- name: InsertRequestParts :exec
-- Parts of requests that are not in the journal, each stored once.
insert into turnkeeper.request_parts (sha256, content)
select unnest(@hashes::text[]), unnest(@contents::text[])
on conflict do nothing;

-- name: InsertSummary :exec
insert into turnkeeper.summaries (agent, conversation, up_to, turn_id, content)
select t.agent, t.conversation, @up_to::bigint, t.id, @content::text from turnkeeper.turns t where t.id = @turn_id::bigint
on conflict do nothing;

-- name: StartCalls :exec
select turnkeeper.start_calls(@turn::bigint, @token::bigint, @worker::text,
    @rounds::integer[], @ordinals::integer[], @attempts::integer[], @nonces::text[]);

-- name: AnswerCalls :exec
select turnkeeper.answer_calls(@turn_id::bigint, @rounds::integer[], @ordinals::integer[], @nonces::text[],
    @states::text[], @shown::text[], @previews::text[], @outputs::text[], @durations::bigint[]);

-- name: InsertOutputs :exec
insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, bytes, chunked, size_bytes, raw_bytes,
    chars, tokens, sha256, incomplete, description)
select o.id, @turn_id::bigint, o.round, o.ordinal, o.media_type,
    case when not o.is_binary then o.content end, case when o.is_binary then o.bytes end, o.chunked,
    o.size_bytes, o.raw_bytes, o.chars, o.tokens, o.sha256, o.incomplete, o.description
from (select unnest(@ids::text[]) as id, unnest(@rounds::integer[]) as round, unnest(@ordinals::integer[]) as ordinal,
    unnest(@media_types::text[]) as media_type, unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes,
    unnest(@is_binary::boolean[]) as is_binary, unnest(@chunked::boolean[]) as chunked, unnest(@size_bytes::bigint[]) as size_bytes,
    unnest(@raw_bytes::bigint[]) as raw_bytes, unnest(@chars::bigint[]) as chars, unnest(@tokens::bigint[]) as tokens,
    unnest(@sha256s::text[]) as sha256, unnest(@incompletes::boolean[]) as incomplete,
    unnest(@descriptions::text[]) as description) o;

-- name: InsertFailedAttempts :exec
insert into turnkeeper.failed_attempts (turn_id, round, attempt, provider, model, error_class, error, text, reasoning, latency_ms,
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, usage_estimated)
select @turn_id::bigint, a.round, a.attempt, a.provider, a.model, a.class, a.error, a.text, a.reasoning, a.latency,
    a.input, a.output, a.cached, a.reasoning_tokens, a.estimated
from (select unnest(@rounds::integer[]) as round, unnest(@attempts::integer[]) as attempt, unnest(@providers::text[]) as provider,
    unnest(@models::text[]) as model, unnest(@classes::text[]) as class, unnest(@errors::text[]) as error,
    unnest(@texts::text[]) as text, unnest(@reasonings::text[]) as reasoning, unnest(@latencies::bigint[]) as latency,
    unnest(@inputs::bigint[]) as input, unnest(@outputs::bigint[]) as output, unnest(@cacheds::bigint[]) as cached,
    unnest(@reasoning_tokens::bigint[]) as reasoning_tokens, unnest(@estimateds::boolean[]) as estimated) a;

-- name: AddEvents :exec
select turnkeeper.add_events(@turn::bigint, @types::text[], @rounds::integer[], @blocks::integer[], @data::text[]);

-- name: EndDispatch :exec
-- Ends a dispatch, and then notes models that answered: see the function note_models.
select turnkeeper.end_dispatch(@turn::bigint, @grant_id::uuid, @state::text, @log::text, @stop::text, @reply::text,
    @inner_dialogue::text, @error_class::text, @error::text, @message_state::text, @lost::boolean,
    @backoff::interval, @lane_backoff::interval, @job::bigint),
    turnkeeper.note_models(@answered::text[], '{}', '{}', '{}', '{}', '{}');

-- name: InsertSilentReply :exec
-- Inserts the reply of a turn that was ended in this transaction, with an empty body.
insert into turnkeeper.replies (message_id, turn_id, agent, conversation, outcome, body, created_at)
select t.message_id, t.id, t.agent, t.conversation, t.state, '', greatest(clock_timestamp(), m.accepted_at)
from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
where t.id = @turn;

-- name: LateResult :exec
select turnkeeper.late_result(@turn::bigint, @round::integer, @ordinal::integer, @nonce::text, @state::text,
    @shown::text, @preview::text);

-- name: HasStart :one
-- Whether the call has a start with this nonce.
select exists (select from turnkeeper.call_starts where turn_id = @turn_id and round = @round and ordinal = @ordinal and nonce = @nonce);

-- name: BindGrant :one
-- Binds a grant to a worker permanently, so that a job that River hands out twice runs
-- once. It returns the worker to which the grant was bound before and stays bound;
-- empty: none. No row: the turn no longer has this grant.
with turn as materialized (
    select t.id, t.grant_id, t.state, coalesce(t.worker_id, '')::text as bound_to from turnkeeper.turns t where t.id = @turn_id for update
), held as (
    select turn.id, turn.bound_to from turn where turn.grant_id = @grant_id::uuid and turn.state = 'running'
), bound as (
    update turnkeeper.turns t set worker_id = @worker::text from held where t.id = held.id and held.bound_to = ''
)
select held.bound_to from held;

-- name: ReadBack :one
-- write_id is that of write n; empty: it was not done, or has none.
select t.token, t.grant_id, t.worker_id, t.state,
    (select w.n from turnkeeper.newest_write(t.id) w)::bigint as entries,
    coalesce((select j.write_id::text from turnkeeper.journal j where j.turn_id = t.id and j.n = @n::bigint), '')::text as write_id
from turnkeeper.turns t where t.id = @id::bigint;

-- name: SettleOpenCalls :exec
-- Ends the open calls of a turn that is closed without its worker. A started call may or
-- may not have happened, a planned one has not. A call without an effect needs no start,
-- so it may have been running when the turn's worker was lost.
update turnkeeper.calls set state = case when state = 'planned' then 'cancelled' else 'unknown' end,
    ended_at = greatest(clock_timestamp(), started_at),
    shown = case when state <> 'planned' then @unknown::text when effect = 'none' then @perhaps::text else @not_run::text end,
    preview = left(case when state <> 'planned' then @unknown::text when effect = 'none' then @perhaps else @not_run end, 220)
where turn_id = @turn_id and state in ('planned', 'started', 'running');

-- name: AddCallUsage :exec
-- Adds the usage of model calls that were made for tool calls, in the write that answers
-- those; Step adds the sum to the turn's usage.
update turnkeeper.calls c set input_tokens = u.input, output_tokens = u.output, cached_tokens = u.cached,
    reasoning_tokens = u.reasoning, usage_estimated = u.estimated
from (select unnest(@rounds::integer[]) as round, unnest(@ordinals::integer[]) as ordinal, unnest(@inputs::bigint[]) as input,
    unnest(@outputs::bigint[]) as output, unnest(@cacheds::bigint[]) as cached, unnest(@reasonings::bigint[]) as reasoning,
    unnest(@estimateds::boolean[]) as estimated) u
where c.turn_id = @turn_id::bigint and c.round = u.round and c.ordinal = u.ordinal;
