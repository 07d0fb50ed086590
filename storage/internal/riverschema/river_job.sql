-- The columns of River's table that Turnkeeper's queries use, for sqlc only. River
-- creates and migrates the real table.
create schema turnkeeper;
create type turnkeeper.river_job_state as enum ('available', 'running');
create table turnkeeper.river_job (
    id           bigserial primary key,
    state        text not null,
    kind         text not null,
    queue        text not null,
    args         jsonb not null,
    priority     smallint not null,
    max_attempts smallint not null,
    tags         varchar(255)[] not null,
    attempt      smallint not null,
    attempted_by text[],
    attempted_at timestamptz,
    finalized_at timestamptz,
    metadata     jsonb not null
);
