-- All tables. River's tables lie in the same schema; River migrates them itself, before these.
--
-- Most references between tables have no foreign key: a key would make every new message and turn lock the same few rows
-- of agents and definitions, and a purge has to delete in an order of its own. The functions that write a reference have
-- read its target in the same transaction.

----------------------------------------------------------------------------------------------------
-- Settings
----------------------------------------------------------------------------------------------------

-- The state of the installation that may change while workers run and must outlast them: one row.
create table turnkeeper.settings (
    singleton               boolean primary key default true check (singleton),
    -- set by operators
    max_message_bytes       integer not null default 65536 check (max_message_bytes > 0),
    poll_interval           interval check (poll_interval > interval '0'),
    max_dispatches_per_tick integer check (max_dispatches_per_tick > 0),
    paused_at               timestamptz, -- no turn is granted while this is set
    paused_reason           text,
    -- noted by the scheduler
    last_tick_at            timestamptz,
    timeline                text,        -- of the server that the newest tick saw
    server_started          timestamptz, -- likewise; null: no tick has noted it yet
    hold_until              timestamptz, -- the clock or the server changed: nothing is taken from workers before
    hold_reason             text,
    silence_from            timestamptz, -- the database was away until then: workers could not write heartbeats. Null: never
    lane_token              bigint not null default 0, -- no deleted lease had a higher token: a new lane's tokens begin above
    check ((paused_at is null) = (paused_reason is null)),
    check ((hold_until is null) = (hold_reason is null))
);
insert into turnkeeper.settings default values;

----------------------------------------------------------------------------------------------------
-- Agents
----------------------------------------------------------------------------------------------------

-- Every definition that an agent ever ran with, by its hash. Rows are never deleted.
create table turnkeeper.definitions (
    hash    text primary key check (hash ~ '^[0-9a-f]{64}$'),
    content text not null
);

create table turnkeeper.agents (
    name                  text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    definition_hash       text not null references turnkeeper.definitions,
    description           text not null default '',
    models                text[] not null, -- that its turns ask, in order
    give_up_after         interval,    -- how long a message waits for a service that fails; null: for ever
    lane_per_conversation boolean not null default false,
    -- When the lanes of the agent were changed, until nothing is left in the old ones, and when a tick last moved its
    -- waiting messages: a transaction under way may still accept a message under the old setting.
    lanes_changed_at      timestamptz,
    lanes_moved_at        timestamptz,
    retired_at            timestamptz, -- since when it takes no new messages; null: it takes them
    updated_at            timestamptz not null default clock_timestamp()
);

-- Notes that an agent keeps for itself.
create table turnkeeper.notes (
    agent      text not null,
    name       text not null,
    content    text not null,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (agent, name)
);

create table turnkeeper.schedules (
    agent         text not null references turnkeeper.agents,
    name          text not null,
    cron          text not null,          -- as the agent's file has it
    cron_override text,                   -- as an operator changed it; new files do not undo that
    time_zone     text not null,
    conversation  text not null,
    message       text not null,
    active        boolean not null default true, -- still in the agent's file
    paused_at     timestamptz,
    paused_reason text,                   -- null: not paused, or no reason was given
    next_due      timestamptz,            -- null: to be computed
    last_slot     timestamptz,
    last_error    text,
    primary key (agent, name)
);
create index schedules_due on turnkeeper.schedules (next_due) where active and paused_at is null;

----------------------------------------------------------------------------------------------------
-- Inbox
----------------------------------------------------------------------------------------------------

-- The rules for the rows of the busiest tables are functions, one check a table: Postgres parses every check of a table
-- anew for each statement that writes there, which took longer than the write itself.

create function turnkeeper.message_holds(
    body text, conversation text, idempotency_key text, priority integer, trigger text, schedule text, slot timestamptz,
    state text, attempts integer, closed_at timestamptz
) returns boolean immutable language plpgsql as $$
begin
    return btrim(body, E' \t\r\n') <> ''
        and octet_length(conversation) between 1 and 200
        and (idempotency_key is null or octet_length(idempotency_key) between 1 and 200)
        and priority between -1000 and 1000
        and case trigger
            when 'message' then slot is null or schedule is null
            when 'schedule' then slot is not null and schedule is not null
            else false end
        and case when state in ('waiting', 'running') then closed_at is null
            when state in ('answered', 'failed', 'cancelled') then closed_at is not null
            else false end
        and attempts >= 0;
