-- All tables. River's tables are in the same schema; River creates and migrates them, before these.
--
-- References to agents and definitions have no foreign key: a key would make every new message and turn lock the same
-- few rows. References between the rows of a turn have none either: checking them is a lookup for each row. The
-- functions that write a reference read or write its target in the same transaction, and turnctl check looks for rows
-- without one.

----------------------------------------------------------------------------------------------------
-- Settings
----------------------------------------------------------------------------------------------------

-- Settings and state of the installation that change while workers run: one row.
create table turnkeeper.settings (
    singleton               boolean primary key default true check (singleton),
    -- set by operators
    max_message_bytes       integer not null default 65536 check (max_message_bytes between 1 and 16777216),
    -- higher ones need the right to operate
    max_sender_priority     integer not null default 0 check (max_sender_priority between 0 and 1000),
    poll_interval           interval check (poll_interval > interval '0' and poll_interval <= interval '1 hour'),
    max_dispatches_per_tick integer check (max_dispatches_per_tick between 1 and 10000),
    paused_at               timestamptz, -- no turn is granted while this is set
    paused_reason           text,
    -- For how long outputs and events are kept after their message was closed, for workers whose setting retention does
    -- not say: 30 days in a database that is created with this column; null: for ever, as in older databases, in which
    -- nothing is deleted without a setting.
    kept_for                interval check (kept_for > interval '0'),
    -- written by the scheduler
    last_tick_at            timestamptz,
    timeline                text,        -- of the server, at the newest tick
    server_started          timestamptz, -- likewise; null: no tick has recorded it yet
    hold_until              timestamptz, -- the clock or the server changed: no turn is reclaimed before
    hold_reason             text,
    -- the database was unavailable until then, so workers could not write heartbeats; null: never
    silence_from            timestamptz,
    check ((paused_at is null) = (paused_reason is null)),
    check ((hold_until is null) = (hold_reason is null)),
    constraint times_in_range check (
        least(paused_at, last_tick_at, server_started, hold_until, silence_from) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(paused_at, last_tick_at, server_started, hold_until,
            silence_from) < timestamptz '2200-01-01 00:00:00+00')
);
insert into turnkeeper.settings (kept_for) values (interval '30 days');

-- Rows that a tick, a purge or a delivery failed at. They are left out until next_try, so that they stop no others, and
-- are deleted once they succeed or need no work any more. A step of a tick, and the tick itself, are rows of the kinds
-- step and tick: these are tried again at once.
create table turnkeeper.set_aside (
    kind     text not null check (kind in ('message', 'turn', 'call', 'ask', 'sub_agent', 'schedule', 'agent',
        'delivery', 'purge', 'step', 'tick')),
    -- a number; call, sub_agent: TURN/ROUND/ORDINAL; schedule: AGENT/NAME; agent, step: its name; tick: empty
    id       text not null,
    since    timestamptz not null default clock_timestamp(), -- the first failure in a row
    failures integer not null default 1 check (failures > 0), -- in a row
    last_at  timestamptz not null default clock_timestamp(), -- the newest failure
    next_try timestamptz not null,
    code     text not null,     -- SQLSTATE of the newest failure; empty: it was not the server's
    error    text not null,
    primary key (kind, id),
    constraint id_fits_kind check (case
        when kind in ('message', 'turn', 'ask', 'delivery', 'purge') then id ~ '^[0-9]{1,18}$'
        when kind in ('call', 'sub_agent') then id ~ '^[0-9]{1,18}/[0-9]{1,9}/[0-9]{1,9}$' else true end)
);

-- The scheduler's lock is a lock on this table: see lock_scheduler. An advisory lock could be taken by any role that
-- may connect.
create table turnkeeper.scheduler_lock ();

----------------------------------------------------------------------------------------------------
-- Agents
----------------------------------------------------------------------------------------------------

-- Every definition that an agent was ever registered with, by its hash. Rows are never deleted.
create table turnkeeper.definitions (
    hash    text primary key check (hash ~ '^[0-9a-f]{64}$'),
    content text not null
);

create table turnkeeper.agents (
    name                  text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    definition_hash       text not null references turnkeeper.definitions,
    description           text not null default '',
    models                text[] not null, -- in the order in which its turns try them
    give_up_after         interval,    -- how long a message waits for a failing service; null: for ever
    -- of its turns at once; null: the worker_slots of all workers
    max_running           integer check (max_running > 0),
    day_tokens            bigint not null default 0 check (day_tokens >= 0), -- its budget of a day; 0: no limit
    day_calls             bigint not null default 0 check (day_calls >= 0),
    levels                jsonb not null default '{}', -- what happens at its survival levels: survival.Rules in Go
    -- messages with a lower priority wait outside their lanes: see move_levels; null: none do
    holds_below           integer,
    lane_per_conversation boolean not null default false,
    -- When the lanes of the agent were changed, until the old ones are empty, and when a tick last moved its waiting
    -- messages: an open transaction may still accept a message under the old setting.
    lanes_changed_at      timestamptz,
    lanes_moved_at        timestamptz,
    retired_at            timestamptz, -- since when it accepts no new messages; null: it accepts them
    updated_at            timestamptz not null default clock_timestamp()
);

-- Notes that agents write with the notes tool. A note belongs to a user; without a user, to a conversation; and with
-- the setting notes of its agent, to the agent. It is in the key what it belongs to: the others are empty.
create table turnkeeper.notes (
    agent        text not null,
    user_name    text not null default '',
    conversation text not null default '',
    name         text not null,
    content      text not null,
    updated_at   timestamptz not null default clock_timestamp(),
    primary key (agent, user_name, conversation, name),
    check (user_name = '' or conversation = '')
);

-- A schedule's messages are in a conversation without a user.
create table turnkeeper.schedules (
    agent         text not null references turnkeeper.agents,
    name          text not null,
    cron          text not null,          -- from the agent's file
    cron_override text,                   -- set by an operator; a new file does not change it
    time_zone     text not null,
    conversation  text not null,
    message       text not null,
    active        boolean not null default true, -- still in the agent's file
    paused_at     timestamptz,
    paused_reason text,                   -- null: not paused, or no reason was given
    next_due      timestamptz,            -- null: not computed yet
    last_slot     timestamptz,
    last_error    text,
    skipped_slot  timestamptz,            -- the newest slot that did not run; null: none since last_slot
    skipped_why   text,
    skipped       integer not null default 0 check (skipped >= 0), -- slots that did not run since last_slot
    primary key (agent, name),
    check ((skipped_slot is null) = (skipped_why is null) and (skipped_slot is null) = (skipped = 0)),
    constraint times_in_range check (
        least(paused_at, next_due, last_slot, skipped_slot) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(paused_at, next_due, last_slot, skipped_slot) < timestamptz '2200-01-01 00:00:00+00')
);
create index schedules_due on turnkeeper.schedules (next_due) where active and paused_at is null;

----------------------------------------------------------------------------------------------------
-- Inbox
----------------------------------------------------------------------------------------------------

