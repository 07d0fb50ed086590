-- name: FindExtraction :one
select result from turnkeeper.extractions
where source_sha256 = @source_sha256::text and query_sha256 = @query_sha256::text and model = @model::text
  and prompt_version = @prompt_version::integer;

-- name: KeepExtraction :exec
insert into turnkeeper.extractions (source_sha256, query_sha256, model, prompt_version, turn_id, result)
values (@source_sha256::text, @query_sha256::text, @model::text, @prompt_version::integer, @turn_id::bigint,
    @result::json)
on conflict (source_sha256, query_sha256, model, prompt_version)
do update set turn_id = excluded.turn_id, result = excluded.result, created_at = excluded.created_at;

-- name: ForgetExtractions :exec
delete from turnkeeper.extractions where created_at < clock_timestamp() - @older_than::interval;