end $$;

create table turnkeeper.messages (
    id              bigint generated always as identity primary key,
    agent           text not null,
    conversation    text not null default 'main',
    lane            text not null, -- turns of one lane run one after the other
    body            text not null,
    idempotency_key text,
    priority        integer not null default 0, -- higher goes first
    trigger         text not null default 'message',
    schedule        text,          -- the schedule and its slot, if one sent the message
    slot            timestamptz,
    state           text not null default 'waiting',
    attempts        integer not null default 0, -- turns so far
    faults          integer not null default 0, -- turns that failed by the message's own fault
    due_at          timestamptz not null default date_trunc('second', clock_timestamp()),
    accepted_at     timestamptz not null default clock_timestamp(),
    closed_at       timestamptz,
    turn_id         bigint,        -- the newest
    last_error      text,
    trace_parent    text,
    unique (agent, idempotency_key),
    unique (agent, schedule, slot),
    check (turnkeeper.message_holds(body, conversation, idempotency_key, priority, trigger, schedule, slot, state, attempts, closed_at))
);
-- The next message of each lane, and the oldest of all.
create index messages_waiting on turnkeeper.messages (lane, due_at, priority desc, id) where state = 'waiting';
create index messages_oldest on turnkeeper.messages (due_at, priority desc, id) where state = 'waiting';
-- For lists and searches.
create index messages_agent on turnkeeper.messages (agent, id);
create index messages_conversation on turnkeeper.messages (agent, conversation, id);
-- The words of the first 20,000 characters, because a tsvector holds no more than a megabyte. Only closed messages, because
-- each update of an open one would write its words again.
create index messages_words on turnkeeper.messages using gin (to_tsvector('pg_catalog.simple', left(body, 20000)))
    where closed_at is not null;

-- Closed messages that were put into the inbox again, as new messages: each at most once.
create table turnkeeper.retries (
    message_id bigint primary key,
    retried_as bigint not null unique,
    asked_at   timestamptz not null default clock_timestamp()
);

-- What the Responses API keeps of a response besides its message.
create table turnkeeper.responses (
    message_id  bigint primary key references turnkeeper.messages on delete cascade,
    previous_id bigint,           -- the response that it continues; null: none was named
    background  boolean not null,
    metadata    jsonb not null check (jsonb_typeof(metadata) = 'object'),
    token_id    bigint            -- who made it and may cancel it; null: a client on loopback
);

----------------------------------------------------------------------------------------------------
-- Leases and workers
----------------------------------------------------------------------------------------------------

create function turnkeeper.lease_holds(
    token bigint, grant_id uuid, turn_id bigint, granted_at timestamptz, lease_until timestamptz, failures integer
) returns boolean immutable language plpgsql as $$
begin
    return token >= 0 and failures >= 0
        and case when grant_id is null then turn_id is null and granted_at is null and lease_until is null
            else turn_id is not null and granted_at is not null and lease_until is not null and lease_until > granted_at end;
end $$;

-- Which turn of a lane runs, until when. Each grant has the next token. A lease that is deleted leaves its token in
-- settings.lane_token, so that no token of a lane is ever given twice.
create table turnkeeper.leases (
    lane        text primary key,
    agent       text not null,
    token       bigint not null default 0,
    grant_id    uuid unique,
    turn_id     bigint,
    granted_at  timestamptz,
    lease_until timestamptz,
    failures    integer not null default 0, -- failed turns in a row
    not_before  timestamptz,                -- the pause after a failed turn
    waits_for   text[],                     -- the models whose failure is the reason of the pause; null: another reason
    check (turnkeeper.lease_holds(token, grant_id, turn_id, granted_at, lease_until, failures))
) with (fillfactor = 50); -- rows are updated in place, which needs room on their page
create index leases_held on turnkeeper.leases (lease_until) where grant_id is not null;