-- The rules of the tables that turns write are functions that "turnctl check" calls for each row. Only turns and
-- messages, which are written least often, also have theirs as a check. A function costs a fifth of the same rules as
-- plain expressions: Postgres parses and plans those again for each statement that writes to the table. Only "turnctl
-- check" looks for blank bodies, because that reads the whole text.

-- The range of priorities. MinPriority and MaxPriority in Go are the same.
create function turnkeeper.lowest_priority() returns integer immutable language sql return -1000;
create function turnkeeper.highest_priority() returns integer immutable language sql return 1000;

-- The rank of a message: its due time less one second for each point of its priority. The lower rank goes first, then
-- the lower id. It is the same rule as Message.Rank in Go.
create function turnkeeper.rank_of(due_at timestamptz, priority integer) returns timestamptz immutable language sql
return case when isfinite(due_at) -- a check refuses the others
    then to_timestamp((extract(epoch from due_at - timestamptz '1970-01-01 00:00:00+00') - priority)::float8)
    else due_at end;

-- The time from which a rank was computed with this priority: the inverse of rank_of.
create function turnkeeper.time_of(p_rank timestamptz, p_priority integer) returns timestamptz stable language sql
return p_rank + make_interval(secs => p_priority);

-- The rank of a message of the lowest priority that becomes due at p_due_at. No message that is due by then has a
-- higher rank.
create function turnkeeper.last_rank(p_due_at timestamptz) returns timestamptz stable language sql
return turnkeeper.rank_of(p_due_at, turnkeeper.lowest_priority());

-- Whose conversation it is and what its name is make up its key, together with the agent: two users never share one. An
-- empty user_name means no user. The same rule is ConversationKey.CheckUser in Go.
create function turnkeeper.user_may_be(p_user text) returns boolean immutable language sql
return octet_length(p_user) <= 200 and p_user !~ '[\u0001-\u001f\u007f-\u009f]';

-- The lane of a conversation: the agent's, if it has one lane for all, else AGENT/NAME, and AGENT@USER/NAME with a
-- user, in whose name "%" and "/" are written %25 and %2F. So two conversations never have one lane, because agents'
-- names contain neither "@" nor "/". A sub-agent's lane does not depend on its agent's setting. ConversationKey.Lane in
-- Go has the same rule.
create function turnkeeper.lane_of(p_agent text, p_user text, p_conversation text,
    p_by_conversation boolean) returns text
immutable language sql return case when not p_by_conversation then p_agent when p_user = '' then p_agent || '/'
    || p_conversation
    else p_agent || '@' || replace(replace(p_user, '%', '%25'), '/', '%2F') || '/' || p_conversation end;

-- No value that passes the rules of messages fails a tick: counters can grow by one.
create function turnkeeper.message_holds(
    id bigint, agent text, user_name text, conversation text, lane text, held boolean, idempotency_key text,
    priority integer, trigger text, schedule text, slot timestamptz, state text, in_queue boolean, attempts integer,
    faults integer, failed_for interval, closed_at timestamptz, dropped_at timestamptz, trace_parent text, sent_by text
) returns boolean immutable language plpgsql as $$
declare
    v_broken text := case
        when not id between 1 and 4611686018427387903 then 'its id is out of range'
        when not octet_length(agent) between 1 and 63 or agent ~ '[/#@]' then 'its agent is not a name'
        when not octet_length(conversation) between 1 and 200 then 'the name of its conversation is empty or too long'
        when not turnkeeper.user_may_be(user_name) then 'its user is not a name'
        when not (lane in (agent, turnkeeper.lane_of(agent, user_name, conversation, true))
            or held and starts_with(lane, agent || '#')) then 'its lane is not one of its agent'
        when not octet_length(idempotency_key) between 1 and 200 then 'its idempotency key is empty or too long'
        when not priority between turnkeeper.lowest_priority() and turnkeeper.highest_priority()
            then 'its priority is out of range'
        when not case trigger
            when 'message' then schedule is null and slot is null
            when 'schedule' then schedule is not null and slot is not null and octet_length(schedule) between 1 and 200
            else false end then 'its trigger does not fit its schedule and slot'
        when not case when state in ('waiting', 'running') then closed_at is null
            else state in ('succeeded', 'degraded', 'failed', 'cancelled') and closed_at is not null end
            then 'its state does not fit closed_at'
        when state = 'waiting' and not in_queue then 'it waits outside the queue'
        when not (attempts between 0 and 1000000 and faults between 0 and 1000000
            and (state <> 'waiting' or attempts < 1000000)) then 'a counter is out of range'
        when not failed_for between interval '0' and interval '100000 days' then 'failed_for is out of range'
        when not octet_length(trace_parent) <= 256 then 'its trace parent is too long'
        when not (split_part(sent_by, ':', 1) in ('role', 'token', 'schedule', 'turn')
            and octet_length(sent_by) between 6 and 300) then 'its sender has no kind'
        when not (dropped_at is null or state in ('waiting', 'cancelled')) then 'it was dropped, but had a turn' end;
begin
    if v_broken is not null then
        raise exception using errcode = 'check_violation',
            message = 'new row for relation "messages" violates check constraint "message_holds": ' || v_broken;
    end if;
    return true;
end $$;

create table turnkeeper.messages (
    id              bigint generated always as identity primary key,
    agent           text not null,
    user_name       text not null default '', -- whose conversation it is; empty: no user's
    conversation    text not null default 'main',
    lane            text not null, -- turns of one lane run one at a time
    held            boolean not null default false, -- a turn outside its lane holds it: it waits in that turn's lane
    body            text not null,
    idempotency_key text,
    priority        integer not null default 0, -- see rank
    trigger         text not null default 'message',
    schedule        text,          -- the schedule that sent the message, with its slot
    slot            timestamptz,
    state           text not null default 'waiting',
    -- Whether the indexes that ticks read have it while it is open: not if its turn waits or is queued. They do not ask
    -- for the state, so that the update that begins a turn changes no index.
    in_queue        boolean not null default true,
    attempts        integer not null default 0, -- turns so far
    faults          integer not null default 0, -- turns that failed because of the message itself
    -- the first failure of a service that is waited out; null: none: see service_wait
    failing_since   timestamptz,
    failed_for      interval not null default '0', -- how long services were waited for before that
    failing_after   timestamptz,                -- the end of the last wait for a person or a budget; null: none
    due_at          timestamptz not null default date_trunc('second', clock_timestamp()), -- no retry changes it
    -- its place in its lane
    rank            timestamptz not null generated always as (turnkeeper.rank_of(due_at, priority)) stored,
    -- The rank of its lane while it is the head. Null: its rank, and it waits since its rank. A message that began to
    -- wait, or waits again, later than its rank has one, because partial looks (see oldest_waiting) leave out old
    -- ranks. After a failure it is the rank as of the next try, so that lanes that fail do not go before lanes that
    -- work.
    queue_rank      timestamptz,
    accepted_at     timestamptz not null default clock_timestamp(),
    closed_at       timestamptz,
    turn_id         bigint,        -- the newest
    last_error      text,
    trace_parent    text,
    -- Who sent it: role:NAME (a session's user), token:ID (of the HTTP API), schedule:NAME, or turn:ID (the parent of a
    -- sub-agent). A retry keeps the sender.
    sent_by         text not null default 'role:' || session_user::text,
    -- of the first body, if the sender has changed it: idempotency keys compare with that one
    first_sha256    bytea,
    dropped_at      timestamptz,   -- when its sender dropped it: the next tick closes it as cancelled
    constraint message_holds check (turnkeeper.message_holds(id, agent, user_name, conversation, lane, held,
        idempotency_key, priority, trigger, schedule, slot, state, in_queue, attempts, faults, failed_for, closed_at,
        dropped_at, trace_parent, sent_by)),
    constraint body_in_range check (octet_length(body) between 1 and 16777216), -- apart: it does not read the text
    -- Times are finite and less than 292 years apart, which is the longest duration in Go.
    constraint times_in_range check (
        least(due_at, accepted_at, closed_at, slot, dropped_at, queue_rank, failing_since,
            failing_after) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(due_at, accepted_at, closed_at, slot, dropped_at, queue_rank, failing_since,
            failing_after) < timestamptz '2200-01-01 00:00:00+00')
) with (fillfactor = 90); -- room for updates on the same page
-- Messages that their senders have dropped, until a tick closes them. The rest of the condition is that of the queue's
-- indexes: without it, the planner looks for them in one of those.
create index messages_dropped on turnkeeper.messages (id)
    where dropped_at is not null and closed_at is null and in_queue;
