-- Calls that go on in the background: state running, and how they end.
-- Locks: none that anything waits for; four functions are replaced.
-- Oldest program: 2

-- A running call of a lost worker may be started again, where its effect allows
-- that; the key of call_starts sees to it.
create or replace function turnkeeper.check_call_move() returns trigger language plpgsql as $$
begin
    if not (case old.state
        when 'planned' then new.state in ('started', 'succeeded', 'failed', 'skipped', 'denied', 'cancelled')
        when 'started' then new.state in ('running', 'succeeded', 'failed', 'unknown', 'cancelled')
        when 'running' then new.state in ('started', 'succeeded', 'failed', 'unknown', 'cancelled')
        else false
    end) then
        raise exception using errcode = 'TK007',
            message = format('tool call cannot go from %s to %s', old.state, new.state);
    end if;
    return new;
end $$;

create or replace function turnkeeper.start_calls(
    p_turn bigint, p_token bigint, p_worker text,
    p_rounds integer[], p_ordinals integer[], p_attempts integer[], p_nonces text[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = 'started', nonce = s.nonce, starts = s.attempt,
        started_at = clock_timestamp()
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    where c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal
      and c.starts = s.attempt - 1 and c.state in ('planned', 'started', 'running');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was started before';
    end if;
    insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, token, nonce, worker_id)
    select p_turn, s.round, s.ordinal, s.attempt, c.effect, p_token, s.nonce, p_worker
    from unnest(p_rounds, p_ordinals, p_attempts, p_nonces) as s(round, ordinal, attempt, nonce)
    join turnkeeper.calls c on c.turn_id = p_turn and c.round = s.round and c.ordinal = s.ordinal;
end $$;

-- A call that goes to the background has no end yet. It keeps the id under which
-- the model was told of its output, whatever it ends with.
create or replace function turnkeeper.answer_calls(
    p_turn bigint, p_rounds integer[], p_ordinals integer[], p_nonces text[], p_states text[],
    p_shown text[], p_previews text[], p_outputs text[], p_durations bigint[]
) returns void language plpgsql as $$
declare
    n integer;
begin
    update turnkeeper.calls c set state = r.state, shown = r.shown, preview = r.preview,
        output_id = coalesce(nullif(r.output, ''), c.output_id),
        ended_at = case when r.state <> 'running' then greatest(clock_timestamp(), c.started_at) end,
        duration_ms = case when r.state <> 'running' then r.duration end
    from unnest(p_rounds, p_ordinals, p_nonces, p_states, p_shown, p_previews, p_outputs, p_durations)
        as r(round, ordinal, nonce, state, shown, preview, output, duration)
    where c.turn_id = p_turn and c.round = r.round and c.ordinal = r.ordinal
      and c.state in ('planned', 'started', 'running')
      and (c.nonce = r.nonce or r.state = 'unknown');
    get diagnostics n = row_count;
    if n <> cardinality(p_rounds) then
        raise exception using errcode = 'TK002', message = 'the journal has moved on: a call was answered before';
    end if;
end $$;

create or replace function turnkeeper.late_result(
    p_turn bigint, p_round integer, p_ordinal integer, p_nonce text, p_state text, p_shown text, p_preview text
) returns void language plpgsql as $$
begin
    -- What the model was told of a call in the background stays.
    update turnkeeper.calls set state = p_state, shown = case when state = 'running' then shown else p_shown end,
        preview = p_preview, ended_at = greatest(clock_timestamp(), started_at)
    where turn_id = p_turn and round = p_round and ordinal = p_ordinal and state in ('started', 'running') and nonce = p_nonce
      and exists (select from turnkeeper.turns t where t.id = p_turn and t.ended_at is null);
    if not found then
        update turnkeeper.calls set late_result = p_shown, late_at = greatest(clock_timestamp(), started_at)
        where turn_id = p_turn and round = p_round and ordinal = p_ordinal and late_result is null
          and exists (select from turnkeeper.call_starts s where s.turn_id = p_turn and s.round = p_round
                      and s.ordinal = p_ordinal and s.nonce = p_nonce);
    end if;
end $$;