-- Every grant that was ever made, and how it ended.
create table turnkeeper.lease_log (
    id          bigint generated always as identity primary key,
    lane        text not null references turnkeeper.leases,
    token       bigint not null,
    grant_id    uuid not null unique,
    turn_id     bigint not null,
    job_id      bigint not null,
    worker_id   text,
    granted_at  timestamptz not null,
    lease_until timestamptz not null,
    ended_at    timestamptz,
    outcome     text check (outcome in ('finished', 'lost', 'handed_back', 'deferred', 'unclaimed', 'waiting')),
    check ((ended_at is null) = (outcome is null)),
    unique (lane, token)
);
create index lease_log_turn on turnkeeper.lease_log (turn_id);

create table turnkeeper.worker_heartbeat (
    worker_id      text primary key,
    host           text not null,
    pid            integer not null,
    version        text not null,               -- of the program
    roles          text[] not null,             -- api, scheduler, webhooks, worker
    slots          integer not null check (slots >= 0), -- turns it takes at once; 0: it is draining, or has not the role worker
    takeover_after interval not null check (takeover_after >= interval '0'), -- 0: only at the lease's end
    started_at     timestamptz not null default clock_timestamp(),
    beat_at        timestamptz not null default clock_timestamp(),
    stopped_at     timestamptz
);

-- The health of each model that has ever failed, shared by all workers.
create table turnkeeper.model_health (
    model       text primary key,           -- provider/model, as agents name it
    down_since  timestamptz,                -- null: it is up
    until       timestamptz,                -- no request is sent to it before
    failures    integer not null default 0, -- in a row
    error_class text not null default '',   -- of the newest failure
    error       text not null default '',
    probe_grant uuid,                       -- the grant whose turn tries the model, while a lease holds that grant
    changed_at  timestamptz not null default clock_timestamp(),
    check ((down_since is null) = (until is null) and (down_since is null) = (failures = 0) and failures >= 0)
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
                'cancelled', 'worker_lost') then ended_at is not null
            else false end;
end $$;

create table turnkeeper.turns (
    id                bigint generated by default as identity primary key,
    message_id        bigint not null references turnkeeper.messages,
    attempt           integer not null,            -- of the message
    agent             text not null,
    conversation      text not null,
    lane              text not null,
    trigger           text not null,
    definition_hash   text not null,
    state             text not null,
    -- the grant that it runs under, or ran under last
    token             bigint not null,
    grant_id          uuid,
    job_id            bigint,                      -- of River
    worker_id         text,                        -- null: no worker has taken up the grant yet
    granted_at        timestamptz,
    lease_until       timestamptz,
    dispatches        integer not null default 0,  -- grants so far
    losses            integer not null default 0,  -- grants whose worker was lost
    -- the journal
    entries           bigint not null default 0,   -- writes so far
    write_id          uuid,                        -- random, of the newest write: a writer whose commit got no answer looks for its own
    last_seq          bigint not null default 0,   -- of its events
    -- what it took
    inference_rounds  integer not null default 0,
    charged_rounds    integer not null default 0,
    executed_calls    integer not null default 0,
    input_tokens      bigint not null default 0,
    output_tokens     bigint not null default 0,
    cached_tokens     bigint not null default 0,
    reasoning_tokens  bigint not null default 0,
    usage_estimated   boolean not null default false,
    -- when, and how it ended
    created_at        timestamptz not null default clock_timestamp(),
    due_at            timestamptz,                 -- queued, and not to be granted before
    ended_at          timestamptz,
    stop_reason       text,
    error_class       text,
    error             text,
    inner_dialogue    text,                        -- what it said where nobody is replied to
    unique (message_id, attempt),
    check (turnkeeper.turn_holds(attempt, state, stop_reason, ended_at, grant_id, lease_until))
) with (fillfactor = 50); -- every write to the journal updates the row
create unique index turns_one_open_per_lane on turnkeeper.turns (lane)
    where state in ('queued', 'running', 'waiting');
create unique index turns_one_answer_per_message on turnkeeper.turns (message_id)
    where state in ('queued', 'running', 'waiting', 'succeeded', 'degraded', 'cancelled');
create index turns_queued on turnkeeper.turns (due_at) where state = 'queued';
create index turns_agent on turnkeeper.turns (agent, id);
create index turns_conversation on turnkeeper.turns (agent, conversation, id);

