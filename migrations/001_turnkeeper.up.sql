-- The whole of Turnkeeper's first schema. River's tables live beside these in
-- the same schema and are migrated by River itself.
-- Locks: creates only new objects, so nothing that runs is blocked.

-- What may be changed while workers run, and must outlast them. One row.
create table turnkeeper.settings (
    singleton               boolean primary key default true check (singleton),
    max_message_bytes       integer not null default 65536 check (max_message_bytes > 0),
    poll_interval           interval check (poll_interval > interval '0'),
    max_dispatches_per_tick integer check (max_dispatches_per_tick > 0),
    paused_at               timestamptz,
    paused_reason           text,
    timeline                text,
    last_tick_at            timestamptz,
    hold_until              timestamptz,
    hold_reason             text,
    check ((paused_at is null) = (paused_reason is null)),
    check ((hold_until is null) = (hold_reason is null))
);
insert into turnkeeper.settings default values;

-- Every definition an agent ever ran with, by its hash.
create table turnkeeper.definitions (
    hash       text primary key check (hash ~ '^[0-9a-f]{64}$'),
    agent      text not null,
    content    text not null,
    created_at timestamptz not null default clock_timestamp()
);

create table turnkeeper.agents (
    name                  text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    definition_hash       text not null references turnkeeper.definitions,
    description           text not null default '',
    lane_per_conversation boolean not null default false,
    updated_at            timestamptz not null default clock_timestamp()
);

-- The inbox. Agents and definitions are never deleted, and what refers to them
-- is written by the functions and statements that have just read them: a foreign
-- key would have every message and turn lock the same few rows.
create table turnkeeper.messages (
    id              bigint generated always as identity primary key,
    agent           text not null,
    conversation    text not null default 'main' check (octet_length(conversation) between 1 and 200),
    lane            text not null,
    body            text not null check (btrim(body, E' \t\r\n') <> ''),
    idempotency_key text check (octet_length(idempotency_key) between 1 and 200),
    priority        integer not null default 0 check (priority between -1000 and 1000),
    trigger         text not null default 'message' check (trigger in ('message', 'schedule')),
    schedule        text,
    slot            timestamptz,
    state           text not null default 'waiting'
                    check (state in ('waiting', 'running', 'answered', 'failed', 'cancelled')),
    attempts        integer not null default 0 check (attempts >= 0),
    due_at          timestamptz not null default date_trunc('second', clock_timestamp()),
    accepted_at     timestamptz not null default clock_timestamp(),
    closed_at       timestamptz,
    turn_id         bigint,
    last_error      text,
    trace_parent    text,
    check ((trigger = 'schedule') = (slot is not null and schedule is not null)),
    check ((state in ('waiting', 'running')) = (closed_at is null)),
    unique (agent, idempotency_key),
    unique (agent, schedule, slot)
);
-- The head of a lane, and the lanes that have one.
create index messages_waiting on turnkeeper.messages (lane, due_at, priority desc, id) where state = 'waiting';
-- What is oldest of all.
create index messages_oldest on turnkeeper.messages (due_at, priority desc, id) where state = 'waiting';

-- The lease of a lane. The row is never deleted, so that its token never
-- starts again.
create table turnkeeper.leases (
    lane        text primary key,
    agent       text not null,
    token       bigint not null default 0 check (token >= 0),
    grant_id    uuid unique,
    turn_id     bigint,
    granted_at  timestamptz,
    lease_until timestamptz,
    failures    integer not null default 0 check (failures >= 0),
    not_before  timestamptz,
    check ((grant_id is null) = (turn_id is null)),
    check ((grant_id is null) = (granted_at is null)),
    check ((grant_id is null) = (lease_until is null)),
    check (lease_until > granted_at)
) with (fillfactor = 50); -- rows are updated in place: room for it on their page
create index leases_held on turnkeeper.leases (lease_until) where grant_id is not null;

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
    outcome     text check (outcome in ('finished', 'lost', 'handed_back', 'deferred', 'unclaimed')),
    check ((ended_at is null) = (outcome is null)),
    unique (lane, token)
);
create index lease_log_turn on turnkeeper.lease_log (turn_id);

create table turnkeeper.turns (
    id                bigint generated by default as identity primary key,
    message_id        bigint not null references turnkeeper.messages,
    attempt           integer not null check (attempt > 0),
    agent             text not null,
    conversation      text not null,
    lane              text not null,
    trigger           text not null,
    definition_hash   text not null,
    state             text not null check (state in
                      ('queued', 'running', 'waiting', 'succeeded', 'degraded', 'failed', 'cancelled')),
    token             bigint not null,
    grant_id          uuid,
    job_id            bigint,
    worker_id         text,
    entries           bigint not null default 0, -- writes to the journal so far
    dispatches        integer not null default 0,
    losses            integer not null default 0,
    created_at        timestamptz not null default clock_timestamp(),
    due_at            timestamptz,
    granted_at        timestamptz,
    lease_until       timestamptz,
    ended_at          timestamptz,
    inference_rounds  integer not null default 0,
    charged_rounds    integer not null default 0,
    executed_calls    integer not null default 0,
    input_tokens      bigint not null default 0,
    output_tokens     bigint not null default 0,
    cached_tokens     bigint not null default 0,
    reasoning_tokens  bigint not null default 0,
    usage_estimated   boolean not null default false,
    stop_reason       text check (stop_reason in ('none', 'max_rounds', 'max_duration', 'max_tool_calls',
                      'inference_error', 'budget', 'cancelled', 'worker_lost')),
    error_class       text,
    error             text,
    inner_dialogue    text,
    last_seq          bigint not null default 0,
    unique (message_id, attempt),
    check ((state in ('succeeded', 'degraded', 'failed', 'cancelled')) = (ended_at is not null)),
    check ((ended_at is null) = (stop_reason is null)),
    check (state <> 'running' or (grant_id is not null and lease_until is not null))
) with (fillfactor = 50); -- every write to the journal updates the row
create unique index turns_one_open_per_lane on turnkeeper.turns (lane)
    where state in ('queued', 'running', 'waiting');
