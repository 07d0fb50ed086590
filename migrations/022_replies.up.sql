-- What a reply tells beside its text: why the turn ended, and what became of its calls. A reply may have no text.
-- Oldest program: 2
-- Locks: replies, for a moment, to add columns without reading a row, and a trigger. Replies that are there keep no calls and
-- no reason: their turns have them.

alter table turnkeeper.replies
    add column stop_reason text, -- why the turn ended: none, max_rounds, ...; null: an older release wrote the reply
    add column error_class text, -- of the error that ended the turn; null: none
    add column calls jsonb not null default '[]', -- see turnkeeper.reply_calls
    drop constraint replies_body_check,
    add constraint replies_body_check check (body <> '' or outcome <> 'succeeded') not valid; -- empty: the agent replies to such an outcome without a text

-- In plain words why a call did not succeed; empty: it did, or was not needed. What its tool returned is not in it. The
-- programs have the same rules.
create function turnkeeper.call_problem(p_state text, p_effect text, p_nonce text, p_preview text, p_shown text) returns text immutable language sql as $$
    select case p_state
        when 'succeeded' then ''
        when 'skipped' then ''
        when 'planned' then 'not run'
        when 'failed' then coalesce(substring(p_preview from '^tool error: ''[^'']*'' (timed out after [0-9.]+ s)'), 'the tool failed')
        when 'denied' then case when r.line = '' or r.line like '{%' then 'refused' else left(r.line, 200) end
        when 'cancelled' then case when p_effect <> 'none' and p_nonce <> '' then 'it may or may not have happened' else 'cancelled before it ended' end
        else 'it may or may not have happened'
    end
    from (select split_part(regexp_replace(p_shown, '^denied: ', ''), E'\n', 1) as line) r
$$;

-- The calls of a turn, in the order they were asked for: ordinal (in the turn, from 1), id, name, effect, state, duration_ms (null: it
-- did not run, or nobody knows) and error (empty: none).
create function turnkeeper.reply_calls(p_turn bigint) returns jsonb stable language sql as $$
    select coalesce(jsonb_agg(jsonb_build_object(
        'ordinal', c.n, 'id', format('round-%s-tool-%s', c.round, c.ordinal), 'name', c.name, 'effect', c.effect, 'state', c.state,
        'duration_ms', case when c.duration_ms > 0 or c.state in ('succeeded', 'failed') then c.duration_ms end,
        'error', turnkeeper.call_problem(c.state, c.effect, c.nonce, c.preview, c.shown)
    ) order by c.n), '[]')
    from (select *, row_number() over (order by round, ordinal) as n from turnkeeper.calls where turn_id = p_turn) c
$$;

-- Every writer of replies is covered, older releases too.
create function turnkeeper.complete_reply() returns trigger language plpgsql as $$
begin
    select t.stop_reason, t.error_class into new.stop_reason, new.error_class from turnkeeper.turns t where t.id = new.turn_id;
    new.calls := turnkeeper.reply_calls(new.turn_id);
    return new;
end $$;
create trigger complete_reply before insert on turnkeeper.replies for each row execute function turnkeeper.complete_reply();
