-- Labels of content: untrusted, private. They follow the content. Only purging the content removes them.

-- One row for each label of something. id, round, ordinal, agent, user_name, conversation and name identify it. They
-- are 0 or empty if the kind does not use them:
--
--   call      the result of a call       id is the turn, round and ordinal the call
--   turn      content that a turn saw    id is the turn; rounds after round have seen it.
--                                   0: all rounds, for example history
--   message   a message to an agent      id is the message
--   reply     the reply to a message     id is the message
--   summary   of earlier turns           id is the last turn in it
--   note      an agent's note            the key of the note
--   file      a file that an agent wrote name is its path
create table turnkeeper.labels (
    kind         text not null check (kind in ('call', 'turn', 'message', 'reply', 'summary', 'note', 'file')),
    id           bigint not null default 0,
    round        integer not null default 0,
    ordinal      integer not null default 0,
    agent        text not null default '',
    user_name    text not null default '',
    conversation text not null default '',
    name         text not null default '',
    label        text not null check (label in ('untrusted', 'private')),
    source       text not null, -- where the content first came from
    added_at     timestamptz not null default clock_timestamp(),
    primary key (kind, id, round, ordinal, agent, name, user_name, conversation, label)
);

-- Write a note of an agent. Its labels replace those of the old text. The row of the note orders writers.
create function turnkeeper.write_note(
    p_agent text, p_user text, p_conversation text, p_name text, p_content text, p_labels text[], p_sources text[]
) returns void language plpgsql as $$
begin
    insert into turnkeeper.notes (agent, user_name, conversation, name, content)
        values (p_agent, p_user, p_conversation, p_name, p_content)
    on conflict (agent, user_name, conversation, name) do update set content = excluded.content,
        updated_at = clock_timestamp();
    delete from turnkeeper.labels l where l.kind = 'note' and l.id = 0 and l.agent = p_agent
        and l.user_name = p_user and l.conversation = p_conversation and l.name = p_name;
    insert into turnkeeper.labels (kind, agent, user_name, conversation, name, label, source)
    select 'note', p_agent, p_user, p_conversation, p_name, n.label, n.source
        from unnest(p_labels, p_sources) as n(label, source);
end $$;

-- Files that agents have written with labels, by their absolute paths without links. A row stays if the file is
-- deleted.
create table turnkeeper.files (
    path       text primary key,
    agent      text not null, -- that wrote it last
    written_at timestamptz not null default clock_timestamp()
);

-- Add labels to a file that is about to be written. Returns whether it has any.
create function turnkeeper.label_file(p_path text, p_agent text, p_labels text[],
    p_sources text[]) returns boolean language plpgsql as $$
begin
    if cardinality(p_labels) > 0 then
        insert into turnkeeper.files (path, agent) values (p_path, p_agent)
        on conflict (path) do update set agent = excluded.agent, written_at = clock_timestamp();
        insert into turnkeeper.labels (kind, name, label, source)
        select 'file', p_path, n.label, n.source from unnest(p_labels, p_sources) as n(label, source)
            on conflict do nothing;
    end if;
    return exists (select from turnkeeper.files f where f.path = p_path);
end $$;

-- Replace the labels of a file, after it was written. The caller holds the lock on its row. A file without labels needs
-- no row.
create function turnkeeper.relabel_file(p_path text, p_agent text, p_labels text[],
    p_sources text[]) returns void language plpgsql as $$
begin
    perform from turnkeeper.files f where f.path = p_path for update; -- before its labels, as a purge does
    delete from turnkeeper.labels l where l.kind = 'file' and l.name = p_path;
    if cardinality(p_labels) = 0 then
        delete from turnkeeper.files f where f.path = p_path;
    else
        perform turnkeeper.label_file(p_path, p_agent, p_labels, p_sources);
    end if;
end $$;

-- A reply gets the labels of the turns of its message, however it is written.
create function turnkeeper.label_reply() returns trigger language plpgsql as $$
begin
    if not exists (select from turnkeeper.labels) then -- as in most databases: the rest takes five times as long
        return new;
    end if;
    insert into turnkeeper.labels (kind, id, label, source)
    select distinct on (l.label) 'reply', new.message_id, l.label, l.source
    from turnkeeper.turns t join turnkeeper.labels l on l.kind = 'turn' and l.id = t.id
    where t.message_id = new.message_id order by l.label, l.id, l.round
    on conflict do nothing;
    new.labels := array(select l.label from turnkeeper.labels l where l.kind = 'reply' and l.id = new.message_id
        order by l.label);
    return new;
