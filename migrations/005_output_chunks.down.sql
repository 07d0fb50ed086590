-- What lies in chunks goes back into its row.
update turnkeeper.outputs o set chunked = false,
    content = case when o.bytes is null then (select string_agg(c.content, '' order by c.first_char) from turnkeeper.output_chunks c where c.output_id = o.id) end,
    bytes = case when o.bytes is not null then (select string_agg(c.bytes, ''::bytea order by c.first_char) from turnkeeper.output_chunks c where c.output_id = o.id) end
where o.chunked;
drop function turnkeeper.finish_drafts, turnkeeper.sweep_drafts;
drop table turnkeeper.output_drafts;
drop table turnkeeper.output_chunks;
alter table turnkeeper.outputs drop column chunked;