create index messages_failing on turnkeeper.messages (id) where failing_since is not null and closed_at is null;
create unique index messages_key on turnkeeper.messages (agent, user_name, idempotency_key)
    where idempotency_key is not null;
create unique index messages_slot on turnkeeper.messages (agent, schedule, slot) where slot is not null;
-- For the next message of each lane, and the oldest of all but the held ones, of which thousands may wait for days.
-- Those with a queue_rank are few, and in indexes of their own, so that no entries of other messages need to be read to
-- find them.
create index messages_waiting on turnkeeper.messages (lane, rank, id) where closed_at is null and in_queue;
create index messages_oldest on turnkeeper.messages (rank, id)
    where closed_at is null and in_queue and not held and queue_rank is null;
-- No message that is due has a rank later than now, unless its priority is negative.
create index messages_late on turnkeeper.messages (queue_rank, id)
    where closed_at is null and in_queue and not held and queue_rank is not null and priority >= 0;
create index messages_late_low on turnkeeper.messages (queue_rank, id)
    where closed_at is null and in_queue and not held and queue_rank is not null and priority < 0;
create index messages_late_due on turnkeeper.messages (due_at)
    where closed_at is null and in_queue and not held and queue_rank is not null;
create index messages_late_lane on turnkeeper.messages (lane, rank, id)
    where closed_at is null and in_queue and queue_rank is not null;
-- For lists and searches.
create index messages_agent on turnkeeper.messages (agent, id);
create index messages_conversation on turnkeeper.messages (agent, user_name, conversation, id);
create index messages_user on turnkeeper.messages (user_name, id) where user_name <> '';
-- The words of the first 20,000 characters, because a tsvector has at most one megabyte; and a search for words. Both
-- ignore case: letters are made small by a collation that knows all of them, because in a database of locale C that of
-- the database knows only A to Z.
create function turnkeeper.words_in(body text) returns tsvector immutable parallel safe language sql
return to_tsvector('pg_catalog.simple', lower(left(body, 20000)));
create function turnkeeper.words_asked(words text) returns tsquery immutable parallel safe language sql
return websearch_to_tsquery('pg_catalog.simple', lower(words));
do $$
declare
    v_collation text; -- null: this server has none, and the database's must do