-- Turns that somebody has asked to cancel. The row stays with the turn: while the turn is open it says that it may be
-- closed, and afterwards why it ended.
create table turnkeeper.cancellations (
    turn_id  bigint primary key,
    reason   text not null default '',
    asked_at timestamptz not null default clock_timestamp()
);

-- What clients read while a turn runs, and afterwards.
create table turnkeeper.turn_events (
    turn_id bigint not null,
    seq     bigint not null check (seq > 0),
    type    text not null,
    round   integer not null,
    block   integer not null,
    data    json, -- json, not jsonb: any escape that a model may write is kept
    at      timestamptz not null default clock_timestamp(),
    primary key (turn_id, seq)
);

-- Summaries of the beginnings of conversations, up to and including a turn. A summary never changes, because requests were
-- made with it. It has no foreign keys: a purge takes turns away whose conversation goes on from a summary.
create table turnkeeper.summaries (
    agent        text not null,
    conversation text not null,
    up_to        bigint not null, -- the last turn in it
    turn_id      bigint not null, -- the turn that made it
    content      text not null check (content <> ''),
    primary key (agent, conversation, up_to),
    check (up_to < turn_id)
);

-- What model calls took, by scope and period. Rows only ever add up.
create table turnkeeper.spend (
    scope  text not null, -- agent:NAME, turn:ID or tree:ID
    period text not null, -- a day of UTC for an agent, else ''
    tokens bigint not null default 0,
    calls  bigint not null default 0,
    primary key (scope, period)
);

-- Estimates that were taken out of budgets before a model call, until the call says what it took.
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

create table turnkeeper.rounds (
    turn_id          bigint not null references turnkeeper.turns,
    round            integer not null check (round > 0),
    version          smallint not null default 1, -- of the round and its calls: see storage/version.go
    request          json,             -- the recipe from which the request can be made again
    charged          boolean not null, -- counts against the turn's bound of rounds
    provider         text not null,
    model            text not null,
    attempts         integer not null,
    latency_ms       bigint not null check (latency_ms >= 0),
    finish_reason    text not null,
    text             text not null,
    reasoning        text not null,
    raw              text, -- text, not jsonb: it is sent again byte for byte
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
    reasoning_tokens bigint not null,
    usage_estimated  boolean not null,
    ended_at         timestamptz not null default clock_timestamp(),
    primary key (turn_id, round)
);

-- Parts that many requests share, by their hash: definitions of tools, and how a provider writes requests. They hold
-- nothing of a conversation. Rows are never deleted.
create table turnkeeper.request_parts (
    sha256  text primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    content text not null
);

-- Model calls that gave no answer: what they took, and what they had said. The tokens of a turn are those of its rounds,
-- of its tool calls and of these.
create table turnkeeper.failed_attempts (
    id               bigint generated always as identity primary key,
    turn_id          bigint not null references turnkeeper.turns on delete cascade,
    round            integer not null check (round > 0),    -- that it was made for; it may have no answer
    attempt          integer not null check (attempt >= 0), -- of the round, in one dispatch; 0: a call beside the rounds
    provider         text not null,
    model            text not null,
    error_class      text not null,
    error            text not null, -- for operators
    text             text not null, -- what it had streamed, bounded
    reasoning        text not null, -- likewise
    latency_ms       bigint not null check (latency_ms >= 0),
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
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

create table turnkeeper.calls (
    turn_id          bigint not null,
    round            integer not null,
    ordinal          integer not null,
    agent            text not null,
    wire_id          text not null,
    provider_id      text not null,
    name             text not null,
    arguments        text not null,
    raw_args         text not null default '',
    args_hash        text not null,
    effect           text not null,
    paging           boolean not null,
    elsewhere        boolean not null default false, -- the call is detached: its result arrives in awaited_calls
    state            text not null,
    -- the newest start
    starts           integer not null default 0,
    nonce            text not null default '',
    started_at       timestamptz,
    -- the result
    ended_at         timestamptz,
    duration_ms      bigint,
    shown            text not null default '', -- to the model
    preview          text not null default '', -- for people
    output_id        text,
    late_result      text, -- came after another worker had recorded a result
    -- what model calls took that were made for it; the turn's figures include it
    input_tokens     bigint not null default 0,
    output_tokens    bigint not null default 0,
    cached_tokens    bigint not null default 0,
    reasoning_tokens bigint not null default 0,
    usage_estimated  boolean not null default false,
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round) references turnkeeper.rounds,
    check (turnkeeper.call_holds(ordinal, wire_id, effect, state, nonce, ended_at, duration_ms))
) with (fillfactor = 70);
create unique index calls_wire_id on turnkeeper.calls (turn_id, wire_id);
create index calls_recent on turnkeeper.calls (agent, name, args_hash, turn_id);

