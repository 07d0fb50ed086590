alter table turnkeeper.rounds drop column request;
drop table turnkeeper.summaries;
drop table turnkeeper.request_parts;
