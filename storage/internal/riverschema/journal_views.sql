-- The views of migrations/006_views.up.sql as sqlc sees them. A test compares the columns.

create table turnkeeper.journal_answers (
    turn_id          bigint not null,
    n                bigint not null,
    at               timestamptz not null,
    round            integer not null,
    answer           json not null,
    calls            json,
    text             text not null,
    reasoning        text not null,
    raw              text,
    request          json
);

create table turnkeeper.rounds (
    turn_id          bigint not null,
    round            integer not null,
    version          smallint not null,
    request          json,
    charged          boolean not null,
    provider         text not null,
    model            text not null,
    attempts         integer not null,
    latency_ms       bigint not null,
    finish_reason    text not null,
    text             text not null,
    reasoning        text not null,
    raw              text,
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
    cache_write_tokens bigint not null,
    reasoning_tokens bigint not null,
    usage_estimated  boolean not null,
    ended_at         timestamptz not null,
    n                bigint not null
);

create table turnkeeper.calls (
    turn_id          bigint not null,
    round            integer not null,
    ordinal          integer not null,
    agent            text not null,
    wire_id          text not null,
    provider_id      text not null,
    name             text not null,
    arguments        text not null,
    planned_args     text,
    raw_args         text not null,
    args_hash        text not null,
    effect           text not null,
    paging           boolean not null,
    awaited          boolean not null,
    state            text not null,
    starts           integer not null,
    nonce            text not null,
    started_at       timestamptz,
    ended_at         timestamptz,
    duration_ms      bigint,
    shown            text not null,
    preview          text not null,
    output_id        text,
    late_result      text,
    input_tokens     bigint not null,
    output_tokens    bigint not null,
    cached_tokens    bigint not null,
    cache_write_tokens bigint not null,
    reasoning_tokens bigint not null,
    usage_estimated  boolean not null
);

create table turnkeeper.lease_log (
    lane        text not null,
    token       bigint not null,
    grant_id    uuid not null,
    turn_id     bigint not null,
    job_id      bigint,
    worker_id   text,
    granted_at  timestamptz not null,
    lease_until timestamptz not null,
    ended_at    timestamptz,
    outcome     text
);
