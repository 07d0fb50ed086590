-- name: FindMessages :many
-- Filters the newest @scan messages below an id (of all, of an agent, of a user, or of a conversation) and returns the
-- matches, newest first. Only one branch of the union runs: the conditions of the others are false before they read a
-- row.
select m.* from (
    (select * from turnkeeper.messages
     where @source::text = 'all' and id < @before::bigint and id >= @from_id::bigint
         order by id desc limit @scan::integer)
    union all
    (select * from turnkeeper.messages
     where @source = 'agent' and agent = @agent::text and id < @before and id >= @from_id order by id desc limit @scan)
    union all
    (select * from turnkeeper.messages
     where @source = 'user' and user_name <> '' and user_name = @user_name::text and id < @before and id >= @from_id
         order by id desc limit @scan)
    union all
    (select * from turnkeeper.messages
     where @source = 'conversation' and agent = @agent and user_name = @user_name::text
         and conversation = @conversation::text and id < @before and id >= @from_id
     order by id desc limit @scan)
    union all
    select * from turnkeeper.messages where @source = 'ids' and id = any(@ids::bigint[]) and id + 0 < @before
        and id + 0 >= @from_id
) m
where (@agent = '' or m.agent = @agent) and (@user_name = '' or m.user_name = @user_name)
  and (@conversation = '' or m.user_name = @user_name and m.conversation = @conversation) and (@state::text = ''
      or m.state = @state)
  and m.accepted_at >= coalesce(sqlc.narg(since)::timestamptz, '-infinity')
      and m.accepted_at < coalesce(sqlc.narg(until)::timestamptz, 'infinity')
  and (@words::text = '' or @source = 'ids' or turnkeeper.words_in(m.body) @@ turnkeeper.words_asked(@words))
  and (@error_class::text = '' or exists (select from turnkeeper.turns t
      where t.id = m.turn_id and t.error_class = @error_class))
order by m.id desc limit @max_rows;

-- name: StatesOfTurns :many
select id, state from turnkeeper.turns where id = any(@ids::bigint[]);

-- name: LastOfMessages :one
-- The id of the last message that FindMessages read, or 0 if it read all.
select coalesce((select p.id from (
    (select id from turnkeeper.messages
     where @source::text = 'all' and id < @before::bigint and id >= @from_id::bigint
         order by id desc limit @scan::integer)
    union all
    (select id from turnkeeper.messages
     where @source = 'agent' and agent = @agent::text and id < @before and id >= @from_id order by id desc limit @scan)
    union all
    (select id from turnkeeper.messages
     where @source = 'user' and user_name <> '' and user_name = @user_name::text and id < @before and id >= @from_id
         order by id desc limit @scan)
    union all
    (select id from turnkeeper.messages
     where @source = 'conversation' and agent = @agent and user_name = @user_name::text
         and conversation = @conversation::text and id < @before and id >= @from_id
     order by id desc limit @scan)
) p order by p.id desc offset @skip::integer limit 1), 0)::bigint;

-- name: MessagesWithWords :many
-- The ids of messages with the words, in no order: closed ones by an index, running ones, and of the waiting ones
-- 10,000. One more row than the caller sorts means that the words are common.
(select m.id from turnkeeper.messages m
 where m.closed_at is not null and turnkeeper.words_in(m.body) @@ turnkeeper.words_asked(@words::text)
 limit @scan::integer)
union all
(select w.id from (select o.id, o.body from turnkeeper.waiting o limit 10000) w
 where turnkeeper.words_in(w.body) @@ turnkeeper.words_asked(@words) limit @scan)
union all
(select m.id from turnkeeper.turns t join turnkeeper.messages m on m.id = t.message_id
 where t.ended_at is null
   and turnkeeper.words_in(m.body) @@ turnkeeper.words_asked(@words) limit @scan);

