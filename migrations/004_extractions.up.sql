-- Extractions from stored outputs: what their model calls took, and what they
-- have found, for the next that asks the same.
-- Oldest program: 2
-- Locks: calls, for the moment it takes to add columns with a constant default.

-- What model calls took that were made for a tool call. The turn's figures hold it.
alter table turnkeeper.calls
    add column input_tokens     bigint not null default 0,
    add column output_tokens    bigint not null default 0,
    add column cached_tokens    bigint not null default 0,
    add column reasoning_tokens bigint not null default 0,
    add column usage_estimated  boolean not null default false;

-- A row stands for a search of one text for one query by one model. Nothing but
-- time is lost with it. It goes with the records of the turn that made it, and
-- after a week at the latest.
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