begin
    select format('pg_catalog.%I', c.collname) into v_collation
    from unnest('{und-x-icu,pg_c_utf8,C.utf8,C.UTF-8}'::text[]) with ordinality as known (name, place)
    join pg_catalog.pg_collation c on c.collname = known.name and c.collnamespace = 'pg_catalog'::regnamespace
        and c.collencoding in (-1, pg_char_to_encoding('UTF8'))
    where current_setting('server_encoding') = 'UTF8'
    order by known.place limit 1;
    if v_collation is not null then
        execute format(
            'create or replace function turnkeeper.words_in(body text) returns tsvector
            immutable parallel safe language sql
            return to_tsvector(''pg_catalog.simple'', lower(left(body, 20000) collate %s))', v_collation);
        execute format(
            'create or replace function turnkeeper.words_asked(words text) returns tsquery
            immutable parallel safe language sql
            return websearch_to_tsquery(''pg_catalog.simple'', lower(words collate %s))', v_collation);
    end if;
end
$$;
-- Only of closed messages, because each update of an open message would index its words again.
create index messages_words on turnkeeper.messages using gin (turnkeeper.words_in(body)) where closed_at is not null;

-- The messages that wait. With state = 'waiting' instead, the planner would expect few rows, and sort the queue.
create view turnkeeper.waiting as
select * from turnkeeper.messages where closed_at is null and in_queue and state <> 'running';

-- Closed messages that were retried as new messages, each at most once.
create table turnkeeper.retries (
    message_id bigint primary key,
    retried_as bigint not null unique,
    asked_at   timestamptz not null default clock_timestamp()
);

-- Data of the Responses API about a response, in addition to its message.
create table turnkeeper.responses (
    message_id        bigint primary key references turnkeeper.messages on delete cascade,
    previous_id       bigint,           -- the response that it continues; null: none was named
    background        boolean not null,
    drafts            boolean not null, -- its stream has what the model writes before that is the reply
    metadata          jsonb not null check (jsonb_typeof(metadata) = 'object'),
    instructions      text,             -- the parameter of the request; null: none
    max_output_tokens integer check (max_output_tokens > 0), -- null: the agent's own limit
    -- bytes of the body before the sender's text: instructions, an imported history
    preface           integer not null check (preface >= 0),
    request_sha256    bytea not null,   -- a repeat with the same idempotency key must have the same
    -- Of the agent, the user, the sender, and all that the client has sent and received in the conversation, up to this
    -- message. The next request of a client that sends the whole history is found by it. Null: the client does not know
    -- all of it.
    history_sha256    bytea
);
create index responses_history on turnkeeper.responses (history_sha256, message_id) where history_sha256 is not null;

-- Conversations that were created before their first message: one row until then, and later one for each agent and user
-- to whom the sender has continued it. Such a row is deleted with the last message of its conversation or, if it has
-- none, after 30 days.
create table turnkeeper.api_conversations (
    id         text not null,
    agent      text not null default '',  -- empty: it has no message
    -- whose conversation it is. While it has no message: that the sender's token is bound to; empty: none
    user_name  text not null default '',
    sent_by    text not null,             -- who created it, as in messages; nobody else finds it
    metadata   jsonb not null check (jsonb_typeof(metadata) = 'object'),
    -- what the client says was said before; empty once a message has it
    items      jsonb not null check (jsonb_typeof(items) = 'array'),
    created_at timestamptz not null default clock_timestamp(),
    used_at    timestamptz,               -- of its first message; null: it has none
    primary key (id, agent, user_name)
);
create index api_conversations_unused on turnkeeper.api_conversations (sent_by, created_at) where used_at is null;

----------------------------------------------------------------------------------------------------
-- Leases and workers
----------------------------------------------------------------------------------------------------

create function turnkeeper.lease_holds(
    token bigint, grant_id uuid, turn_id bigint, granted_at timestamptz, lease_until timestamptz, failures integer
) returns boolean immutable language plpgsql as $$
begin
    return token >= 0 and failures >= 0
        and case when grant_id is null then turn_id is null and granted_at is null and lease_until is null
            else turn_id is not null and granted_at is not null and lease_until is not null
                and lease_until > granted_at end;
end $$;

-- The tokens of all grants, so that they only grow, also in a lane whose lease was deleted.
create sequence turnkeeper.tokens;
-- Which turn of a lane runs, until when. A lane in which nothing runs has a row only while it has failures to remember:
-- see lease_goes.
create table turnkeeper.leases (
    lane        text primary key,
    agent       text not null,
    token       bigint not null default nextval('turnkeeper.tokens'), -- of its newest grant
    grant_id    uuid,            -- this and the next three: null: nothing runs
    turn_id     bigint,
    granted_at  timestamptz,
    lease_until timestamptz,
    failures    integer not null default 0, -- failed turns in a row
    not_before  timestamptz,                -- the pause after a failed turn
    waits_for   text[],                     -- the models whose failure caused the pause; null: another cause
    constraint times_in_range check (
        least(granted_at, lease_until, not_before) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(granted_at, lease_until, not_before) < timestamptz '2200-01-01 00:00:00+00')
) with (fillfactor = 50); -- room for updates on the same page
create index leases_held on turnkeeper.leases (lease_until) where grant_id is not null;
create index leases_pausing on turnkeeper.leases (not_before) where not_before is not null;

-- Every grant that has ended. The view lease_log also has those that are held.
create table turnkeeper.ended_grants (
    lane        text not null,
    token       bigint not null,
    grant_id    uuid not null,
    turn_id     bigint not null,
    job_id      bigint, -- null: it was handed over to the scheduler's own worker
    worker_id   text, -- that it was bound to; null: none
    granted_at  timestamptz not null,
    lease_until timestamptz not null,
    ended_at    timestamptz not null,
    outcome     text not null check (outcome in ('finished', 'lost', 'handed_back', 'deferred', 'unclaimed',
        'waiting')),
    primary key (lane, token)
);
create index ended_grants_turn on turnkeeper.ended_grants (turn_id);
create index ended_grants_lost on turnkeeper.ended_grants (grant_id) where outcome = 'lost';

create table turnkeeper.worker_heartbeat (
    worker_id      text primary key,
    host           text not null,
    pid            integer not null,
    version        text not null,               -- of the program
    roles          text[] not null,             -- api, scheduler, webhooks, worker
    -- turns it runs at once; 0: it is draining, or lacks the role worker
    slots          integer not null check (slots >= 0),
    -- 0: its turns are reclaimed only when their leases end
    takeover_after interval not null check (takeover_after >= interval '0'),
    started_at     timestamptz not null default clock_timestamp(),
    beat_at        timestamptz not null default clock_timestamp(),
    stopped_at     timestamptz,
    -- what the database refused it at the heartbeat: objects of presence.Refusal; times in ms
    refused        jsonb not null default '[]',
    constraint times_in_range check (isfinite(started_at) and isfinite(beat_at) and (stopped_at is null
        or isfinite(stopped_at))
        and takeover_after <= interval '10 years')
);

-- The health of each model that has ever failed, shared by all workers.
create table turnkeeper.model_health (
    model       text primary key,           -- provider/model, as in agents.models
    down_since  timestamptz,                -- null: it is up
    until       timestamptz,                -- no request is sent before
    failures    integer not null default 0, -- in a row
    error_class text not null default '',   -- of the newest failure
    error       text not null default '',
    probe_grant uuid,                       -- the grant whose turn probes the model, as long as a lease has that grant
    failed_message bigint,                  -- the message whose turn had the newest failure
    changed_at  timestamptz not null default clock_timestamp(),
    check ((down_since is null) = (until is null) and (down_since is null) = (failures = 0) and failures >= 0)
);

-- Messages whose requests a model has failed in a way that a request can cause, while it may have answered others: see
-- note_models. A row is deleted when its message is closed.
create table turnkeeper.suspects (
    message_id bigint not null,
    model      text not null,
    failures   integer not null default 1, -- turns that failed by it, in a row
    requests   integer not null,           -- that failed in them
    failed_at  timestamptz not null,       -- the newest failure
    until      timestamptz not null,       -- an answer to another request after that makes no pair with it
    open       boolean not null default true, -- no other request was answered since
    pairs      integer not null default 0, -- failures after which another request was answered
    first_pair timestamptz,                -- the first of these failures; null: none
    last_pair  timestamptz,                -- the newest
    primary key (message_id, model),
    check (failures > 0 and requests >= 0 and pairs >= 0 and (pairs = 0) = (first_pair is null)
        and (pairs = 0) = (last_pair is null))
);

----------------------------------------------------------------------------------------------------
-- Turns
----------------------------------------------------------------------------------------------------

create function turnkeeper.turn_holds(
    attempt integer, state text, stop_reason text, ended_at timestamptz, grant_id uuid, lease_until timestamptz
) returns boolean immutable language plpgsql as $$
begin
    return attempt > 0
        and case when state = 'running' then ended_at is null and grant_id is not null and lease_until is not null
            when state in ('queued', 'waiting') then ended_at is null
            when state in ('succeeded', 'degraded', 'failed', 'cancelled') then ended_at is not null
            else false end
        and case when stop_reason is null then ended_at is null
            when stop_reason in ('none', 'max_rounds', 'max_duration', 'max_tool_calls', 'inference_error', 'budget',
                'cancelled', 'worker_lost', 'finished', 'withheld') then ended_at is not null
            else false end;
end $$;

create table turnkeeper.turns (
    id                bigint generated by default as identity primary key,
    message_id        bigint not null,
    attempt           integer not null,            -- of the message
    agent             text not null,
    user_name         text not null default '',
    conversation      text not null,
    lane              text not null,
    home_lane         text, -- while the turn waits for a person outside its lane: the lane that it goes back to
    held              boolean not null default false, -- likewise: later messages of its conversation wait
    trigger           text not null,
    definition_hash   text not null,
    state             text not null,
    -- its newest grant
    token             bigint not null,
    grant_id          uuid,
    job_id            bigint,                      -- of River; null: the scheduler's own worker runs it
    worker_id         text,                        -- that the grant is bound to; null: none yet
    granted_at        timestamptz,
    lease_until       timestamptz,
    dispatches        integer not null default 0,  -- grants so far
    losses            integer not null default 0,  -- grants whose worker was lost
    -- totals when the turn last stopped running: see the view turns_now
    last_seq          bigint not null default 0,   -- of its events
    inference_rounds  integer not null default 0,
    charged_rounds    integer not null default 0,
    executed_calls    integer not null default 0,
    input_tokens      bigint not null default 0,
    output_tokens     bigint not null default 0,
    cached_tokens     bigint not null default 0,
    cache_write_tokens bigint not null default 0,
    reasoning_tokens  bigint not null default 0,
    usage_estimated   boolean not null default false,
    -- times and outcome
    created_at        timestamptz not null default clock_timestamp(),
    due_at            timestamptz,                 -- a queued turn is not granted before; null: at once
    -- the models that a waiting turn waits for, until due_at at most; null: none
    waits_for         text[],
    ended_at          timestamptz,
    stop_reason       text,
    error_class       text,
    error             text,
    inner_dialogue    text,                        -- the model's text in a turn without a reply
    -- when retention deleted its events but the last, and its ended grants; null: it has not: see expire
    events_expired_at timestamptz,
    leases_expired_at timestamptz,
    unique (message_id, attempt),
    check (turnkeeper.turn_holds(attempt, state, stop_reason, ended_at, grant_id, lease_until)),
    constraint times_in_range check (
        least(granted_at, lease_until, created_at, due_at, ended_at, events_expired_at,
            leases_expired_at) >= timestamptz '1970-01-01 00:00:00+00'
        and greatest(granted_at, lease_until, created_at, due_at, ended_at, events_expired_at,
            leases_expired_at) < timestamptz '2200-01-01 00:00:00+00')
) with (fillfactor = 50); -- grants and ends update the row
-- The predicate is not about the state: a query for one state would read this index, in which every turn leaves an
-- entry for as long as a transaction is open.
create unique index turns_one_open_per_lane on turnkeeper.turns (lane) where ended_at is null;
create unique index turns_one_answer_per_message on turnkeeper.turns (message_id)
    where state in ('queued', 'running', 'waiting', 'succeeded', 'degraded', 'cancelled');
create index turns_queued on turnkeeper.turns (due_at) where state = 'queued';
create index turns_models on turnkeeper.turns (due_at) where waits_for is not null;
create index turns_agent on turnkeeper.turns (agent, id);
create index turns_conversation on turnkeeper.turns (agent, user_name, conversation, id);
create index turns_user on turnkeeper.turns (user_name, id) where user_name <> '';
-- The oldest turns whose events, and whose grants, are still stored.
create index turns_with_events on turnkeeper.turns (ended_at) where ended_at is not null and events_expired_at is null;
create index turns_with_leases on turnkeeper.turns (ended_at) where ended_at is not null and leases_expired_at is null;

-- Requests to end turns: to cancel a turn at once, or to let it answer with what it has. A turn has one; a request to
-- cancel replaces one to finish. The row is kept as long as the turn, as the reason why it ended.
create table turnkeeper.requested_ends (
    turn_id  bigint primary key,
    how      text not null default 'cancel' check (how in ('cancel', 'finish')),
    reason   text not null default '',
    asked_at timestamptz not null default clock_timestamp()
);
create index requested_ends_finish on turnkeeper.requested_ends (turn_id) where how = 'finish';

-- The journal: one row for each write of a turn, with everything that was decided and done since the row before. That
-- may be more than one answer of the model: see journal_answers. Rows are only added, and the times of a turn's rows
-- never decrease; only the events of a closed turn are deleted by age: see expire. The views rounds, calls and
-- turn_events show what the rows contain.
create table turnkeeper.journal (
    turn_id  bigint not null,
    n        bigint not null, -- of the write, from 1 without gaps
    write_id uuid,            -- random: a writer whose commit was not answered looks for it
    seq      bigint not null, -- the number of its first event; a turn's events are numbered from 1 without gaps
    last_seq bigint not null, -- of the newest event after the write
    at       timestamptz not null,
    -- totals after the write
    inference_rounds integer not null default 0,
    charged_rounds   integer not null default 0,
    executed_calls   integer not null default 0,
    input_tokens     bigint not null default 0,
    output_tokens    bigint not null default 0,
    cached_tokens    bigint not null default 0,
    cache_write_tokens bigint not null default 0,
    reasoning_tokens bigint not null default 0,
    usage_estimated  boolean not null default false,
    -- the events: an element for each
    types    text[] not null,
    rounds   integer[] not null,
    blocks   integer[] not null,
    data     text[] not null, -- JSON that may hold escapes that jsonb and the functions of json refuse; empty: none
    -- the model's answer, the last one if there are several; null: the write has none
    round     integer,
    answer    json, -- provider, model, usage, ...: see the view rounds
    calls     json, -- the calls it asks for, in order: see the view calls
    text      text,
    reasoning text,
    raw       text, -- the answer as it came; not jsonb, because it is sent again byte for byte
    request   json, -- the recipe from which the request can be rebuilt
    earlier   json, -- the answers before it, an object with the columns above for each; null: none
    -- results of calls, of this round or earlier ones: see the view calls; null: none
    results   json,
    primary key (turn_id, n)
);

-- Large texts are compressed with LZ4 if the server has it: Postgres's own method takes three times as long.
do $$ begin
    alter table turnkeeper.journal alter column data set compression lz4, alter column calls set compression lz4,
        alter column text set compression lz4,
        alter column reasoning set compression lz4, alter column raw set compression lz4, alter column request
            set compression lz4,
        alter column earlier set compression lz4, alter column results set compression lz4;
exception when feature_not_supported then null;
end $$;

-- The newest write of a turn, or write 0 without events.
create function turnkeeper.newest_write(p_turn bigint) returns setof turnkeeper.journal stable language sql as $$
    (select * from turnkeeper.journal where turn_id = p_turn order by n desc limit 1)
    union all select p_turn, 0, null, 1, 0, '-infinity', 0, 0, 0, 0, 0, 0, 0, 0, false, '{}', '{}', '{}', '{}',
        null, null, null, null, null, null, null, null, null
    limit 1
$$;

-- The turns, with the current totals of those that run: a write to a journal leaves the table turns as it is.
create view turnkeeper.turns_now as
select t.id, t.message_id, t.attempt, t.agent, t.user_name, t.conversation, coalesce(t.home_lane, t.lane) as lane,
    t.trigger, t.definition_hash, t.state,
    t.token, t.grant_id, t.job_id, t.worker_id, t.granted_at, t.lease_until, t.dispatches, t.losses,
    coalesce(j.last_seq, t.last_seq) as last_seq,
    coalesce(j.inference_rounds, t.inference_rounds) as inference_rounds, coalesce(j.charged_rounds,
        t.charged_rounds) as charged_rounds,
    coalesce(j.executed_calls, t.executed_calls) as executed_calls,
    coalesce(j.input_tokens, t.input_tokens) as input_tokens, coalesce(j.output_tokens,
        t.output_tokens) as output_tokens,
    coalesce(j.cached_tokens, t.cached_tokens) as cached_tokens,
    coalesce(j.cache_write_tokens, t.cache_write_tokens) as cache_write_tokens,
    coalesce(j.reasoning_tokens, t.reasoning_tokens) as reasoning_tokens,
    coalesce(j.usage_estimated, t.usage_estimated) as usage_estimated,
    t.created_at, t.due_at, t.ended_at, t.stop_reason, t.error_class, t.error, t.inner_dialogue, t.waits_for,
    t.events_expired_at, t.leases_expired_at
from turnkeeper.turns t left join lateral (
    select * from turnkeeper.journal w where w.turn_id = t.id and t.state = 'running' order by w.n desc limit 1
) j on true;

-- The events of turns, one by one.
create view turnkeeper.turn_events as
select j.turn_id, j.seq + e.i - 1 as seq, e.type, e.round, e.block, nullif(e.data, '')::json as data, j.at
from turnkeeper.journal j, lateral unnest(j.types, j.rounds, j.blocks, j.data) with ordinality as e (type, round,
    block, data, i);

-- Summaries of conversations from the beginning up to and including a turn. A summary never changes, because requests
-- were built with it. No foreign keys: a purge may delete turns whose conversation continues from a summary.
create table turnkeeper.summaries (
    agent        text not null,
    user_name    text not null default '',
    conversation text not null,
    up_to        bigint not null, -- the last turn in it
    turn_id      bigint not null, -- the turn that made it
    content      text not null check (content <> ''),
    primary key (agent, user_name, conversation, up_to),
    check (up_to < turn_id)
);

-- Usage of model calls, by scope and period. The figures only increase.
create table turnkeeper.spend (
    scope  text not null, -- agent:NAME, turn:ID or tree:ID
    period text not null, -- a day (UTC) for an agent, else ''
    tokens bigint not null default 0,
    calls  bigint not null default 0,
    -- of an agent, at the newest change: see note_level
    level  text not null default 'normal' check (level in ('normal', 'low', 'critical')),
    primary key (scope, period)
);

-- Survival levels that operators have pinned. A pin goes before what the budget says, and an agent's own before that of
-- all.
create table turnkeeper.pinned_levels (
    agent     text primary key, -- empty: all agents
    level     text not null check (level in ('normal', 'low', 'critical')),
    pinned_by text not null,
    pinned_at timestamptz not null default clock_timestamp(),
    until     timestamptz, -- null: until it is unpinned
    reason    text not null default '',
    constraint times_in_range check (
        least(pinned_at, until) >= timestamptz '1970-01-01 00:00:00+00' and greatest(pinned_at,
            until) < timestamptz '2200-01-01 00:00:00+00')
);

-- Estimates that were reserved in budgets before a model call, until the call reports its actual use.
create table turnkeeper.spend_reservations (
    id         bigint generated always as identity primary key,
    turn_id    bigint not null,
    agent      text not null,
    root       bigint, -- of the tree, if its budget was charged too
    period     text not null,
    tokens     bigint not null,
    settled_at timestamptz,
    used       bigint
);
create index spend_reservations_turn on turnkeeper.spend_reservations (turn_id);

----------------------------------------------------------------------------------------------------
-- Rounds: the answers of models
----------------------------------------------------------------------------------------------------

-- Parts that many requests share, by their hash: definitions of tools, and the request format of a provider. They
-- contain nothing of a conversation. Rows are never deleted.
create table turnkeeper.request_parts (
    sha256  text primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    content text not null
);

-- Model calls that failed, with their usage and partial text. The tokens of a turn are those of its rounds, of its tool
-- calls and of these.
create table turnkeeper.failed_attempts (
    id               bigint generated always as identity primary key,
    turn_id          bigint not null,
    round            integer not null check (round > 0),    -- for which the call was made; it may not exist
    -- at the round, in one dispatch; 0: the call was not for a round's answer
    attempt          integer not null check (attempt >= 0),
    provider         text not null,
    model            text not null,
    error_class      text not null,
    error            text not null, -- for operators
    text             text not null, -- the streamed part, cut at a limit
    reasoning        text not null, -- likewise
    latency_ms       bigint not null check (latency_ms >= 0),
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
    cache_write_tokens bigint not null,
    reasoning_tokens bigint not null,
    usage_estimated  boolean not null,
    ended_at         timestamptz not null default clock_timestamp()
);
create index failed_attempts_of_turn on turnkeeper.failed_attempts (turn_id, id);

----------------------------------------------------------------------------------------------------
-- Tool calls
----------------------------------------------------------------------------------------------------

create function turnkeeper.call_holds(
    ordinal integer, wire_id text, effect text, state text, nonce text, ended_at timestamptz, duration_ms bigint
) returns boolean immutable language plpgsql as $$
begin
    return ordinal > 0 and wire_id <> '' and effect in ('none', 'keyed', 'once')
        and case when state in ('planned', 'running') then ended_at is null
            when state = 'started' then ended_at is null and nonce <> ''
            when state in ('succeeded', 'failed', 'skipped', 'denied', 'unknown', 'cancelled') then ended_at is not null
            else false end
        and (duration_ms is null or duration_ms >= 0);
end $$;

-- Every start of a call with an effect, and those of other calls that run in the background or are remembered
-- (freshness). This table guarantees at most one start of a call of effect once: a second one cannot be inserted,
-- whatever any clock says.
create table turnkeeper.call_starts (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    attempt    integer not null check (attempt > 0),
    effect     text not null check (effect in ('none', 'keyed', 'once')),
    n          bigint not null, -- of the write to the journal; 0: a restart without a grant
    token      bigint not null, -- of the grant; 0: likewise
    nonce      text not null unique,
    worker_id  text not null,
    started_at timestamptz not null default clock_timestamp(),
    agent      text not null,
    name       text not null, -- of the tool
    args_hash  text not null, -- of the arguments that run
    ask_id     bigint unique, -- the approval that the start uses up; null: it needs none
    run_hash   text,          -- of the approved text of the arguments, if they needed an approval
    run_args   text,          -- JSON: the arguments that run, with long texts cut above 256 KiB; null: as planned
    primary key (turn_id, round, ordinal, attempt),
    check (effect <> 'once' or attempt = 1 or ask_id is not null)
);
create index call_starts_recent on turnkeeper.call_starts (agent, name, args_hash, turn_id);

-- Results that came after the worker had lost its turn, when another worker had the turn or it had ended: they change
-- nothing.
create table turnkeeper.late_results (
    turn_id bigint not null,
    round   integer not null,
    ordinal integer not null,
    result  text not null,
    at      timestamptz not null default clock_timestamp(),
    primary key (turn_id, round, ordinal)
);

-- The turns that are part of the history of later turns: not those that were cancelled before their first grant; and of
-- a message's failed attempts, the last one and those that ran a tool with an effect. Whether the view has a turn never
-- changes after the turn ended, because requests are rebuilt from this view.
create view turnkeeper.history_turns as
select t.id, t.message_id, t.agent, t.user_name, t.conversation, t.state, t.error_class, t.inner_dialogue
from turnkeeper.turns t
where t.state in ('succeeded', 'degraded', 'failed', 'cancelled')
  and case t.state
      when 'cancelled' then t.dispatches > 0
      when 'failed' then
          exists (select from turnkeeper.messages m where m.id = t.message_id and m.turn_id = t.id
              and m.state = 'failed')
          or exists (select from turnkeeper.call_starts c where c.turn_id = t.id and c.effect <> 'none')
      else true end;

----------------------------------------------------------------------------------------------------
-- Outputs: stored tool results
----------------------------------------------------------------------------------------------------

create table turnkeeper.outputs (
    id          text primary key,
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null,
    media_type  text not null,
    chunked     boolean not null default false, -- the content is in output_chunks; here it is empty
    content     text,
    bytes       bytea,
    size_bytes  bigint not null,
    raw_bytes   bigint not null,
    chars       bigint not null,
    tokens      bigint not null,
    sha256      text not null,
    incomplete  boolean not null,
    description text not null,
    retrieved   bigint not null default 0,
    created_at  timestamptz not null default clock_timestamp(),
    expired_at  timestamptz, -- when retention deleted its content: content or bytes is empty then; null: it has not
    check ((content is null) <> (bytes is null)),
    check (expired_at is null or not chunked and coalesce(content, '') = '' and coalesce(bytes, '') = '')
);
create index outputs_call on turnkeeper.outputs (turn_id, round, ordinal);
create index outputs_stored on turnkeeper.outputs (created_at) where expired_at is null;

-- Parts of large contents, each at most 64 KB of whole characters, so that reading a part of an output reads only its
-- chunks, and so that an output can be written while it arrives. They are compressed (storage EXTENDED, the default):
-- EXTERNAL helps only where a part of a value is read.
create table turnkeeper.output_chunks (
    output_id  text not null,
    first_char bigint not null check (first_char >= 0), -- of binary content, its first byte
    content    text check (content <> ''),
    bytes      bytea check (octet_length(bytes) > 0),
    primary key (output_id, first_char),
    check ((content is null) <> (bytes is null))
);
-- With LZ4, writing takes as long as without compression; with Postgres's own method, three times as long. A server may
-- be built without LZ4.
do $$ begin
    alter table turnkeeper.output_chunks alter column content set compression lz4,
        alter column bytes set compression lz4;
exception when feature_not_supported then null;
end $$;

-- Outputs that are still being written, chunk by chunk, before the journal names them. Chunks are added only while the
-- row exists. The write that records the result deletes the row. If the turn no longer runs under the grant,
-- sweep_drafts deletes the row and the chunks.
create table turnkeeper.output_drafts (
    output_id  text primary key,
    turn_id    bigint not null,
    grant_id   uuid not null
);

-- A cache of the results of extractions, by text, query, model and prompt. A row is deleted with the records of the
-- turn that made it, and after a week at the latest.
create table turnkeeper.extractions (
    source_sha256  text not null,
    query_sha256   text not null,
    model          text not null,
    prompt_version integer not null,
    turn_id        bigint not null,
    result         json not null,
    created_at     timestamptz not null default clock_timestamp(),
    primary key (source_sha256, query_sha256, model, prompt_version)
);
create index extractions_turn on turnkeeper.extractions (turn_id);
create index extractions_age on turnkeeper.extractions (created_at);

----------------------------------------------------------------------------------------------------
-- Detached calls and sub-agents
----------------------------------------------------------------------------------------------------

-- Calls whose result comes from another process. The result is stored here until the turn writes it to its journal,
-- because only the holder of the turn's grant may write there.
create table turnkeeper.awaited_calls (
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null,
    nonce       text not null, -- of the start whose result is accepted
    opened_at   timestamptz not null default clock_timestamp(),
    arrived_at  timestamptz,
    state       text check (state in ('succeeded', 'failed', 'unknown', 'cancelled')),
    preview     text not null default '',
    duration_ms bigint check (duration_ms >= 0),
    output_id   text,
    closed_at   timestamptz, -- when the journal got the result
    primary key (turn_id, round, ordinal),
    check ((arrived_at is null) = (state is null))
) with (fillfactor = 70);

-- The run of a detached call in its own River job. The worker that claims it runs it; each attempt is claimed at most
-- once.
create table turnkeeper.detached_calls (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    attempt    integer not null default 1 check (attempt > 0),
    time_limit interval not null check (time_limit > interval '0'),
    deadline   timestamptz not null, -- for the claim, and after it for the run
    look_at    timestamptz not null, -- while unclaimed: when to check that the job still exists
    job_id     bigint not null,
    claim      text unique,
    worker_id  text,
    claimed_at timestamptz,
    lost_at    timestamptz, -- when its worker gave it up
    losses     integer not null default 0 check (losses >= 0),
    delivered  boolean not null default false, -- by the worker that claimed it
    ended_at   timestamptz,
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round, ordinal) references turnkeeper.awaited_calls,
    check ((claim is null) = (worker_id is null)),
    check ((claim is null) = (claimed_at is null)),
    check (not delivered or ended_at is not null)
) with (fillfactor = 70);
create index detached_calls_run on turnkeeper.detached_calls (worker_id) where claim is not null and ended_at is null;
create index detached_calls_wait on turnkeeper.detached_calls (look_at) where claim is null and ended_at is null;

-- The bounds of a tree of sub-agents.
create table turnkeeper.agent_trees (
    root       bigint primary key, -- the turn at the top, which is not a sub-agent's
    max_depth  integer not null check (max_depth >= 0),
    max_agents integer not null check (max_agents >= 0),
    tokens     bigint not null default 0 check (tokens >= 0), -- of all model calls of the tree; 0: no bound
    calls      bigint not null default 0 check (calls >= 0)
);

-- Calls that gave work to a sub-agent, as a message whose reply is the call's result. The row is kept as long as the
-- parent's records, because it says who spawned a turn.
create table turnkeeper.spawned_calls (
    turn_id    bigint not null,          -- the parent
    round      integer not null,
    ordinal    integer not null,
    message_id bigint unique,            -- null: the call was refused, and no message written
    agent      text not null,
    root       bigint not null references turnkeeper.agent_trees,
    agents     text[] not null,          -- the path from the root's agent to this one
    spawned_at timestamptz not null default clock_timestamp(),
    deadline   timestamptz not null,     -- for the reply
    failure    text,                     -- why the call has no reply
    child      bigint,                   -- the turn that replied
    outcome    text check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    stop       text,
    ended_at   timestamptz,              -- when it got its reply, or was refused
    notified_at    timestamptz,              -- when the call got its result, or stopped waiting for one
    dropped_at timestamptz,              -- when the call stopped waiting before the reply: the sub-agent is cancelled
    primary key (turn_id, round, ordinal),
    check (cardinality(agents) > 1),
    check (message_id is not null or (failure is not null and ended_at is not null)),
    check (outcome is null or ended_at is not null)
) with (fillfactor = 70);
create index spawned_calls_tree on turnkeeper.spawned_calls (root);
create index spawned_calls_unnotified on turnkeeper.spawned_calls (ended_at) where ended_at is not null
    and notified_at is null;
create index spawned_calls_open on turnkeeper.spawned_calls (deadline) where ended_at is null and notified_at is null;
create index spawned_calls_dropped on turnkeeper.spawned_calls (dropped_at) where dropped_at is not null
    and ended_at is null;

----------------------------------------------------------------------------------------------------
-- Replies and webhooks
----------------------------------------------------------------------------------------------------

-- The outbox. Triggers set sent_by and labels, and stop_reason, error_class and calls.
create table turnkeeper.replies (
    id             bigint generated always as identity primary key,
    message_id     bigint not null unique,
    turn_id        bigint not null unique,
    parent_turn_id bigint,        -- of a sub-agent's reply: the turn that it is for; null: not a sub-agent's
    agent          text not null,
    user_name      text not null default '',
    conversation   text not null,
    outcome        text not null check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    stop_reason    text not null, -- why the turn ended
    error_class    text,          -- of the error that ended it; null: none
    body           text not null, -- empty: the agent replies silently to such an outcome
    calls          jsonb not null, -- see turnkeeper.reply_calls
    labels         text[] not null default '{}', -- of the turns of its message; see turnkeeper.labels
    sent_by        text not null, -- who sent the message, for turnkeeper.my_replies_after
    created_at     timestamptz not null default clock_timestamp(),
    constraint replies_body_check check (body <> '' or outcome <> 'succeeded')
);
create index replies_agent on turnkeeper.replies (agent, id);
create index replies_user on turnkeeper.replies (user_name, id) where user_name <> '';
create index replies_sender on turnkeeper.replies (sent_by, id);

-- Endpoints to which replies, and asks, are pushed. Only the workers' settings have their addresses and secrets.
create table turnkeeper.webhooks (
    name          text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    origin        text not null, -- scheme, host and port of the address
    agents        text[] check (cardinality(agents) > 0), -- push only their replies; null: all
    sub_agents    boolean not null default false, -- push the replies of sub-agents too
    asks          boolean not null default false, -- push opened asks too
    added_at      timestamptz not null default clock_timestamp(),
    seen_at       timestamptz not null default clock_timestamp(), -- when a worker last had it in its settings
    not_before    timestamptz, -- until then, the endpoint asked for a pause
    paused_at     timestamptz,
    paused_reason text,
    succeeded_at  timestamptz, -- the newest success
    failed_at     timestamptz, -- the newest failure
    last_error    text,
    check ((paused_at is null) = (paused_reason is null))
);

-- One row for each reply and webhook, inserted with the reply, and for each ask and webhook that gets asks. While it is
-- pending, due_at is the time of the next attempt; while it is claimed, the time when the claim expires.
create table turnkeeper.webhook_deliveries (
    id           bigint generated always as identity primary key,
    reply_id     bigint references turnkeeper.replies,
    ask_id       bigint, -- references turnkeeper.asks
    webhook      text not null,
    state        text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
    attempts     integer not null default 0 check (attempts >= 0),
    due_at       timestamptz default clock_timestamp(),
    claim        text,
    worker_id    text,
    first_at     timestamptz, -- start of the first attempt since it was inserted or redelivered
    last_at      timestamptz, -- end of the newest attempt
    status       integer,     -- HTTP status of the newest response; null: there was none
    error        text,        -- of the newest attempt; null: it succeeded
    duration_ms  bigint check (duration_ms >= 0),
    redelivered  integer not null default 0, -- how often an operator redelivered it
    created_at   timestamptz not null default clock_timestamp(),
    unique (reply_id, webhook),
    check (num_nonnulls(reply_id, ask_id) = 1),
    check ((state = 'pending') = (due_at is not null)),
    check (claim is null or state = 'pending')
) with (fillfactor = 70);
create index webhook_deliveries_due on turnkeeper.webhook_deliveries (webhook, due_at) where state = 'pending';
create index webhook_deliveries_claimed on turnkeeper.webhook_deliveries (webhook) where claim is not null;
create index webhook_deliveries_dead on turnkeeper.webhook_deliveries (webhook, id) where state = 'dead';
create index webhook_deliveries_newest on turnkeeper.webhook_deliveries (webhook, id);
create unique index webhook_deliveries_ask on turnkeeper.webhook_deliveries (ask_id, webhook) where ask_id is not null;
create index webhook_deliveries_open_asks on turnkeeper.webhook_deliveries (webhook)
    where state = 'pending' and ask_id is not null;

----------------------------------------------------------------------------------------------------
-- API tokens and sessions
----------------------------------------------------------------------------------------------------

-- Only the hash of a token is stored: a lost token must be replaced.
create table turnkeeper.api_tokens (
    id           bigint generated always as identity primary key,
    name         text not null unique check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    sha256       text not null unique check (sha256 ~ '^[0-9a-f]{64}$'),
    scopes       text[] not null check (cardinality(scopes) > 0 and scopes <@ array['send', 'read',
        'operate', 'answer']),
    agents       text[] check (cardinality(agents) > 0), -- null: all
    -- it sends as, and sees, only this user; empty: all
    user_name    text not null default '' check (turnkeeper.user_may_be(user_name)),
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz, -- null: never
    last_used_at timestamptz, -- to the minute
    -- Who sends messages must not answer what their turns ask.
    constraint no_token_may_both_send_and_answer check (not scopes @> array['send', 'answer'])
);

-- Sessions of browsers that are signed in to the page. A session has the scopes and agents of its token, and ends with
-- it.
create table turnkeeper.page_sessions (
    sha256     text primary key check (sha256 ~ '^[0-9a-f]{64}$'), -- of the browser's cookie
    token_id   bigint not null references turnkeeper.api_tokens on delete cascade,
    expires_at timestamptz not null
);
create index page_sessions_token on turnkeeper.page_sessions (token_id);
create index page_sessions_expires on turnkeeper.page_sessions (expires_at);

----------------------------------------------------------------------------------------------------
-- MCP
----------------------------------------------------------------------------------------------------

-- Tools of MCP servers: the pinned definition, and the one that was last seen.
create table turnkeeper.mcp_tools (
    server             text not null,
    tool               text not null, -- the server's name for it
    pinned_description text not null,
    pinned_schema      text not null, -- JSON
    pinned_read_only   boolean not null,
    pinned_idempotent  boolean not null,
    pinned_hash        text not null,
    pinned_at          timestamptz not null default clock_timestamp(),
    description        text not null,
    schema             text not null, -- JSON
    read_only          boolean not null,
    idempotent         boolean not null,
    hash               text not null,
    seen_at            timestamptz not null default clock_timestamp(),
    gone               boolean not null default false, -- missing from the server's newest list
    primary key (server, tool)
);

-- Logins of people to MCP servers, shared by all workers. The tokens are encrypted with a key that is not in the
-- database.
create sequence turnkeeper.mcp_login_revisions;
create table turnkeeper.mcp_logins (
    server        text primary key,
    revision      bigint not null default nextval('turnkeeper.mcp_login_revisions'), -- changes whenever sealed does
    sealed        bytea not null,       -- AES-256-GCM: a nonce, then the tokens
    scopes        text[] not null,      -- granted, if the server reported them
    wanted        text[] not null default '{}', -- scopes that the server has asked for since
    expires_at    timestamptz,          -- of the access token; null: unknown
    renewable     boolean not null,
    logged_in_at  timestamptz not null default clock_timestamp(),
    renewed_at    timestamptz,
    lapsed        text,                 -- why the login is no longer valid; null: it is valid
    claim         text,                 -- of the worker that renews it; null: none
    claimed_until timestamptz,
    check ((claim is null) = (claimed_until is null))
);
alter sequence turnkeeper.mcp_login_revisions owned by turnkeeper.mcp_logins.revision;