-- Every start of a call. This table is the at-most-once guarantee: a second start of a call of effect once cannot be
-- inserted, whatever any clock says.
create table turnkeeper.call_starts (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    attempt    integer not null check (attempt > 0),
    effect     text not null check (effect in ('none', 'keyed', 'once')),
    token      bigint not null,
    nonce      text not null unique,
    worker_id  text not null,
    started_at timestamptz not null default clock_timestamp(),
    primary key (turn_id, round, ordinal, attempt),
    foreign key (turn_id, round, ordinal) references turnkeeper.calls,
    check (effect <> 'once' or attempt = 1)
);

-- The turns that later turns of their conversation see. A message that was cancelled before its first turn is not among
-- them. Of a message's failed attempts, the last one is, and each earlier one that ran a tool with an effect. Whether a
-- turn is among them never changes after it ended, because requests are rebuilt from this view.
create view turnkeeper.told_turns as
select t.id, t.message_id, t.agent, t.conversation, t.state, t.error_class, t.inner_dialogue
from turnkeeper.turns t
where t.state in ('succeeded', 'degraded', 'failed', 'cancelled')
  and case t.state
      when 'cancelled' then t.dispatches > 0
      when 'failed' then
          exists (select from turnkeeper.messages m where m.id = t.message_id and m.turn_id = t.id and m.state = 'failed')
          or exists (select from turnkeeper.calls c where c.turn_id = t.id and c.effect <> 'none'
              and c.state in ('started', 'running', 'succeeded', 'failed', 'unknown', 'cancelled'))
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
    check ((content is null) <> (bytes is null))
);
create index outputs_call on turnkeeper.outputs (turn_id, round, ordinal);

-- Parts of large contents, each at most 64 KB of whole characters: reading a part of an output reads no more than its
-- chunks, and an output can be written while it comes. They are compressed (storage EXTENDED, the default): a chunk is
-- the least that is ever read, so that keeping it plain (EXTERNAL) would only cost disk.
create table turnkeeper.output_chunks (
    output_id  text not null,
    first_char bigint not null check (first_char >= 0), -- of binary content, its first byte
    content    text check (content <> ''),
    bytes      bytea check (octet_length(bytes) > 0),
    primary key (output_id, first_char),
    check ((content is null) <> (bytes is null))
);
-- LZ4 takes no longer than not compressing, and Postgres's own method three times as long. A server may be built without.
do $$ begin
    alter table turnkeeper.output_chunks alter column content set compression lz4, alter column bytes set compression lz4;
exception when feature_not_supported then null;
end $$;

-- Outputs that are still being written, chunk by chunk, before the journal names them. A chunk is added only while the
-- row is there. The write that records the result deletes the row; if the turn does not run under the grant any more, row
-- and chunks are swept.
create table turnkeeper.output_drafts (
    output_id  text primary key,
    turn_id    bigint not null,
    grant_id   uuid not null
);

-- What searches of outputs have found: one text, one query, one model. A cache: losing a row costs nothing but time. A row
-- goes with the records of the turn that made it, and after a week at the latest.
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

-- Calls whose turn may wait for a result from another process. The result lies here until the turn takes it into its
-- journal, because only the holder of a turn's grant writes there.
create table turnkeeper.awaited_calls (
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null,
    nonce       text not null, -- of the start whose result is taken
    opened_at   timestamptz not null default clock_timestamp(),
    arrived_at  timestamptz,
    state       text check (state in ('succeeded', 'failed', 'unknown', 'cancelled')),
    preview     text not null default '',
    duration_ms bigint check (duration_ms >= 0),
    output_id   text,
    closed_at   timestamptz, -- since when the journal has an answer
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round, ordinal) references turnkeeper.calls,
    check ((arrived_at is null) = (state is null))
) with (fillfactor = 70);

