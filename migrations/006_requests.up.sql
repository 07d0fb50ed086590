-- How the request of each round was made, so that it can be made again.
-- Oldest program: 2
-- Locks: rounds, for a moment, to add a column without a default; nothing is read or rewritten.

-- What many requests share, by its hash: definitions of tools, and how a provider
-- writes requests. Like agents' definitions these rows are never deleted; they hold
-- nothing of any conversation.
create table turnkeeper.request_parts (
    sha256     text primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    content    text not null,
    created_at timestamptz not null default clock_timestamp()
);

-- Summaries of the beginnings of conversations, up to and with a turn. One that
-- is written never changes: requests were made with it.
create table turnkeeper.summaries (
    agent        text not null,
    conversation text not null,
    up_to        bigint not null references turnkeeper.turns,
    turn_id      bigint not null references turnkeeper.turns, -- that made it
    content      text not null check (content <> ''),
    created_at   timestamptz not null default clock_timestamp(),
    primary key (agent, conversation, up_to),
    check (up_to < turn_id)
);

-- The recipe of the round's request; null: a program before this migration wrote
-- the round.
alter table turnkeeper.rounds add column request json;