end $$;
create trigger reply_labelled before insert
    on turnkeeper.replies for each row execute function turnkeeper.label_reply();

-- What texts are compared by: a hash of the text without white space.
create function turnkeeper.said_key(body text) returns text immutable parallel safe language sql
return md5(translate(body, E' \t\n\x0b\x0c\r', ''));

create index replies_labelled on turnkeeper.replies (user_name, turnkeeper.said_key(body)) where labels <> '{}';

-- Add labels to a message: the given ones, and those of the labelled replies to the same user that are one of the
-- texts.
create function turnkeeper.label_message(p_message bigint, p_user text, p_texts text[], p_labels text[],
    p_sources text[]) returns void language plpgsql as $$
begin
    if p_labels = '{}' and not exists (select from turnkeeper.labels l where l.kind = 'reply') then
        return;
    end if;
    insert into turnkeeper.labels (kind, id, label, source)
    select distinct on (a.label) 'message', p_message, a.label, a.source from (
        select g.label, g.source, 0 as id from unnest(p_labels, p_sources) as g(label, source)
        union all
        select l.label, l.source, l.id
        from (select distinct turnkeeper.said_key(t) as key from unnest(p_texts) t
            where translate(t, E' \t\n\x0b\x0c\r', '') <> '') s
        join turnkeeper.replies r on r.user_name = p_user and turnkeeper.said_key(r.body) = s.key and r.labels <> '{}'
        join turnkeeper.labels l on l.kind = 'reply' and l.id = r.message_id) a
    order by a.label, a.id
    on conflict do nothing;
end $$;

-- A message that is a labelled reply to its user gets the labels of the reply, however it is written.
create function turnkeeper.label_repeat() returns trigger language plpgsql as $$
begin
    perform turnkeeper.label_message(new.id, new.user_name, array[new.body], '{}', '{}');
    return null;
end $$;
create trigger message_labelled after insert or update of body
    on turnkeeper.messages for each row execute function turnkeeper.label_repeat();

-- A retried message gets the labels of the first one.
create function turnkeeper.label_retry() returns trigger language plpgsql as $$
begin
    insert into turnkeeper.labels (kind, id, label, source)
    select l.kind, new.retried_as, l.label, l.source from turnkeeper.labels l where l.kind = 'message'
        and l.id = new.message_id
    on conflict do nothing;
    return null;
end $$;
create trigger retry_labelled after insert on turnkeeper.retries for each row execute function turnkeeper.label_retry();

-- Delete labels together with what they belong to.
create function turnkeeper.forget_labels() returns trigger language plpgsql as $$
begin
    case tg_table_name
        when 'turns' then delete from turnkeeper.labels l using gone g where l.kind in ('call', 'turn') and l.id = g.id;
        when 'messages' then delete from turnkeeper.labels l using gone g where l.kind in ('message', 'reply')
            and l.id = g.id;
        when 'summaries' then delete from turnkeeper.labels l using gone g where l.kind = 'summary' and l.id = g.up_to;
        when 'notes' then delete from turnkeeper.labels l using gone g where l.kind = 'note' and l.agent = g.agent
            and l.user_name = g.user_name and l.conversation = g.conversation and l.name = g.name;
        when 'files' then delete from turnkeeper.labels l using gone g where l.kind = 'file' and l.name = g.path;
    end case;
    return null;
end $$;
create trigger labels_forgotten after delete on turnkeeper.turns referencing old table as gone
    for each statement execute function turnkeeper.forget_labels();
create trigger labels_forgotten after delete on turnkeeper.messages referencing old table as gone
    for each statement execute function turnkeeper.forget_labels();
create trigger labels_forgotten after delete on turnkeeper.summaries referencing old table as gone
    for each statement execute function turnkeeper.forget_labels();
create trigger labels_forgotten after delete on turnkeeper.notes referencing old table as gone
    for each statement execute function turnkeeper.forget_labels();
create trigger labels_forgotten after delete on turnkeeper.files referencing old table as gone
    for each statement execute function turnkeeper.forget_labels();