-- name: MessageNear :one
-- Roughly the id of the first message that was accepted at or after a time, by binary search: ids are in the order of
-- acceptance except where the clock was set back.
with recursive half (low, high) as (
    select coalesce(min(id), 1)::bigint, coalesce(max(id), 0)::bigint + 1 from turnkeeper.messages
    union all
    select case when m.accepted_at < @at::timestamptz then m.id + 1 else h.low end, case when m.accepted_at < @at
        then h.high else h.middle end
    from (select low, high, (low + high) / 2 as middle from half where low < high) h
    left join lateral (select id, accepted_at from turnkeeper.messages where id >= h.middle and id < h.high
        order by id limit 1) m on true
)
select low::bigint from half where low >= high;

-- name: FindTurns :many
-- Like FindMessages, with the words of the turn's message.
select t.* from (
    (select * from turnkeeper.turns_now
     where @source::text = 'all' and id < @before::bigint and id >= @from_id::bigint
         order by id desc limit @scan::integer)
    union all
    (select * from turnkeeper.turns_now
     where @source = 'agent' and agent = @agent::text and id < @before and id >= @from_id order by id desc limit @scan)
    union all
    (select * from turnkeeper.turns_now
     where @source = 'user' and user_name <> '' and user_name = @user_name::text and id < @before and id >= @from_id
         order by id desc limit @scan)
    union all
    (select * from turnkeeper.turns_now
     where @source = 'conversation' and agent = @agent and user_name = @user_name::text
         and conversation = @conversation::text and id < @before and id >= @from_id
     order by id desc limit @scan)
    union all
    -- (+ 0 keeps the planner from scanning the index on id, because the ids are few)
    select * from turnkeeper.turns_now where @source = 'ids' and message_id = any(@ids::bigint[]) and id + 0 < @before
        and id + 0 >= @from_id
) t
where (@agent = '' or t.agent = @agent) and (@user_name = '' or t.user_name = @user_name)
  and (@conversation = '' or t.user_name = @user_name and t.conversation = @conversation) and (@state::text = ''
      or t.state = @state)
  and t.created_at >= coalesce(sqlc.narg(since)::timestamptz, '-infinity')
      and t.created_at < coalesce(sqlc.narg(until)::timestamptz, 'infinity')
  and (@error_class::text = '' or t.error_class = @error_class)
  and (@words::text = '' or @source = 'ids' or exists (select from turnkeeper.messages m where m.id = t.message_id
      and turnkeeper.words_in(m.body) @@ turnkeeper.words_asked(@words)))
order by t.id desc limit @max_rows;

-- name: LastOfTurns :one
select coalesce((select p.id from (
    (select id from turnkeeper.turns
     where @source::text = 'all' and id < @before::bigint and id >= @from_id::bigint
         order by id desc limit @scan::integer)
    union all
    (select id from turnkeeper.turns
     where @source = 'agent' and agent = @agent::text and id < @before and id >= @from_id order by id desc limit @scan)
    union all
    (select id from turnkeeper.turns
     where @source = 'user' and user_name <> '' and user_name = @user_name::text and id < @before and id >= @from_id
         order by id desc limit @scan)
    union all
    (select id from turnkeeper.turns
     where @source = 'conversation' and agent = @agent and user_name = @user_name::text
         and conversation = @conversation::text and id < @before and id >= @from_id
     order by id desc limit @scan)
) p order by p.id desc offset @skip::integer limit 1), 0)::bigint;

-- name: TurnNear :one
select turnkeeper.first_turn(@at::timestamptz)::bigint;

-- name: RepliesOfMessages :many
select * from turnkeeper.replies where message_id = any(@messages::bigint[]);

-- name: CallsSoFar :many
-- The calls of turns, in the form of replies.calls.
select t.id, turnkeeper.reply_calls(t.id)::jsonb as calls from turnkeeper.turns t where t.id = any(@turns::bigint[]);

-- name: RunSchedule :one
select coalesce(message, 0)::bigint as message, waiting::boolean as waiting from turnkeeper.run_schedule(@agent::text,
    @name::text);