-- The run of a detached call in a River job of its own. The worker that claims it runs it; a claim is never given twice.
create table turnkeeper.detached_calls (
    turn_id    bigint not null,
    round      integer not null,
    ordinal    integer not null,
    attempt    integer not null default 1 check (attempt > 0),
    time_limit interval not null check (time_limit > interval '0'),
    deadline   timestamptz not null, -- of the wait for a claim, and then of the run
    look_at    timestamptz not null, -- without a claim: when to check that the job still exists
    job_id     bigint not null,
    claim      text unique,
    worker_id  text,
    claimed_at timestamptz,
    lost_at    timestamptz, -- its own worker gave it up
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

-- The bounds of all sub-agents below a turn that nobody spawned.
create table turnkeeper.agent_trees (
    root       bigint primary key, -- that turn
    max_depth  integer not null check (max_depth >= 0),
    max_agents integer not null check (max_agents >= 0),
    tokens     bigint not null default 0 check (tokens >= 0), -- of all model calls of the tree; 0: no bound
    calls      bigint not null default 0 check (calls >= 0)
);

-- Calls that gave work to another agent: a message, whose reply is the call's result. The row is kept as long as the
-- parent's records, because it says who spawned a turn.
create table turnkeeper.spawned_calls (
    turn_id    bigint not null,          -- the parent
    round      integer not null,
    ordinal    integer not null,
    message_id bigint unique,            -- null: the call was refused, and no message written
    agent      text not null,
    root       bigint not null references turnkeeper.agent_trees,
    agents     text[] not null,          -- from the root's to this one
    spawned_at timestamptz not null default clock_timestamp(),
    deadline   timestamptz not null,     -- of the wait for the reply
    trouble    text,                     -- why the call has no reply
    child      bigint,                   -- the turn that replied
    outcome    text check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    stop       text,
    ended_at   timestamptz,              -- since when it has its reply, or was refused
    told_at    timestamptz,              -- since when the call has its result, or nobody waits for one
    dropped_at timestamptz,              -- since when nobody waits for the reply: the sub-agent is cancelled
    primary key (turn_id, round, ordinal),
    check (cardinality(agents) > 1),
    check (message_id is not null or (trouble is not null and ended_at is not null)),
    check (outcome is null or ended_at is not null)
) with (fillfactor = 70);
create index spawned_calls_tree on turnkeeper.spawned_calls (root);
create index spawned_calls_untold on turnkeeper.spawned_calls (ended_at) where ended_at is not null and told_at is null;
create index spawned_calls_open on turnkeeper.spawned_calls (deadline) where ended_at is null and told_at is null;
create index spawned_calls_dropped on turnkeeper.spawned_calls (dropped_at) where dropped_at is not null and ended_at is null;

----------------------------------------------------------------------------------------------------
-- Replies and webhooks
----------------------------------------------------------------------------------------------------

-- The outbox. A trigger sets stop_reason, error_class and calls.
create table turnkeeper.replies (
    id             bigint generated always as identity primary key,
    message_id     bigint not null unique references turnkeeper.messages,
    turn_id        bigint not null unique references turnkeeper.turns,
    parent_turn_id bigint,        -- the turn that a sub-agent's reply was for; null: it is no sub-agent's
    agent          text not null,
    conversation   text not null,
    outcome        text not null check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    stop_reason    text not null, -- why the turn ended
    error_class    text,          -- of the error that ended it; null: none
    body           text not null, -- empty: the agent is set to reply to such an outcome without a text
    calls          jsonb not null, -- see turnkeeper.reply_calls
    created_at     timestamptz not null default clock_timestamp(),
    constraint replies_body_check check (body <> '' or outcome <> 'succeeded')
);
create index replies_agent on turnkeeper.replies (agent, id);

-- Endpoints that replies are pushed to. Their addresses and secrets are in the workers' settings only.
create table turnkeeper.webhooks (
    name          text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    origin        text not null, -- scheme, host and port of the address
    agents        text[] check (cardinality(agents) > 0), -- whose replies are pushed; null: all
    sub_agents    boolean not null default false, -- push the replies of sub-agents too
    added_at      timestamptz not null default clock_timestamp(),
    seen_at       timestamptz not null default clock_timestamp(), -- a worker has it in its settings
    not_before    timestamptz, -- the endpoint asked for a pause
    paused_at     timestamptz,
    paused_reason text,
    succeeded_at  timestamptz, -- the newest delivery
    failed_at     timestamptz,
    last_error    text,
    check ((paused_at is null) = (paused_reason is null))
);

-- One row for each reply and webhook, inserted with the reply. While it is pending, due_at is when the next attempt is due;
-- while somebody has claimed it, when the claim expires.
create table turnkeeper.webhook_deliveries (
    reply_id     bigint not null references turnkeeper.replies,
    webhook      text not null,
    state        text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
    attempts     integer not null default 0 check (attempts >= 0),
    due_at       timestamptz default clock_timestamp(),
    claim        text,
    worker_id    text,
    first_at     timestamptz, -- the first attempt since it was last put in
    last_at      timestamptz, -- the end of the newest attempt
    status       integer,     -- of the newest response; null: there was none
    error        text,        -- of the newest attempt; null: it succeeded
    duration_ms  bigint check (duration_ms >= 0),
    redelivered  integer not null default 0, -- how often an operator put it in again
    created_at   timestamptz not null default clock_timestamp(),
    primary key (reply_id, webhook),
    check ((state = 'pending') = (due_at is not null)),
    check (claim is null or state = 'pending')
) with (fillfactor = 70);
create index webhook_deliveries_due on turnkeeper.webhook_deliveries (webhook, due_at) where state = 'pending';
create index webhook_deliveries_claimed on turnkeeper.webhook_deliveries (webhook) where claim is not null;
create index webhook_deliveries_dead on turnkeeper.webhook_deliveries (webhook, reply_id) where state = 'dead';
create index webhook_deliveries_newest on turnkeeper.webhook_deliveries (webhook, reply_id);

----------------------------------------------------------------------------------------------------
-- API tokens and sessions
----------------------------------------------------------------------------------------------------

-- Only the hash of a token is kept: a token that is lost is replaced by a new one.
create table turnkeeper.api_tokens (
    id           bigint generated always as identity primary key,
    name         text not null unique check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    sha256       text not null unique check (sha256 ~ '^[0-9a-f]{64}$'),
    scopes       text[] not null check (cardinality(scopes) > 0 and scopes <@ array['send', 'read', 'operate']),
    agents       text[] check (cardinality(agents) > 0), -- null: all
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz, -- null: never
    last_used_at timestamptz  -- to the minute
);

-- Browsers that are signed in to the page. A session has the scopes and agents of its token, and ends with it.
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

-- What MCP servers say of their tools: the definition that is pinned, and the one that was seen last.
create table turnkeeper.mcp_tools (
    server             text not null,
    tool               text not null, -- the server's own name
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
    gone               boolean not null default false, -- the newest list of the server did not have it
    primary key (server, tool)
);

-- People's logins to MCP servers, shared by all workers. The tokens are encrypted: the table without the key has none.
create sequence turnkeeper.mcp_login_revisions;
create table turnkeeper.mcp_logins (
    server        text primary key,
    revision      bigint not null default nextval('turnkeeper.mcp_login_revisions'), -- changes whenever sealed does
    sealed        bytea not null,       -- AES-256-GCM: a nonce, then the tokens
    scopes        text[] not null,      -- that were granted, as far as the server said
    wanted        text[] not null default '{}', -- that the server has asked for since
    expires_at    timestamptz,          -- of the access token; null: the server did not say
    renewable     boolean not null,
    logged_in_at  timestamptz not null default clock_timestamp(),
    renewed_at    timestamptz,
    lapsed        text,                 -- why the login is no longer valid; null: it is valid
    claim         text,                 -- of the worker that renews it; null: none does
    claimed_until timestamptz,
    check ((claim is null) = (claimed_until is null))
);
alter sequence turnkeeper.mcp_login_revisions owned by turnkeeper.mcp_logins.revision;
