-- name: AddLabels :exec
-- It leaves out the labels of a message to a sub-agent that was refused: there is no such message.
insert into turnkeeper.labels (kind, id, round, ordinal, label, source)
select l.kind, l.id, l.round, l.ordinal, l.label, l.source
from (select unnest(@kinds::text[]) as kind, unnest(@ids::bigint[]) as id, unnest(@rounds::integer[]) as round,
    unnest(@ordinals::integer[]) as ordinal, unnest(@labels::text[]) as label, unnest(@sources::text[]) as source) l
where l.kind <> 'message' or exists (select from turnkeeper.messages m where m.id = l.id)
on conflict do nothing;

-- name: LabelsForTurn :many
-- The labels of a turn and of its calls, and of what it knows: earlier turns, a summary, its message.
select * from turnkeeper.labels
where kind = 'call' and id = @turn::bigint or kind = 'turn' and id = any(@turns::bigint[])
   or kind = 'message' and id = @message::bigint or kind = 'summary' and id = @summary::bigint
order by kind, id, round, ordinal, label;

-- name: LabelsOfReplies :many
select * from turnkeeper.labels where kind = 'reply' and id = any(@messages::bigint[]) order by id, label;

-- name: WriteNote :exec
select turnkeeper.write_note(@agent::text, @user_name::text, @conversation::text, @name::text, @content::text,
    @labels::text[], @sources::text[]);

-- name: ReadNote :one
select n.content, array(select l.label from turnkeeper.labels l where l.kind = 'note' and l.id = 0
        and l.agent = n.agent and l.user_name = n.user_name and l.conversation = n.conversation and l.name = n.name
            order by l.label)::text[] as labels,
    array(select l.source from turnkeeper.labels l where l.kind = 'note' and l.id = 0
        and l.agent = n.agent and l.user_name = n.user_name and l.conversation = n.conversation and l.name = n.name
            order by l.label)::text[] as sources
from turnkeeper.notes n where n.agent = @agent and n.user_name = @user_name and n.conversation = @conversation
    and n.name = @name;

-- name: ListNotes :many
select n.name, length(n.content)::integer as chars, n.updated_at,
    array(select l.label from turnkeeper.labels l where l.kind = 'note' and l.id = 0
        and l.agent = n.agent and l.user_name = n.user_name and l.conversation = n.conversation and l.name = n.name
            order by l.label)::text[] as labels,
    array(select l.source from turnkeeper.labels l where l.kind = 'note' and l.id = 0
        and l.agent = n.agent and l.user_name = n.user_name and l.conversation = n.conversation and l.name = n.name
            order by l.label)::text[] as sources
from turnkeeper.notes n where n.agent = @agent and n.user_name = @user_name and n.conversation = @conversation
    order by n.name limit 500;

-- name: JournaledCalls :many
-- The calls that were planned since a time, oldest first, with the labels that their turns had before them.
select c.turn_id, c.round, c.ordinal, c.name, c.arguments, c.effect, c.state, t.agent, t.user_name,
    t.conversation, t.trigger,
    array(select distinct l.label from turnkeeper.labels l where l.kind = 'turn' and l.id = c.turn_id
        and l.round < c.round order by 1)::text[] as labels
from turnkeeper.turns t join turnkeeper.calls c on c.turn_id = t.id
where t.id >= turnkeeper.first_turn(@since) and t.created_at >= @since and (c.turn_id, c.round,
    c.ordinal) > (@turn::bigint, @round::integer, @ordinal::integer)
order by c.turn_id, c.round, c.ordinal limit @max_rows;

-- name: LabelFile :one
select turnkeeper.label_file(@path::text, @agent::text, @labels::text[], @sources::text[])::boolean;

-- name: LockFile :one
select f.path from turnkeeper.files f where f.path = @path for update;

-- name: RelabelFile :exec
select turnkeeper.relabel_file(@path::text, @agent::text, @labels::text[], @sources::text[]);

-- name: FileLabels :many
-- The labels of a file, or of the files below a folder. A folder ends with a slash.
select distinct on (l.label) l.label, l.source from turnkeeper.labels l
where l.kind = 'file' and (l.name = @path::text or right(@path, 1) = '/' and starts_with(l.name, @path))
    order by l.label, l.name;
