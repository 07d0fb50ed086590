-- Model calls that gave no answer: what they took, and what they had said.
-- Oldest program: 2
-- Locks: turns, for a moment: a foreign key to it is made, and no row is read.

-- The tokens of a turn are those of its rounds, of its calls and of these. They go with their turn.
create table turnkeeper.failed_attempts (
    id               bigint generated always as identity primary key,
    turn_id          bigint not null references turnkeeper.turns on delete cascade,
    round            integer not null check (round > 0), -- that it was made for; it may have no answer
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
