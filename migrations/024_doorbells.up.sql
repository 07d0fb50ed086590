-- Doorbells that ring at once even if the clock is set back.
-- Oldest program: 2
-- Locks: none.

-- As before, but due in the past: River fetches jobs whose scheduled_at is not after now(), and the default of that column
-- is the start of the transaction. Where the clock was set back by ten minutes meanwhile, the job was not due for ten.
create or replace function turnkeeper.ring_detached(p_turn bigint, p_round integer, p_ordinal integer, p_attempt integer, p_tool text)
returns bigint language plpgsql as $$
declare
    job   bigint;
    queue text := 'detached_' || left(encode(sha256(convert_to(p_tool, 'UTF8')), 'hex'), 32);
begin
    insert into turnkeeper.river_job (args, kind, max_attempts, priority, queue, scheduled_at, state, tags)
    values (jsonb_build_object('turn_id', p_turn, 'round', p_round, 'ordinal', p_ordinal, 'attempt', p_attempt),
        'DetachedCall', 1, 1, queue, '2000-01-01', 'available', '{}')
    returning id into job;
    perform pg_notify('turnkeeper.river_insert', jsonb_build_object('queue', queue)::text);
    return job;
end $$;