create unique index turns_one_answer_per_message on turnkeeper.turns (message_id)
    where state in ('queued', 'running', 'waiting', 'succeeded', 'degraded', 'cancelled');
create index turns_queued on turnkeeper.turns (due_at) where state = 'queued';
create index turns_conversation on turnkeeper.turns (agent, conversation, id)
    where state in ('succeeded', 'degraded');

-- The outbox.
create table turnkeeper.replies (
    id           bigint generated always as identity primary key,
    message_id   bigint not null unique references turnkeeper.messages,
    turn_id      bigint not null unique references turnkeeper.turns,
    agent        text not null,
    conversation text not null,
    outcome      text not null check (outcome in ('succeeded', 'degraded', 'failed', 'cancelled')),
    body         text not null check (body <> ''),
    created_at   timestamptz not null default clock_timestamp()
);
create index replies_agent on turnkeeper.replies (agent, id);

-- The journal: answers, calls, starts.
create table turnkeeper.rounds (
    turn_id          bigint not null references turnkeeper.turns,
    round            integer not null check (round > 0),
    charged          boolean not null,
    provider         text not null,
    model            text not null,
    attempts         integer not null,
    latency_ms       bigint not null check (latency_ms >= 0),
    finish_reason    text not null,
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
    reasoning_tokens bigint not null,
    usage_estimated  boolean not null,
    text             text not null,
    reasoning        text not null,
    raw              text, -- text, not jsonb: it is replayed byte for byte
    version          smallint not null default 1,
    ended_at         timestamptz not null default clock_timestamp(),
    primary key (turn_id, round)
);

create table turnkeeper.calls (
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null check (ordinal > 0),
    agent       text not null,
    wire_id     text not null check (wire_id <> ''),
    provider_id text not null,
    name        text not null,
    arguments   text not null,
    raw_args    text not null default '',
    args_hash   text not null,
    effect      text not null check (effect in ('none', 'keyed', 'once')),
    paging      boolean not null,
    state       text not null check (state in ('planned', 'started', 'running', 'succeeded', 'failed',
                'skipped', 'denied', 'unknown', 'cancelled')),
    starts      integer not null default 0,
    nonce       text not null default '',
    started_at  timestamptz,
    ended_at    timestamptz,
    duration_ms bigint check (duration_ms >= 0),
    shown       text not null default '',
    preview     text not null default '',
    output_id   text,
    late_result text,
    late_at     timestamptz,
    primary key (turn_id, round, ordinal),
    foreign key (turn_id, round) references turnkeeper.rounds,
    check ((state in ('planned', 'started', 'running')) = (ended_at is null)),
    check (state <> 'started' or nonce <> '')
) with (fillfactor = 70);
create unique index calls_wire_id on turnkeeper.calls (turn_id, wire_id);
create index calls_recent on turnkeeper.calls (agent, name, args_hash, turn_id);

-- Every start there ever was. The keys are the at-most-once: a second start of
-- a call of effect once cannot be written, whatever any clock says.
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

create table turnkeeper.outputs (
    id          text primary key,
    turn_id     bigint not null,
    round       integer not null,
    ordinal     integer not null,
    media_type  text not null,
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

create table turnkeeper.turn_events (
    turn_id bigint not null,
    seq     bigint not null check (seq > 0),
    type    text not null,
    round   integer not null,
    block   integer not null,
    data    json, -- json, not jsonb: any escape a model may produce is kept
    at      timestamptz not null default clock_timestamp(),
    primary key (turn_id, seq)
);

create table turnkeeper.schedules (
    agent         text not null references turnkeeper.agents,
    name          text not null,
    cron          text not null,          -- as the agent's file has it
    cron_override text,                   -- as an operator changed it; lasts
    time_zone     text not null,
    conversation  text not null,
    message       text not null,
    active        boolean not null default true, -- still in the agent's file
    paused_at     timestamptz,
    next_due      timestamptz,            -- null: to be computed
    last_slot     timestamptz,
    last_error    text,
    updated_at    timestamptz not null default clock_timestamp(),
    primary key (agent, name)
);
create index schedules_due on turnkeeper.schedules (next_due) where active and paused_at is null;

create table turnkeeper.worker_heartbeat (
    worker_id      text primary key,
    host           text not null,
    pid            integer not null,
    version        text not null,
    slots          integer not null check (slots >= 0), -- turns it takes at once; 0: it is draining
    takeover_after interval not null check (takeover_after >= interval '0'), -- 0: only at the lease's end
    started_at     timestamptz not null default clock_timestamp(),
    beat_at        timestamptz not null default clock_timestamp(),
    stopped_at     timestamptz
);

create table turnkeeper.notes (
    agent      text not null,
    name       text not null,
    content    text not null,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (agent, name)
);

-- What model calls took. A row a scope and period; it only ever adds up.
create table turnkeeper.spend (
    scope  text not null, -- agent:NAME or turn:ID
    period text not null, -- a day of UTC, or '' for a turn
    tokens bigint not null default 0,
    calls  bigint not null default 0,
    primary key (scope, period)
);
create table turnkeeper.spend_reservations (
    id         bigint generated always as identity primary key,
    turn_id    bigint not null,
    agent      text not null,
    period     text not null,
    tokens     bigint not null,
    settled_at timestamptz,
    used       bigint
);
