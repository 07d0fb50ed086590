-- name: AppendMany :many
-- Returns the rows that were refused, or skipped because the turn's row is locked: none if alone. See the function.
select coalesce(write, 0)::integer as write, coalesce(code, '')::text as code, coalesce(message, '')::text as message
from turnkeeper.append_many(array(select row(unnest(@ids::uuid[]), unnest(@turns::bigint[]), unnest(@tokens::bigint[]),
        unnest(@grants::uuid[]), unnest(@workers::text[]), unnest(@seen::bigint[]), unnest(@needed::boolean[]),
        unnest(@inference_rounds::bigint[]), unnest(@charged_rounds::bigint[]), unnest(@executed_calls::bigint[]),
        unnest(@input_tokens::bigint[]), unnest(@output_tokens::bigint[]), unnest(@cached_tokens::bigint[]),
        unnest(@cache_write_tokens::bigint[]), unnest(@reasoning_tokens::bigint[]),
        unnest(@usage_estimated::boolean[]),
        -- the events of all writes are in one array
        (@types::text[])[unnest(@first_events::integer[]):unnest(@last_events::integer[])],
        (@event_rounds::integer[])[unnest(@first_events):unnest(@last_events)],
        (@blocks::integer[])[unnest(@first_events):unnest(@last_events)],
        (@data::text[])[unnest(@first_events):unnest(@last_events)],
        unnest(@rounds::integer[]), unnest(@answers::text[]), unnest(@calls::text[]), unnest(@texts::text[]),
        unnest(@reasonings::text[]), unnest(@raws::text[]), unnest(@requests::text[]), unnest(@earlier::text[]),
        unnest(@results::text[]), unnest(@starts::text[]))::turnkeeper.journal_write),
    @alone::boolean, @lock_wait::text, @answered::text[], @proofs::bigint[]);

-- name: EndMany :exec
-- Ends dispatches, and then notes models that answered: see the function note_models.
select turnkeeper.end_many(array(select row(unnest(@turns::bigint[]), unnest(@writes::uuid[]),
        unnest(@grants::uuid[]), unnest(@states::text[]), unnest(@logs::text[]), unnest(@stops::text[]),
        unnest(@replies::text[]), unnest(@calls::text[]), unnest(@inner_dialogues::text[]),
        unnest(@error_classes::text[]), unnest(@errors::text[]), unnest(@message_states::text[]),
        unnest(@lost::boolean[]), unnest(@backoffs::interval[]), unnest(@lane_backoffs::interval[]),
        unnest(@jobs::bigint[]))::turnkeeper.dispatch_end)),
    turnkeeper.note_models(@answered::text[], @proofs::bigint[]);

-- name: SettleCalls :exec
-- Gives each open call its final result, of a turn that is closed without its worker.
select turnkeeper.settle_calls(@turn::bigint, @unknown::text, @perhaps::text, @not_run::text, @spawned::text, '', '');

-- name: LateResult :exec
select turnkeeper.late_result(@turn::bigint, nullif(@grant_id::text, '')::uuid, @round::integer, @ordinal::integer,
    @nonce::text, @state::text,
    @shown::text, @preview::text);

-- name: StopAwaiting :exec
-- Closes the waits of calls that the same write has answered.
select turnkeeper.stop_awaiting(@turn::bigint, @rounds::integer[], @ordinals::integer[]);

-- name: InsertRequestParts :exec
-- Parts of requests that are not in the journal, each stored once.
insert into turnkeeper.request_parts (sha256, content)
select unnest(@hashes::text[]), unnest(@contents::text[])
on conflict do nothing;

-- name: InsertSummary :exec
insert into turnkeeper.summaries (agent, user_name, conversation, up_to, turn_id, content)
select t.agent, t.user_name, t.conversation, @up_to::bigint, t.id, @content::text from turnkeeper.turns t
    where t.id = @turn_id::bigint
on conflict do nothing;

-- name: InsertOutputs :exec
insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, bytes, chunked, size_bytes, raw_bytes,
    chars, tokens, sha256, incomplete, description)
select o.id, @turn_id::bigint, o.round, o.ordinal, o.media_type,
    case when not o.is_binary then o.content end, case when o.is_binary then o.bytes end, o.chunked,
    o.size_bytes, o.raw_bytes, o.chars, o.tokens, o.sha256, o.incomplete, o.description
from (select unnest(@ids::text[]) as id, unnest(@rounds::integer[]) as round, unnest(@ordinals::integer[]) as ordinal,
    unnest(@media_types::text[]) as media_type, unnest(@contents::text[]) as content, unnest(@bytes::bytea[]) as bytes,
    unnest(@is_binary::boolean[]) as is_binary, unnest(@chunked::boolean[]) as chunked,
    unnest(@size_bytes::bigint[]) as size_bytes,
    unnest(@raw_bytes::bigint[]) as raw_bytes, unnest(@chars::bigint[]) as chars, unnest(@tokens::bigint[]) as tokens,
    unnest(@sha256s::text[]) as sha256, unnest(@incompletes::boolean[]) as incomplete,
    unnest(@descriptions::text[]) as description) o;

-- name: InsertFailedAttempts :exec
insert into turnkeeper.failed_attempts (turn_id, round, attempt, provider, model, error_class, error, text,
    reasoning, latency_ms,
    input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, usage_estimated)
select @turn_id::bigint, a.round, a.attempt, a.provider, a.model, a.class, a.error, a.text, a.reasoning, a.latency,
    a.input, a.output, a.cached, a.cache_write, a.reasoning_tokens, a.estimated
from (select unnest(@rounds::integer[]) as round, unnest(@attempts::integer[]) as attempt,
    unnest(@providers::text[]) as provider,
    unnest(@models::text[]) as model, unnest(@classes::text[]) as class, unnest(@errors::text[]) as error,
    unnest(@texts::text[]) as text, unnest(@reasonings::text[]) as reasoning, unnest(@latencies::bigint[]) as latency,
    unnest(@inputs::bigint[]) as input, unnest(@outputs::bigint[]) as output, unnest(@cacheds::bigint[]) as cached,
    unnest(@cache_writes::bigint[]) as cache_write,
    unnest(@reasoning_tokens::bigint[]) as reasoning_tokens, unnest(@estimateds::boolean[]) as estimated) a;

-- name: AddEvents :exec
select turnkeeper.add_events(@turn::bigint, @types::text[], @rounds::integer[], @blocks::integer[], @data::text[]);

-- name: InsertSilentReply :exec
-- Inserts the reply of a turn that was ended in this transaction, with an empty body.
insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, body, created_at)
select t.message_id, t.id, t.agent, t.user_name, t.conversation, t.state, '', greatest(clock_timestamp(), m.accepted_at)
from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
where t.id = @turn;

-- name: HasStart :one
-- Whether the call has a start with this nonce.
select exists (select from turnkeeper.call_starts where turn_id = @turn_id and round = @round and ordinal = @ordinal
    and nonce = @nonce);

-- name: BindGrant :one
-- Binds a grant to a worker permanently, so that a job that River hands out twice runs
-- once. It returns the worker to which the grant was bound before and stays bound;
-- empty: none. No row: the turn no longer has this grant.
with turn as materialized (
    select t.id, t.grant_id, t.state, coalesce(t.worker_id, '')::text as bound_to from turnkeeper.turns t
        where t.id = @turn_id for update
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
    coalesce((select j.write_id::text from turnkeeper.journal j where j.turn_id = t.id and j.n = @n::bigint),
        '')::text as write_id
from turnkeeper.turns t where t.id = @id::bigint;

